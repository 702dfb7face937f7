"""The reward for a right final answer."""

from __future__ import annotations

from collections.abc import Sequence

from rewards.grading import STYLES, grade
from vineenv.types import Problem, Reward


class AnswerReward:
    """1 for the right final answer, else 0, with the reason as status."""

    def __init__(self, *, style: str = "gsm8k") -> None:
        if style not in STYLES:
            raise ValueError(f"No style {style!r}: it is one of {', '.join(STYLES)}.")
        self.style = style

    def __call__(self, response: str, problem: Problem) -> Reward:
        """Grade one response."""
        return grade(response, problem.answer, self.style)

    def grade_many(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Reward]:
        """Grade responses in order."""
        return [self(response, problem) for response, problem in zip(responses, problems, strict=True)]
