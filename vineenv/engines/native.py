"""The embedded engine: vines decoded in the trainer's process, prefixes shared."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import nn

from vineenv.engines.base import EngineStats, Progress
from vineenv.engines.budget import kv_budget as budget_bytes
from vineenv.engines.checks import Limits, check_request
from vineenv.engines.fallback import FallbackModel, run_fallback
from vineenv.engines.rows import Decode, Finished
from vineenv.engines.trunks import Row, Trunk, computed_tokens, deal, find_trunks
from vineenv.engines.weights import FusedModel, UnsupportedModelError, fuse
from vineenv.engines.worker import Job, Worker
from vineenv.types import Completion, Request

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_MAX_WORKERS = 4
_WIDE = 1024


class NativeEngine:
    """Samples continuations on the CPU or one CUDA device with its own copy of the weights.

    Args:
        model: a Hugging Face causal language model; it is read, never changed.
        kv_budget: memory for keys and values, in bytes or as text ("1GiB"); None takes 40 % of what is
            free. A workload larger than it runs in waves.
        dtype: "float32", "bfloat16", or "auto": float32 on a CPU, the model's own on CUDA.
        max_rows: rows that a worker decodes at once.
        workers: threads that decode on a CPU, each its share of the prefixes; None: as many as torch's
            threads, at most 4. Two single-threaded workers beat one with two threads, because
            no operation waits for a core that another process holds.
        decode: token ids to text; needed only by requests with stop strings.

    Raises:
        ValueError: for an unknown `dtype` or a size that is none.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        kv_budget: str | int | None = None,
        dtype: str = "auto",
        max_rows: int | None = None,
        workers: int | None = None,
        decode: Decode | None = None,
    ) -> None:
        if dtype not in ("auto", *_DTYPES):
            raise ValueError(f"dtype: {dtype!r} is unknown; use auto, float32 or bfloat16")
        self.stats = EngineStats()
        self._kv_budget = kv_budget
        self._dtype = dtype
        self._max_rows = max_rows
        self._workers = workers
        self._decode = decode
        self.load_weights(model, 0)
        budget_bytes(kv_budget, self._model.device)

    def load_weights(self, model: nn.Module, version: int) -> None:
        """Copy `model`'s weights and serve them from now on.

        No key or value outlives a call of `generate`, so none of the old weights can survive.
        """
        first = next(model.parameters())
        dtype = _DTYPES.get(self._dtype, first.dtype if first.is_cuda else torch.float32)
        self._model: FusedModel | FallbackModel
        try:
            self._model = fuse(model, dtype)
        except UnsupportedModelError as error:
            warnings.warn(
                f"native engine: {error} is not supported by the fused decoder; "
                "using the model's own forward pass, which is slower",
                stacklevel=2,
            )
            self._model = FallbackModel(model, dtype)
        self.version = version

    def release(self) -> None:
        """Nothing is kept between calls but the weights."""

    def generate(
        self, requests: Sequence[Request], progress: Progress | None = None
    ) -> list[list[Completion]]:
        """Return, for each request in order, its `n` completions.

        `progress(done, total)` is told the finished rows, from a worker's thread, one call at a time.

        Raises:
            ValueError: naming the request, for one that cannot be served, and for weights that give NaN.
        """
        began = time.perf_counter()
        limits = Limits(self._model.context, self._model.vocabulary)
        for number, request in enumerate(requests):
            check_request(number, request, limits, stop_strings=self._decode is not None)
        trunks = find_trunks(request.prefix for request in requests)
        _place_rows(trunks, requests, self._model.context)
        collected = _Collected(requests, trunks, progress)
        prefill = self._run(requests, trunks, collected)
        self.stats.prompt_tokens += sum(len(request.prefix) * request.n for request in requests)
        self.stats.prefill_tokens += prefill
        self.stats.decoded_tokens += collected.tokens
        self.stats.seconds += time.perf_counter() - began
        return collected.completions()

    def _run(self, requests: Sequence[Request], trunks: list[Trunk], report: Callable) -> int:
        """Decode all rows; return the prefix tokens computed."""
        if not trunks:
            return 0
        model = self._model
        budget = budget_bytes(self._kv_budget, model.device)
        heaviest = max(trunks, key=lambda trunk: 2 * len(trunk.ids) + trunk.budget)
        need = model.token_bytes * (2 * len(heaviest.ids) + heaviest.budget)
        if need > budget:
            raise ValueError(
                f"request {heaviest.states[0].rows[0].request}: its keys and values may take {need:,} bytes, "
                f"more than kv_budget ({budget:,})"
            )
        if isinstance(model, FallbackModel):
            job = Job(None, requests, report, self._max_rows or 64, self._decode, threading.Event())
            return run_fallback(model, job, trunks, budget)
        rows = self._max_rows or (768 if model.device.type == "cpu" else 4096)
        rows = max(1, min(rows, (1 << 25) // model.vocabulary))
        job = Job(model, requests, report, rows, self._decode, threading.Event())
        count = (
            1 if model.device.type != "cpu" else self._workers or min(torch.get_num_threads(), _MAX_WORKERS)
        )
        shares = deal(trunks, max(1, min(count, budget // need)))
        if model.device.type == "cpu":
            _run_threads(job, shares, budget // len(shares))
        else:
            Worker(job, budget).run(trunks)
        return sum(len(trunk.ids) for trunk in trunks)


class _Collected:
    """Completions by request and index, filled by the workers one report at a time."""

    def __init__(
        self, requests: Sequence[Request], trunks: Sequence[Trunk], progress: Progress | None
    ) -> None:
        self._rows: list[list[Completion | None]] = [[None] * request.n for request in requests]
        self._lengths = [len(request.prefix) for request in requests]
        self._charged = {key: cost for trunk in trunks for key, cost in computed_tokens(trunk).items()}
        self._progress = progress
        self._lock = threading.Lock()
        self._done, self._total = 0, sum(request.n for request in requests)
        self.tokens = 0

    def __call__(self, finished: list[Finished]) -> None:
        with self._lock:
            for item in finished:
                at = item.row.request, item.row.index
                cached = self._lengths[at[0]] - self._charged.get(at, 0)
                self._rows[at[0]][at[1]] = Completion(
                    tuple(item.ids), tuple(item.logprobs), item.reason, cached
                )
                self.tokens += len(item.ids)
            self._done += len(finished)
            if self._progress is not None:
                self._progress(self._done, self._total)

    def completions(self) -> list[list[Completion]]:
        """Return them all."""
        return [[completion for completion in row if completion is not None] for row in self._rows]


def _place_rows(trunks: Sequence[Trunk], requests: Sequence[Request], context: int) -> None:
    """Give each request's rows to the state of its prefix; the context's end also ends a row."""
    states = {trunk.ids[: state.length]: state for trunk in trunks for state in trunk.states}
    for number, request in enumerate(requests):
        state = states[tuple(request.prefix)]
        budget = min(request.max_new_tokens, context - state.length)
        state.rows += [Row(number, index, budget) for index in range(request.n)]


def _run_threads(job: Job, shares: Sequence[list[Trunk]], budget: int) -> None:
    """Run one worker a share, each in its own thread with its part of torch's threads.

    Torch's thread count is restored, whatever happens; the first error of a worker is raised.
    """
    threads = torch.get_num_threads()
    assert job.model is not None
    each = max(1, threads // len(shares)) if job.model.embed.shape[1] >= _WIDE else 1
    errors: list[BaseException] = []

    def work(share: list[Trunk]) -> None:
        torch.set_num_threads(each)
        try:
            Worker(job, budget).run(share)
        except BaseException as error:
            errors.append(error)
            job.cancel.set()

    pool = [threading.Thread(target=work, args=(share,), daemon=True) for share in shares]
    try:
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
    finally:
        job.cancel.set()
        for thread in pool:
            if thread.ident is not None:
                thread.join()  # a thread still inside torch when the interpreter ends aborts the process
        torch.set_num_threads(threads)
    if errors:
        raise errors[0]
