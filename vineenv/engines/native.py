"""The embedded engine: vines decoded in the trainer's process, prefixes shared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from vineenv.engines.base import EngineStats
from vineenv.engines.budget import kv_budget
from vineenv.engines.cohort import Finished
from vineenv.engines.trunks import Row, Trunk, computed_tokens, find_trunks
from vineenv.engines.weights import FusedModel, fuse
from vineenv.engines.worker import Worker
from vineenv.types import Completion, Request

Progress = Callable[[int, int], None]
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class NativeEngine:
    """Samples continuations on the CPU or one CUDA device with its own copy of the weights."""

    def __init__(
        self,
        model: nn.Module,
        *,
        kv_budget: str | int | None = None,
        dtype: str = "auto",
        max_rows: int | None = None,
        workers: int | None = None,
    ) -> None:
        self.stats = EngineStats()
        self.version = 0
        self._kv_budget = kv_budget
        self._dtype = dtype
        self._max_rows = max_rows
        self._workers = workers
        self._fused: FusedModel | None = None
        self.load_weights(model, 0)

    def load_weights(self, model: nn.Module, version: int) -> None:
        """Copy `model`'s weights; no key or value outlives a call of `generate`, so none is stale."""
        first = next(model.parameters())
        dtype = _DTYPES.get(self._dtype, first.dtype if first.is_cuda else torch.float32)
        self._fused = fuse(model, dtype)
        self.version = version

    def generate(
        self, requests: Sequence[Request], progress: Progress | None = None
    ) -> list[list[Completion]]:
        """Return, for each request in order, its `n` completions."""
        began = time.perf_counter()
        model = self._fused
        assert model is not None
        for number, request in enumerate(requests):
            _check(number, request, model)
        trunks = find_trunks(request.prefix for request in requests)
        _place_rows(trunks, requests, model.context)
        results: list[list[Completion | None]] = [[None] * request.n for request in requests]
        charged = {key: cost for trunk in trunks for key, cost in computed_tokens(trunk).items()}
        lock = threading.Lock()
        done, total = 0, sum(request.n for request in requests)

        def report(finished: list[Finished]) -> None:
            nonlocal done
            with lock:
                done += len(finished)
                for item in finished:
                    key = (item.row.request, item.row.index)
                    cached = len(requests[key[0]].prefix) - charged.get(key, 0)
                    results[key[0]][key[1]] = Completion(
                        tuple(item.ids), tuple(item.logprobs), item.reason, cached
                    )
                if progress is not None:
                    progress(done, total)

        self._run(model, requests, trunks, report)
        complete = [[c for c in row if c is not None] for row in results]
        self.stats.prompt_tokens += sum(len(request.prefix) * request.n for request in requests)
        self.stats.prefill_tokens += sum(len(trunk.ids) for trunk in trunks)
        self.stats.decoded_tokens += sum(len(c.ids) for row in complete for c in row)
        self.stats.seconds += time.perf_counter() - began
        return complete

    def _run(
        self,
        model: FusedModel,
        requests: Sequence[Request],
        trunks: list[Trunk],
        report: Callable[[list[Finished]], None],
    ) -> None:
        budget = kv_budget(self._kv_budget, model.device)
        threads = torch.get_num_threads()
        count = self._workers or (1 if model.device.type == "cuda" else min(threads, 4))
        max_rows = self._max_rows or 384
        shares = deal(trunks, count)
        if len(shares) <= 1:
            for share in shares:
                Worker(model, requests, budget, max_rows).run(share, report)
            return
        errors: list[BaseException] = []

        def work(share: list[Trunk]) -> None:
            torch.set_num_threads(max(1, threads // len(shares)))
            try:
                Worker(model, requests, budget // len(shares), max_rows).run(share, report)
            except BaseException as error:
                errors.append(error)

        pool = [threading.Thread(target=work, args=(share,), daemon=True) for share in shares]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        torch.set_num_threads(threads)
        if errors:
            raise errors[0]


def deal(trunks: Sequence[Trunk], count: int) -> list[list[Trunk]]:
    """Deal trunks to at most `count` workers, heaviest first to the least loaded."""
    shares: list[list[Trunk]] = [[] for _ in range(count)]
    loads = [0] * count
    for trunk in sorted(trunks, key=lambda trunk: (-trunk.work, trunk.ids)):
        least = loads.index(min(loads))
        shares[least].append(trunk)
        loads[least] += trunk.work
    return [share for share in shares if share]


def _place_rows(trunks: Sequence[Trunk], requests: Sequence[Request], context: int) -> None:
    """Give each request's rows to the state of its prefix; the context's end also ends a row."""
    states = {trunk.ids[: state.length]: state for trunk in trunks for state in trunk.states}
    for number, request in enumerate(requests):
        state = states[tuple(request.prefix)]
        budget = min(request.max_new_tokens, context - state.length)
        state.rows += [Row(number, index, budget) for index in range(request.n)]


def _check(number: int, request: Request, model: FusedModel) -> None:
    name = f"request {number}"
    length = len(request.prefix)
    if not length:
        raise ValueError(f"{name}: the prefix is empty; at least one token is needed")
    if request.n < 1:
        raise ValueError(f"{name}: n is {request.n}; it must be at least 1")
    if request.max_new_tokens < 1:
        raise ValueError(f"{name}: max_new_tokens is {request.max_new_tokens}; it must be at least 1")
    if not request.temperature >= 0:
        raise ValueError(f"{name}: temperature is {request.temperature}; it must be 0 (greedy) or more")
    if length >= model.context:
        raise ValueError(
            f"{name}: the prefix has {length} tokens; the model's context of {model.context} leaves no room"
        )
