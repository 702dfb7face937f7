"""A small pool of workers, each with a wall deadline; usable from any thread, process or event loop."""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import Any

from rewards.workers import messages

START_SECONDS = 60.0
TASKS_PER_WORKER = 2000
# A worker forked before the server had loaded the algebra system is soon replaced by a warm one.
COLD_SECONDS = 1.0

_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from rewards.workers.server import serve; serve(int(sys.argv[1]))"
)
# Compiled number types would ignore the interpreter's limits on a hostile power.
_ENVIRONMENT = {"SYMPY_GROUND_TYPES": "python", "MPMATH_NOGMPY": "1", "PYTHONHASHSEED": "0"}


class _Worker:
    """One worker process as its caller sees it."""

    def __init__(self, process_id: int, channel: socket.socket, is_warm: bool) -> None:
        self.process_id = process_id
        self.channel = channel
        self.tasks_left = TASKS_PER_WORKER
        self.expires = math.inf if is_warm else time.monotonic() + COLD_SECONDS

    @property
    def has_served(self) -> bool:
        """Whether a fresh worker should take over."""
        return self.tasks_left <= 0 or time.monotonic() > self.expires


class _Server:
    """The warm process as its caller sees it; calls are made under the pool's lock."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[2])
        path = json.dumps([root, *(entry or str(Path.cwd()) for entry in sys.path)])
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _BOOTSTRAP, str(theirs.fileno()), path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )
        self.ready = False

    def ask(self, request: list[Any], *descriptors: int) -> Any:
        """Send a request and return the reply; the first call waits until the server is up."""
        deadline = time.monotonic() + START_SECONDS
        if not self.ready:
            self.ready = messages.receive(self.control, deadline) == "ready"
        messages.send(self.control, request)
        if descriptors:
            socket.send_fds(self.control, [b"f"], list(descriptors))
        return messages.receive(self.control, deadline)

    def close(self) -> None:
        """Let the server end, and its workers with it."""
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)


class Pool:
    """Judges pairs of texts in killable processes.

    The server starts when the pool is made, so that it is warm by the time a worker is needed. After a fork
    of the caller, the child's pool starts a server of its own.
    """

    def __init__(self, size: int = 2, timeout_s: float = 1.0) -> None:
        """Start the warm process.

        Args:
            size: how many workers at most.
            timeout_s: wall seconds that one comparison may take, counted from when its worker starts on it.
        """
        if size < 1 or timeout_s <= 0:
            raise ValueError(f"size and timeout_s must be positive, got {size} and {timeout_s}.")
        self.size = size
        self.timeout_s = timeout_s
        self._reset()
        self._server: _Server | None = _Server()
        _pools.add(self)

    def _reset(self) -> None:
        self._server = None
        self._closed = False
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self.size)
        self._idle: list[_Worker] = []
        self._all: weakref.WeakSet[_Worker] = weakref.WeakSet()

    def judge(self, answer: str, reference: str, numerals_only: bool = False) -> str:
        """Return the verdict of `rewards.maths.verdict.judge`, or `timeout`.

        Raises:
            RuntimeError: the pool is closed, or no worker can be started.
        """
        needs_warm = False
        with self._slots:
            for _ in range(3):
                worker = self._take(needs_warm)
                with self._returned(worker):
                    try:
                        verdict = self._ask(worker, [answer, reference, numerals_only])
                        if verdict != messages.COLD:
                            return verdict
                        needs_warm = True
                        self._discard(worker)
                    except TimeoutError:
                        self._discard(worker)
                        return "timeout"
                    except OSError:
                        # The worker died, of a limit that this task broke or an earlier one used up.
                        self._discard(worker)
        return "timeout"

    def _ask(self, worker: _Worker, task: list[Any]) -> str:
        worker.tasks_left -= 1
        messages.send(worker.channel, task)
        return messages.receive(worker.channel, time.monotonic() + self.timeout_s)

    @contextlib.contextmanager
    def _returned(self, worker: _Worker) -> Generator[None]:
        """Put the worker back; throw away one that was interrupted or has served long enough."""
        try:
            yield
        except BaseException:
            self._discard(worker)
            raise
        if worker.channel.fileno() < 0:
            return
        if worker.has_served:
            self._discard(worker)
            return
        with self._lock:
            self._idle.append(worker)

    def _take(self, needs_warm: bool) -> _Worker:
        with self._lock:
            if self._closed:
                raise RuntimeError("This pool of graders is closed.")
            if self._idle and not needs_warm:
                return self._idle.pop()
            for attempt in range(2):
                try:
                    return self._fork(needs_warm)
                except OSError as error:
                    if attempt:
                        raise RuntimeError(f"No grading worker could be started: {error}") from error
        raise AssertionError("unreachable")

    def _fork(self, needs_warm: bool) -> _Worker:
        if self._server is None:
            self._server = _Server()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process_id, is_warm = self._server.ask(["fork", needs_warm], theirs.fileno())
            worker = _Worker(process_id, ours, is_warm)
        except BaseException:
            ours.close()
            self._stop_server()
            raise
        self._all.add(worker)
        return worker

    def _discard(self, worker: _Worker) -> None:
        if worker.channel.fileno() < 0:
            return
        worker.channel.close()
        with self._lock:
            if self._server is not None:
                try:
                    self._server.ask(["kill", worker.process_id])
                except BaseException as error:
                    # Interrupted or not, the reply is lost, and with it the order of replies.
                    self._stop_server()
                    if not isinstance(error, OSError):
                        raise

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = None
        self._idle.clear()

    def close(self) -> None:
        """End all workers; a later `judge` raises."""
        with self._lock:
            self._closed = True
            for worker in self._idle:
                worker.channel.close()
            self._stop_server()

    def after_fork_in_child(self) -> None:
        """Forget the parent's processes: close our copies of its sockets and start afresh when needed."""
        for worker in list(self._all):
            worker.channel.close()
        if self._server is not None:
            self._server.control.close()
            self._server.process.returncode = 0
        closed = self._closed
        self._reset()
        self._closed = closed


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for pool in list(_pools):
        pool.after_fork_in_child()


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


os.register_at_fork(after_in_child=_forget_after_fork)
