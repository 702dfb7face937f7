"""An event loop in a thread of its own, for callers that wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_CANCEL_S = 5.0


class LoopThread:
    """Runs coroutines for a thread that waits for them and may be interrupted while it does."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="sglang-client", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run_until_complete(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for `work`; whatever interrupts the wait cancels it. Named as asyncio's own."""
        done = threading.Event()

        async def tracked() -> Result:
            try:
                return await work
            finally:
                done.set()

        future = asyncio.run_coroutine_threadsafe(tracked(), self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            done.wait(_CANCEL_S)
            raise

    def close(self) -> None:
        """Cancel what still runs and end the thread."""

        async def leave() -> None:
            rest = asyncio.all_tasks(self.loop) - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.wait(rest, timeout=1.0) if rest else None
            self.loop.stop()

        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(lambda: self.loop.create_task(leave()))
        self._thread.join(_CANCEL_S)
