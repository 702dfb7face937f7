"""Exact numbers after a final mark."""

from __future__ import annotations

import re
from fractions import Fraction

from vineenv.types import Problem, Reward

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:/[1-9][0-9]*)?")


class NumberReward:
    """1 for a response whose text after the last `####` is exactly the reference number."""

    def __call__(self, response: str, problem: Problem) -> Reward:
        """Grade one response."""
        _, mark, tail = response.rpartition("####")
        answer = tail.partition("\n")[0].strip()
        if not mark or not answer:
            return Reward(0.0, "no_answer")
        if not _NUMBER.fullmatch(answer):
            return Reward(0.0, "unparsed", answer)
        right = Fraction(answer) == Fraction(problem.answer)
        return Reward(float(right), "correct" if right else "wrong", answer)
