"""The warm process: single-threaded, it has loaded what comparing needs and forks a worker when asked.

Runs as a process of its own. It never reads an answer; the workers do.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import sys
from typing import Any

from rewards.maths import algebra, verdict
from rewards.workers import messages

MEMORY_BYTES = 1 << 30
CPU_SECONDS = 3
_RECURSION = 3000


def serve(control_fd: int) -> None:
    """Fork and kill workers on request until the caller closes the control socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children: set[int] = set()
    with socket.socket(fileno=control_fd) as control, contextlib.suppress(OSError):
        messages.send(control, "ready")
        while True:
            if not algebra.is_loaded() and not select.select([control], [], [], 0.02)[0]:
                algebra.warm_up()
            _obey(messages.receive(control), control, children)
    for child in list(children):
        _kill(child, children)


def _obey(request: list[Any], control: socket.socket, children: set[int]) -> None:
    """Carry out one request, `fork` (warm or not) or `kill` (a worker), and reply."""
    if request[0] == "kill":
        _kill(request[1], children)
        messages.send(control, "killed")
        return
    if request[1] and not algebra.is_loaded():
        algebra.warm_up()
    messages.send(control, _fork(control, children))


def _fork(control: socket.socket, children: set[int]) -> tuple[int, bool]:
    """Fork a worker; return its id and whether it was born with the algebra system loaded."""
    _, fds, _, _ = socket.recv_fds(control, 1, 1)
    _reap(children)
    child = os.fork()
    if child == 0:
        control.close()
        try:
            work(socket.socket(fileno=fds[0]))
        finally:
            os._exit(0)
    os.close(fds[0])
    children.add(child)
    return child, algebra.is_loaded()


def _reap(children: set[int]) -> None:
    """Collect the workers that ended by themselves."""
    for child in list(children):
        if os.waitpid(child, os.WNOHANG)[0]:
            children.discard(child)


def _kill(child: int, children: set[int]) -> None:
    """Kill a worker that has not been collected yet, so that its id is still its own."""
    _reap(children)
    if child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        children.discard(child)


def work(channel: socket.socket) -> None:
    """Judge one pair of texts after another until the caller is gone."""
    _limit_resources()
    algebra.may_load = False
    while True:
        try:
            task = messages.receive(channel)
        except OSError:
            return
        _limit_cpu()
        messages.send(channel, _judge(task))


def _judge(task: list[Any]) -> str:
    """Return the verdict; whatever an answer breaks is the answer's fault."""
    try:
        return verdict.judge(*task)
    except algebra.NotLoaded:
        return messages.COLD
    except Exception:
        return "unparsed"


def _limit_resources() -> None:
    sys.setrecursionlimit(_RECURSION)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))


def _limit_cpu() -> None:
    """Let the kernel end a task that its caller no longer watches."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime) + CPU_SECONDS, hard))
