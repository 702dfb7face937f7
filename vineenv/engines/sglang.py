"""SGLang as an engine: the production path, whose radix cache makes a reset to a prefix cheap."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from vineenv.engines.base import EngineStats, Progress
from vineenv.engines.checks import check_request
from vineenv.engines.sglang_local import LocalServer
from vineenv.engines.sglang_loop import LoopThread
from vineenv.engines.sglang_pool import Pool
from vineenv.engines.sglang_requests import (
    Branch,
    cached_tokens,
    check_row,
    completion,
    payload,
    plan,
    warming,
)
from vineenv.engines.sglang_servers import HttpServer, Server
from vineenv.engines.sglang_weights import limits_of, tolerance_for
from vineenv.engines.trunks import deal
from vineenv.errors import RunStoppedError, UsageError
from vineenv.types import Completion, Request


class SGLangEngine:
    """Samples continuations with SGLang, in this process or on servers.

    Requests carry token ids both ways. Their seeds are not used: SGLang draws its own random numbers.

    Args:
        model: a Hugging Face causal language model, read and never changed.
        urls: of running servers; None starts SGLang in this process (its schedulers are children).
        router: URL that requests for tokens go to, where a router stands before `urls`.
        deadline: seconds that one call of `generate` or `load_weights` may take.
        patience: seconds that a lost server is waited for before the run stops.
        tolerance: largest difference, in nats, between a probe's log-probabilities and the trainer's;
            None: 1e-3 in float32, 0.1 in lower precision.
        release_memory: give the accelerator's memory back while the trainer learns.
        arguments: further arguments of `sglang.Engine`, as `mem_fraction_static`.

    Raises:
        UsageError: SGLang is not installed, a URL does not answer, a setting is out of range.
        RunStoppedError: it does not start, or does not report log-probabilities as expected.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        urls: list[str] | None = None,
        router: str | None = None,
        deadline: float = 3600.0,
        patience: float = 300.0,
        tolerance: float | None = None,
        release_memory: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        _check_settings(urls, router, deadline, patience, release_memory, arguments)
        self.stats = EngineStats()
        self._limits = limits_of(model)
        self._deadline, self._release_memory = deadline, release_memory
        self._run = f"run-{uuid.uuid4().hex[:8]}"
        self._thread = LoopThread()
        try:
            servers = self._servers(model, urls, router, arguments or {})
            allowed = tolerance_for(model) if tolerance is None else tolerance
            self._pool = Pool(servers, patience, allowed, routed=router is not None)
            self._within("start", self._pool.open(release_memory))
            self.load_weights(model, 0)
            self._within("start", self._pool.check_temperature())
        except BaseException:
            self.close()
            raise

    def _servers(
        self, model: nn.Module, urls: list[str] | None, router: str | None, arguments: Mapping[str, Any]
    ) -> list[Server]:
        if urls:
            return [HttpServer(url, router) for url in urls]
        saver = {"enable_memory_saver": True} if self._release_memory else {}
        return [LocalServer(model, self._thread, {**saver, **arguments})]

    def load_weights(self, model: nn.Module, version: int) -> None:
        """Serve `model` from now on.

        Raises:
            RunStoppedError: a step of SGLang's update did not work, an old cached prefix survived, or a
                probe's log-probabilities are not the trainer's.
        """
        self._within("load_weights", self._pool.sync(model, f"{self._run}-{version}"))
        self.version = version

    def release(self) -> None:
        """Give the accelerator's memory back until the next `load_weights`, if set up to."""
        if self._release_memory:
            self._within("release", self._pool.release())

    def generate(
        self, requests: Sequence[Request], progress: Progress | None = None
    ) -> list[list[Completion]]:
        """Return, for each request in order, its `n` completions.

        All requests are handed over at once. `progress(done, total)` is told the finished rows.

        Raises:
            ValueError: naming the request, for one that cannot be served.
            RunStoppedError: the deadline passed, or no server is left.
        """
        began = time.perf_counter()
        for number, request in enumerate(requests):
            check_request(number, request, self._limits, stop_strings=False)
        call = _Call(self._pool, requests, self._limits, progress)
        try:
            self._within("generate", call.run(), call)
        finally:
            self.stats.prompt_tokens += call.prompt_tokens
            self.stats.prefill_tokens += call.prefill_tokens
            self.stats.decoded_tokens += call.decoded_tokens
            self.stats.seconds += time.perf_counter() - began
        return call.completions

    def close(self) -> None:
        """Let go of the servers; those started here end."""
        pool = getattr(self, "_pool", None)
        for server in pool.servers if pool else ():
            with contextlib.suppress(Exception):
                self._thread.run_until_complete(server.close())
        self._thread.close()

    def _within(self, what: str, work: Any, call: _Call | None = None) -> Any:
        """Run `work` under the deadline."""

        async def limited() -> Any:
            async with asyncio.timeout(self._deadline):
                return await work

        try:
            return self._thread.run_until_complete(limited())
        except TimeoutError as error:
            state = f": {call.done} of {call.total} continuations were there" if call else ""
            raise RunStoppedError(
                f"SGLang did not finish {what} within engine.deadline={self._deadline:g} s{state}."
            ) from error


