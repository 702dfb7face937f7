"""The reward for words of `envs.tree`: what the problem says that a word pays."""

from __future__ import annotations

from vineenv.types import Problem, Reward


def leaf(response: str, problem: Problem) -> Reward:
    """Look the response up in `problem.meta["pays"]`; what is not there pays nothing."""
    pays = problem.meta.get("pays")
    if not isinstance(pays, dict):
        return Reward(0.0, "gold_error")
    if response not in pays:
        return Reward(0.0, "no_answer")
    return Reward(pays[response], "correct" if pays[response] > 0 else "wrong", response)
