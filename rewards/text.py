"""The reward for an answer that is, word for word, the reference."""

from __future__ import annotations

from rewards.extract import after_reasoning
from vineenv.types import Problem, Reward


class TextReward:
    """1 if what follows the last mark is the reference, up to blanks; else 0. Upper case matters."""

    def __init__(self, *, mark: str = "####") -> None:
        if not mark:
            raise ValueError("reward.mark must not be empty")
        self.mark = mark

    def __call__(self, response: str, problem: Problem) -> Reward:
        """Compare the rest of the response, after the last mark."""
        if not problem.answer.strip():
            return Reward(0.0, "gold_error")
        _, mark, answer = after_reasoning(response).rpartition(self.mark)
        if not mark or not answer.strip():
            return Reward(0.0, "no_answer")
        right = answer.split() == problem.answer.split()
        return Reward(float(right), "correct" if right else "wrong", answer.strip())

    def check(self, problem: Problem) -> str | None:
        """Return why a reference cannot be graded against, or None."""
        return None if problem.answer.strip() else "the reference is empty"