class _Call:
    """One call of `generate`."""

    def __init__(
        self, pool: Pool, requests: Sequence[Request], limits: Any, progress: Progress | None
    ) -> None:
        self._pool, self._requests, self._limits, self._progress = pool, requests, limits, progress
        self.completions: list[list[Completion]] = [[] for _ in requests]
        self.done, self.total = 0, sum(request.n for request in requests)
        self.prompt_tokens = self.prefill_tokens = self.decoded_tokens = 0

    async def run(self) -> None:
        """Hand everything over; return when all of it is there."""
        pool = self._pool
        branches = plan(self._requests, self._limits)
        shares = deal(branches, len(pool.servers))
        tasks = [
            asyncio.create_task(self._branch(place, branch))
            for place, share in enumerate(shares)
            for branch in sorted(share, key=lambda branch: branch.ids)
        ]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for server in pool.servers:
                with contextlib.suppress(Exception):
                    await server.abort()
            raise

    async def _branch(self, place: int, branch: Branch) -> None:
        """Put the longest prefix in the tree, then ask for the rows, longest prefix first."""
        async with self._pool.room(place).take(branch.work):
            if branch.rows > 1:
                (reply,) = await self._pool.ask(place, warming(branch.ids))
                self.prefill_tokens += len(branch.ids) - cached_tokens(reply)
            await asyncio.gather(*(self._request(place, number) for number in branch.requests))

    async def _request(self, place: int, number: int) -> None:
        request = self._requests[number]
        replies = await self._pool.ask(place, payload(request, self._limits))
        rows = [completion(reply) for reply in replies]
        for row in rows:
            check_row(number, request, row, self._limits)
        self.completions[number] = rows
        self.prompt_tokens += len(request.prefix) * request.n
        self.prefill_tokens += sum(len(request.prefix) - row.cached_tokens for row in rows)
        self.decoded_tokens += sum(len(row.ids) for row in rows)
        self.done += request.n
        if self._progress is not None:
            self._progress(self.done, self.total)


def _check_settings(
    urls: list[str] | None,
    router: str | None,
    deadline: float,
    patience: float,
    release_memory: bool,
    arguments: Mapping[str, Any] | None,
) -> None:
    for url in [*(urls or []), *([router] if router else [])]:
        if not str(url).startswith(("http://", "https://")):
            raise UsageError(f"engine.urls: {url!r} is no URL; write http://host:port.")
    if router and not urls:
        raise UsageError(
            "engine.router needs engine.urls too: a router passes no weights on, so they go to each server."
        )
    if urls and arguments:
        raise UsageError(
            "engine.arguments are for SGLang started here; with engine.urls give them to the servers."
        )
    for name, value in (("deadline", deadline), ("patience", patience)):
        if not value > 0:
            raise UsageError(f"engine.{name}={value} must be a positive number of seconds.")
    if release_memory and not urls:
        import torch

        if not torch.cuda.is_available():
            raise UsageError("engine.release_memory=true needs a CUDA device; there is none here.")
