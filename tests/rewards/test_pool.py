import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from rewards.maths import algebra
from rewards.workers import messages, pool, server
from rewards.workers.pool import Pool

# Reading this takes a worker longer than any deadline below; nothing in it trips a limit of the parser.
SLOW = ",".join(f"x^{{{n}}}+{n}" for n in range(2, 90)), ",".join(f"{n}+x^{{{n}}}" for n in range(89, 1, -1))


@pytest.fixture
def small_pool():
    made = Pool(size=1, timeout_s=1.0)
    yield made
    made.close()


def test_a_task_past_its_deadline_is_a_timeout_and_its_worker_is_replaced(small_pool: Pool) -> None:
    assert small_pool.judge("x+1", "1+x") == "correct"
    worker = small_pool._idle[0].process_id
    small_pool.timeout_s = 0.001
    assert small_pool.judge(*SLOW) == "timeout"
    assert not Path(f"/proc/{worker}").exists()
    small_pool.timeout_s = 1.0
    assert small_pool.judge("x+1", "1+x") == "correct"
    assert small_pool._idle[0].process_id != worker


def test_a_stopped_worker_is_killed_after_the_deadline(small_pool: Pool) -> None:
    assert small_pool.judge("x+1", "1+x") == "correct"
    os.kill(small_pool._idle[0].process_id, signal.SIGSTOP)
    start = time.monotonic()
    assert small_pool.judge("x+2", "2+x") == "timeout"
    assert 0.9 < time.monotonic() - start < 1.5


def test_waiting_in_the_queue_does_not_count(small_pool: Pool) -> None:
    assert small_pool.judge("x+1", "1+x") == "correct"
    os.kill(small_pool._idle[0].process_id, signal.SIGSTOP)
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(small_pool.judge(f"x+{n}", f"{n}+x")))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert results == ["timeout", "correct", "correct", "correct"]


def test_a_dead_worker_or_server_is_replaced(small_pool: Pool) -> None:
    assert small_pool.judge("x+1", "1+x") == "correct"
    os.kill(small_pool._idle[0].process_id, signal.SIGKILL)
    assert small_pool.judge("x+2", "2+x") == "correct"
    assert small_pool._server is not None
    small_pool._server.process.kill()
    os.kill(small_pool._idle[0].process_id, signal.SIGKILL)
    assert small_pool.judge("x+3", "3+x") == "correct"


def test_a_worker_is_replaced_after_enough_tasks(small_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "TASKS_PER_WORKER", 2)
    small_pool.judge("x+1", "1+x")
    worker = small_pool._idle[0].process_id
    small_pool.judge("x+2", "2+x")
    assert small_pool._idle == []
    small_pool.judge("x+3", "3+x")
    assert small_pool._idle[0].process_id != worker


def test_an_interrupted_caller_throws_its_worker_away(
    small_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pool.judge("x+1", "1+x")
    worker = small_pool._idle[0].process_id

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(messages, "receive", interrupt)
        small_pool.judge("x+2", "x+3")
    assert not Path(f"/proc/{worker}").exists()
    assert small_pool.judge("x+2", "2+x") == "correct"


def test_the_callers_alarm_is_left_alone(small_pool: Pool) -> None:
    signal.setitimer(signal.ITIMER_REAL, 100)
    try:
        small_pool.judge(*SLOW)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 90
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_a_worker_has_limits(small_pool: Pool) -> None:
    small_pool.judge("x+1", "1+x")
    limits = Path(f"/proc/{small_pool._idle[0].process_id}/limits").read_text()
    values = {line[:25].strip(): line[25:].split() for line in limits.splitlines()}
    assert int(values["Max address space"][0]) == 1 << 30
    assert int(values["Max cpu time"][0]) < 60
    assert values["Max file size"][0] == "0"


def test_a_cold_worker_gives_back_a_task_that_needs_algebra(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ["y=1/x", "xy=1", False]
    assert server._judge(task) == "correct"
    monkeypatch.setattr(algebra, "is_loaded", lambda: False)
    monkeypatch.setattr(algebra, "may_load", False)
    assert server._judge(task) == messages.COLD


def test_a_cold_worker_is_replaced_by_a_warm_one(small_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pool.judge("x+1", "1+x")
    cold, ask = small_pool._idle[0], small_pool._ask
    monkeypatch.setattr(
        small_pool, "_ask", lambda worker, task: messages.COLD if worker is cold else ask(worker, task)
    )
    assert small_pool.judge("y=1/x", "xy=1") == "correct"
    assert small_pool._idle[0] is not cold
    assert small_pool._idle[0].expires == float("inf")
    assert not Path(f"/proc/{cold.process_id}").exists()


def test_lone_surrogates_travel(small_pool: Pool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.send(ours, ["\ud83d", "½"])
        assert messages.receive(theirs) == ["\ud83d", "½"]
    assert small_pool.judge("\ud83d", "5") == "unparsed"


def test_a_closed_pool_says_so(small_pool: Pool) -> None:
    small_pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        small_pool.judge("x", "y")


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"got 0 and 1\.0"):
        Pool(size=0)
