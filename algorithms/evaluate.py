"""Held-out accuracy."""

from __future__ import annotations

from algorithms.stats import Share
from vineenv.engines.base import Engine
from vineenv.env import ReasoningEnv
from vineenv.ledger import Ledger
from vineenv.rollout import Sampling, rollout


def evaluate(
    env: ReasoningEnv,
    engine: Engine,
    split: str,
    problems: int,
    sampling: Sampling,
    seed: int,
    ledger: Ledger,
) -> Share:
    """Answer the first `problems` of a split once each; return the share that is correct.

    Problems that cannot be used (`ReasoningEnv.defect`) are left out of the count. A response is
    correct when its reward's status says so, whatever the reward's value.
    """
    asked = [env.problem(split, i) for i in range(min(problems, env.size(split)))]
    usable = [problem for problem in asked if env.defect(problem) is None]
    with ledger.timed("evaluation"):
        states = [env.initial_state(problem) for problem in usable]
        played = [group[0] for group in rollout(env, engine, states, 1, sampling, seed)]
    ledger.add_tokens("evaluation", sum(len(t.state.response) for t in played))
    return Share(sum(t.reward.status == "correct" for t in played), len(usable))
