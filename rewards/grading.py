"""From a response and a reference to a Reward: find the answer, compare numerals, else ask a worker."""

from __future__ import annotations

import os
import threading
from fractions import Fraction

from rewards.maths import numerals
from rewards.styles import style_named
from rewards.workers.pool import Pool
from vineenv.types import Reward, RewardStatus

# An answer much longer than its reference is not worth reading.
MAX_REFERENCE = 1500
LONGER_BY = 400
LONGER_TIMES = 5
CACHE_SIZE = 65_536
WORKERS = 2
TIMEOUT_S = 1.0

_STATUSES: dict[str, RewardStatus] = {
    "correct": "correct",
    "wrong": "wrong",
    "unparsed": "unparsed",
    "gold_error": "gold_error",
    "timeout": "timeout",
}


class Grader:
    """Grades responses in one style, with a cache in front of a pool of workers.

    Numerals are compared in the calling thread, exactly and without algebra. Everything else is read and
    compared in a worker that can be killed.
    """

    def __init__(self, style: str, pool: Pool) -> None:
        self._style = style_named(style)
        self._pool = pool
        self._cache: dict[tuple[str, str], RewardStatus] = {}

    def grade(self, response: object, reference: object, tolerance: Fraction | int = 0) -> Reward:
        """Grade one response; anything that is not text has no answer, or is a gold error."""
        return self.settle(response, reference, tolerance) or self.ask(response, reference)

    def settle(self, response: object, reference: object, tolerance: Fraction | int = 0) -> Reward | None:
        """Return the Reward if it takes no worker, in microseconds; else None.

        A tolerance is how far apart two numerals may be; anything else is compared exactly.
        """
        if not isinstance(reference, str) or not reference.strip():
            return Reward(0.0, "gold_error")
        answer = self._style.find(response) if isinstance(response, str) else None
        if answer is None:
            return Reward(0.0, "no_answer")
        if tolerance and (near := _near(answer, reference, tolerance)):
            return _reward(near, answer)
        status = self._style.settle(answer, reference) or self._cache.get((answer, reference))
        if status is None and len(reference) > MAX_REFERENCE:
            status = "gold_error"
        elif status is None and len(answer) > min(LONGER_BY + LONGER_TIMES * len(reference), MAX_REFERENCE):
            status = "unparsed"
        return None if status is None else _reward(status, answer)

    def ask(self, response: object, reference: object) -> Reward:
        """Return the Reward of what `settle` left open, from a worker.

        A timeout is not remembered: it may be the machine's fault.
        """
        answer, gold = self._style.find(str(response)) or "", str(reference)
        status = _STATUSES[self._pool.judge(answer, gold, self._style.numerals_only)]
        if status != "timeout":
            self._cache[answer, gold] = status
            if len(self._cache) > CACHE_SIZE:
                self._cache.pop(next(iter(self._cache)), None)
        return _reward(status, answer)

    def fault(self, reference: object) -> str | None:
        """Return why a reference cannot be graded against, or None."""
        if not isinstance(reference, str) or not reference.strip():
            return "the reference is empty"
        if self._style.settle(reference, reference) == "correct":
            return None
        if len(reference) > MAX_REFERENCE:
            return f"the reference is longer than {MAX_REFERENCE} characters"
        verdict = self._pool.judge(reference, reference, self._style.numerals_only)
        return None if verdict == "correct" else f"the reference does not equal itself: {verdict}"


def _near(answer: str, reference: str, tolerance: Fraction | int) -> RewardStatus | None:
    gold, given = numerals.read(reference), numerals.read(answer)
    if gold is None or given is None:
        return None
    return "correct" if numerals.equal(gold, given, tolerance) else "wrong"


def _reward(status: RewardStatus, answer: str) -> Reward:
    return Reward(1.0 if status == "correct" else 0.0, status, answer)


_lock = threading.Lock()
_pools: dict[tuple[int, float], Pool] = {}
_graders: dict[str, Grader] = {}


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def shared_pool(workers: int = WORKERS, timeout_s: float = TIMEOUT_S) -> Pool:
    """Return the pool that everything with these settings shares; it starts on the first call."""
    with _lock:
        key = workers, timeout_s
        if key not in _pools:
            _pools[key] = Pool(workers, timeout_s)
        return _pools[key]


def grade(response: str, reference: str, style: str = "boxed") -> Reward:
    """Grade one response; see `rewards.grade`."""
    grader = _graders.get(style)
    if grader is None:
        grader = _graders.setdefault(style, Grader(style, shared_pool()))
    return grader.grade(response, reference)
