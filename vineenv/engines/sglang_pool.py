"""The servers of an engine: who is asked, what happens when one is lost, and which weights they have."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from torch import nn

from vineenv.engines.sglang_requests import weight_tags
from vineenv.engines.sglang_servers import LostServerError, Server
from vineenv.engines.sglang_weights import check_temperature, must, prove, push
from vineenv.errors import RunStoppedError, UsageError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0
_RELEASED = ("weights", "kv_cache")
_log = logging.getLogger(__name__)


class Room:
    """Tokens of a server's cache, taken and given back; who asks for more than there is gets all of it."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def take(self, tokens: int) -> AsyncGenerator[None]:
        """Hold `tokens` while the block runs."""
        taken = min(tokens, self._size)
        async with self._changed:
            await self._changed.wait_for(lambda: self._free >= taken)
            self._free -= taken
        try:
            yield
        finally:
            async with self._changed:
                self._free += taken
                self._changed.notify_all()


class Pool:
    """Servers that all serve the same weights.

    A server that was lost and came back has the weights it was started with, so it gets the current
    ones before it is asked again; every reply says which weights it was made with, and one made with
    others is asked again.

    Args:
        servers: at least one.
        patience: seconds that a lost server is waited for.
        tolerance: largest difference of a probe's log-probabilities, in nats.
        routed: replies come from any server, not from the one asked.
    """

    def __init__(
        self, servers: Sequence[Server], patience: float, tolerance: float, routed: bool = False
    ) -> None:
        self.servers = list(servers)
        self._patience, self._tolerance, self._routed = patience, tolerance, routed
        self._rooms: list[Room] = []
        self._locks = [asyncio.Lock() for _ in servers]
        self._suspects: set[int] = set()
        self._proved: set[int] = set()
        self._released = False
        self._model: nn.Module | None = None
        self._mark: tuple[int, ...] = ()
        self.tag = ""

    async def open(self, release_memory: bool) -> None:
        """Look at every server once.

        Raises:
            UsageError: one is not there, or cannot do what is asked of it.
        """
        for server in self.servers:
            try:
                facts = await self._patiently(server, server.facts)
            except RunStoppedError as error:
                raise UsageError(f"engine.urls: {error}") from error
            if int(facts.get("dp_size") or 1) > 1:
                raise UsageError(
                    f"{server.name} runs data-parallel replicas, whose weights SGLang cannot update "
                    "together: start a server for each and list them in engine.urls."
                )
            if release_memory and not facts.get("enable_memory_saver"):
                raise UsageError(
                    f"engine.release_memory=true: {server.name} was started without enable_memory_saver."
                )
            self._rooms.append(Room(int(facts.get("max_total_num_tokens") or 1 << 30)))

    def room(self, place: int) -> Room:
        """The cache of one server."""
        return self._rooms[place]

    async def ask(self, place: int, payload: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Ask the server at `place`, or another while that one is away.

        Raises:
            RunStoppedError: none answers for as long as the patience lasts, or the request is refused.
        """
        began, attempt = time.monotonic(), 0
        while True:
            at = (place + attempt) % len(self.servers)
            server = self.servers[at]
            try:
                await self._readied(at)
                replies = await server.generate(payload)
                if all(weight_tags(reply) == {self.tag} for reply in replies):
                    return replies
                reason = "it answered with other weights than the trainer's; was it restarted?"
            except LostServerError as error:
                reason = str(error)
            self._suspect(at, reason)
            attempt += 1
            await self._pause(server, attempt // len(self.servers), began, reason)

    async def sync(self, model: nn.Module, tag: str) -> None:
        """Serve `model` as `tag` from now on; return when every server is proved to do so."""
        self._model, self.tag = model, tag
        self._mark = _mark(model)
        self._suspects, self._proved = set(range(len(self.servers))), set()
        await asyncio.gather(*(self._synced(place) for place in range(len(self.servers))))
        self._released = False

    async def check_temperature(self) -> None:
        """Check every server's convention once."""
        assert self._model is not None
        for server in self.servers:
            await check_temperature(server, self._model, self._tolerance)

    async def release(self) -> None:
        """Give the accelerator's memory back until the next `sync`."""
        for server in self.servers:
            await must(server, "flush_cache", {"timeout_s": 60.0})
            await must(server, "release_memory_occupation", {"tags": list(_RELEASED[::-1])})
        self._released = True

    async def _synced(self, place: int) -> None:
        await self._patiently(self.servers[place], lambda: self._readied(place))

    async def _readied(self, place: int) -> None:
        """Make sure that a server under suspicion has the current weights."""
        while place in self._suspects:
            async with self._locks[place]:
                if place not in self._suspects:
                    return
                server, model = self.servers[place], self._model
                facts = await server.facts()
                assert model is not None
                if place not in self._proved or facts.get("weight_version") != self.tag:
                    if _mark(model) != self._mark:
                        raise RunStoppedError(
                            f"{server.name} was lost, and the trainer's weights have changed "
                            "since it had them."
                        )
                    resume = _RELEASED if self._released else ()
                    await push(server, model, self.tag, facts, resume)
                    await prove(server, model, self.tag, self._tolerance)
                    self._proved.add(place)
                self._suspects.discard(place)

    async def _patiently(self, server: Server, work: Any) -> Any:
        began, attempt = time.monotonic(), 0
        while True:
            try:
                return await work()
            except LostServerError as error:
                attempt += 1
                await self._pause(server, attempt, began, str(error))

    async def _pause(self, server: Server, attempt: int, began: float, reason: str) -> None:
        """Wait before asking again, twice as long each time, with jitter."""
        if time.monotonic() - began > self._patience:
            raise RunStoppedError(
                f"{server.name} has not answered for engine.patience={self._patience:g} s: {reason}"
            )
        pause = min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    def _suspect(self, place: int, reason: str) -> None:
        if place not in self._suspects:
            _log.warning("%s is lost (%s); trying again", self.servers[place].name, reason)
        self._suspects |= set(range(len(self.servers))) if self._routed else {place}


def _mark(model: nn.Module) -> tuple[int, ...]:
    """Changes whenever a weight is written to in place."""
    return tuple(parameter._version for parameter in model.parameters())
