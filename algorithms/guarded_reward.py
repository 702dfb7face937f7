"""A reward whose faults are named and counted instead of ending or hanging the run."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from vineenv.env import RewardFunction, as_reward
from vineenv.errors import RunStoppedError
from vineenv.types import Problem, Reward

_ALL_BAD = 8  # responses of one call that end the run if grading each of them fails
_SLOW = 5  # responses in a row that take too long end the run


class GuardedReward:
    """Grades with another reward; a response whose grading fails is worth 0 and its status says so.

    Args:
        reward: what grades.
        seconds: how long it may take for one response; 0 sets no limit. The limit interrupts python
            code in the main thread; a reward that calls into C for longer must bound that itself.
        warn: told of the first fault of each kind.

    Attributes:
        errors: responses whose grading raised, so far.
        timeouts: responses whose grading took too long, so far.
    """

    def __init__(self, reward: RewardFunction, seconds: float, warn: Callable[[str], None]) -> None:
        self._reward, self._seconds, self._warn = reward, seconds, warn
        self.errors = self.timeouts = 0
        self._told: set[str] = set()
        self._slow = 0

    def __call__(self, response: str, problem: Problem) -> Reward:
        """Grade one response."""
        return self.grade_many([response], [problem])[0]

    def grade_many(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Reward]:
        """Grade responses in order.

        Raises:
            RunStoppedError: the reward failed on each of at least eight, or was too slow on five in a row.
        """
        rewards = self._together(responses, problems) or [
            self._one(response, problem) for response, problem in zip(responses, problems, strict=True)
        ]
        if len(rewards) >= _ALL_BAD and all(reward.status == "error" for reward in rewards):
            raise RunStoppedError(f"The reward {self._name} failed on all of {len(rewards)} responses.")
        return rewards

    def __getattr__(self, name: str) -> Any:
        if name == "_reward":
            raise AttributeError(name)
        return getattr(self._reward, name)

    @property
    def _name(self) -> str:
        inner = getattr(self._reward, "func", self._reward)  # of a partial
        return getattr(inner, "__qualname__", type(inner).__qualname__)

    def _together(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Reward] | None:
        """All in one call where the reward offers it; None if it does not, or fails."""
        many = getattr(self._reward, "grade_many", None)
        if many is None or len(responses) < 2:
            return None
        try:
            with _limited(self._seconds * len(responses)):
                return [_checked(value) for value in many(responses, problems)]
        except (Exception, _TooLong):  # one by one it will be seen which response it was
            return None

    def _one(self, response: str, problem: Problem) -> Reward:
        try:
            with _limited(self._seconds):
                reward = _checked(self._reward(response, problem))
            self._slow = 0
            return reward
        except _TooLong:
            self.timeouts += 1
            self._slow += 1
            if self._slow >= _SLOW:
                raise RunStoppedError(
                    f"The reward {self._name} took more than {self._seconds:g} s on {_SLOW} in a row."
                ) from None
            self._tell("timeout", f"took more than {self._seconds:g} s", problem, response)
            return Reward(0.0, "timeout")
        except Exception as error:
            self.errors += 1
            self._tell(type(error).__name__, f"raised {type(error).__name__}: {error}", problem, response)
            return Reward(0.0, "error")

    def _tell(self, kind: str, what: str, problem: Problem, response: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            self._warn(
                f"the reward {self._name} {what}, on problem {problem.id!r} and the response "
                f"{response[:200]!r}; it is worth 0, and so are others (reward/errors in the metrics)"
            )

    def state_dict(self) -> dict[str, int]:
        """The counts."""
        return {"reward/errors": self.errors, "reward/timeouts": self.timeouts}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from saved counts."""
        self.errors, self.timeouts = state["reward/errors"], state["reward/timeouts"]


class _TooLong(BaseException):  # so that a reward's own `except Exception` does not swallow it
    pass


def _checked(value: Reward | float) -> Reward:
    reward = as_reward(value)
    if not math.isfinite(reward.value):
        raise ValueError(f"a reward must be a finite number, not {reward.value}")
    return reward


@contextmanager
def _limited(seconds: float) -> Generator[None]:
    """Raise `_TooLong` in the block after some seconds, where the platform and the thread allow it.

    A reward that sets an alarm of its own replaces this one for the call.
    """
    main = threading.current_thread() is threading.main_thread()
    if not seconds or not main or not hasattr(signal, "setitimer") or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def ring(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
