"""The reward for writing an answer where it can be found, right or wrong."""

from __future__ import annotations

from rewards.styles import style_named
from vineenv.types import Problem, Reward


class FormatReward:
    """1 if the response holds an answer in a style, else 0."""

    def __init__(self, *, style: str = "gsm8k") -> None:
        self.style = style
        self._find = style_named(style).find

    def __call__(self, response: str, problem: Problem) -> Reward:
        """Look for an answer."""
        answer = self._find(response) if isinstance(response, str) else None
        return Reward(0.0, "no_answer") if answer is None else Reward(1.0, "correct", answer)
