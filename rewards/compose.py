"""A weighted sum of rewards."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vineenv.types import Problem, Reward

RewardFunction = Callable[[str, Problem], Reward | float]


class Composed:
    """The weighted sum of several rewards; its status is that of the first, which should be correctness.

    A part is a reward function, a dotted name, or a mapping with `target` (a dotted name), `weight` (1 if
    absent) and
    the keyword arguments of the target. A target that is a class is called with them to build the reward; a
    function is the reward. A function may return a plain number.
    """

    def __init__(self, *, parts: Sequence[RewardFunction | str | Mapping[str, Any]]) -> None:
        if not parts:
            raise ValueError("Composed needs at least one part.")
        self._parts = [_built(part) for part in parts]

    def __call__(self, response: str, problem: Problem) -> Reward:
        """Grade one response by all parts; a gold error in any of them is worth 0 and says so."""
        rewards = [_as_reward(function(response, problem)) for function, _ in self._parts]
        return self._sum(rewards)

    def grade_many(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Reward]:
        """Grade responses in order; a part that grades many at a time does."""
        columns = [_graded(function, responses, problems) for function, _ in self._parts]
        return [self._sum(list(row)) for row in zip(*columns, strict=True)]

    def check(self, problem: Problem) -> str | None:
        """Return the first reason why a part cannot use the problem's reference, or None."""
        checks = (getattr(function, "check", None) for function, _ in self._parts)
        return next((reason for check in checks if check and (reason := check(problem))), None)

    def close(self) -> None:
        """Close the parts."""
        for function, _ in self._parts:
            if close := getattr(function, "close", None):
                close()

    def _sum(self, rewards: list[Reward]) -> Reward:
        if any(reward.status == "gold_error" for reward in rewards):
            return Reward(0.0, "gold_error", rewards[0].extracted)
        total = sum(weight * reward.value for (_, weight), reward in zip(self._parts, rewards, strict=True))
        return Reward(total, rewards[0].status, rewards[0].extracted)


def _graded(function: RewardFunction, responses: Sequence[str], problems: Sequence[Problem]) -> list[Reward]:
    many = getattr(function, "grade_many", None)
    if many is not None:
        return many(responses, problems)
    return [
        _as_reward(function(response, problem)) for response, problem in zip(responses, problems, strict=True)
    ]


def _as_reward(value: Reward | float) -> Reward:
    """Take a plain number for a reward; raises ValueError for one that nothing can be learned from."""
    if isinstance(value, Reward):
        return value
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"A reward function returned {number}; a reward is a finite number.")
    return Reward(number, "correct" if number > 0 else "wrong")


def _built(part: RewardFunction | str | Mapping[str, Any]) -> tuple[RewardFunction, float]:
    if isinstance(part, str):
        part = {"target": part}
    if not isinstance(part, Mapping):
        return part, 1.0
    arguments = {str(name): value for name, value in part.items()}
    if "target" not in arguments:
        raise ValueError(f"A part of Composed needs a target, got {sorted(arguments)}.")
    target, weight = _named(arguments.pop("target")), float(arguments.pop("weight", 1.0))
    if isinstance(target, type):
        return target(**arguments), weight
    if arguments:
        raise ValueError(f"{target} is a function, which takes no settings, got {sorted(arguments)}.")
    return target, weight


def _named(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"No reward {dotted!r}: {error}") from error
