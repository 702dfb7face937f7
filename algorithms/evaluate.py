"""Measure a model on an environment: `python -m algorithms.evaluate model.path=runs/x/policy env=math`.

Exit codes: 0 finished, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from algorithms.command import main_command
from algorithms.config import compose, own_keys
from algorithms.console import console
from algorithms.parts import build_env, check_env_fits, use_threads
from algorithms.stats import Mean, Share, majority_at_k, mean_share, pass_at_k
from algorithms.targets import build
from vineenv.engines.base import Engine
from vineenv.env import SPLITS, ReasoningEnv
from vineenv.errors import UsageError, unknown
from vineenv.ledger import Ledger
from vineenv.rollout import Sampling, rollout
from vineenv.types import Problem, Trajectory

Answered = list[tuple[Problem, list[Trajectory]]]


def answer_all(
    env: ReasoningEnv,
    engine: Engine,
    split: str,
    problems: int,
    samples: int,
    sampling: Sampling,
    seed: int,
    ledger: Ledger,
) -> Answered:
    """Answer the first `problems` of a split `samples` times each.

    Problems that cannot be used (`ReasoningEnv.defect`) are left out.
    """
    asked = [env.problem(split, i) for i in range(min(problems, env.size(split)))]
    usable = [problem for problem in asked if env.defect(problem) is None]
    with ledger.timed("evaluation", engine.stats):
        states = [env.initial_state(problem) for problem in usable]
        played = rollout(env, engine, states, samples, sampling, seed)
    ledger.add_tokens("evaluation", sum(len(t.state.written) for group in played for t in group))
    return list(zip(usable, played, strict=True))


def evaluate(
    env: ReasoningEnv,
    engine: Engine,
    split: str,
    problems: int,
    sampling: Sampling,
    seed: int,
    ledger: Ledger,
) -> Share:
    """Answer each problem once; return the share that is correct.

    A response is correct when its reward's status says so, whatever the reward's value.
    """
    answered = answer_all(env, engine, split, problems, 1, sampling, seed, ledger)
    return Share(sum(is_right(group[0]) for _, group in answered), len(answered))


def is_right(trajectory: Trajectory) -> bool:
    """Whether the reward calls the response correct."""
    return trajectory.reward.status == "correct"


@dataclasses.dataclass(kw_only=True)
class EvaluateConfig:
    """What is measured, beside the model, the environment, the reward and the engine.

    Each of `problems` of `split` is answered `samples` times; `ks` are the k of pass@k and maj@k. `out`
    is a JSON file for the results.
    """

    split: str
    problems: int
    samples: int
    temperature: float
    top_p: float
    ks: list[int]
    seed: int
    out: str | None = None
    threads: int = 0

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise unknown("split", self.split, SPLITS)
        if min(self.problems, self.samples) < 1 or self.temperature < 0 or not 0 < self.top_p <= 1:
            raise UsageError(
                f"problems={self.problems} and samples={self.samples} must be at least 1, "
                f"temperature={self.temperature} at least 0, top_p={self.top_p} above 0 and at most 1."
            )
        if bad := [k for k in self.ks if not 1 <= k <= self.samples]:
            raise UsageError(f"ks has {bad}: each k must lie between 1 and samples={self.samples}.")


def measure(answered: Answered, ks: Sequence[int], seed: int) -> dict[str, Mean]:
    """Mean accuracy a sample, pass@k and maj@k, each a mean over problems with its interval."""
    rng = np.random.default_rng(seed)
    scores: dict[str, list[float]] = defaultdict(list)
    for _, group in answered:
        right = [is_right(t) for t in group]
        answers = [t.reward.extracted for t in group]
        scores[f"avg@{len(group)}"].append(float(np.mean(right)))
        for k in ks:
            scores[f"pass@{k}"].append(pass_at_k(len(group), sum(right), k))
            if k > 1:
                scores[f"maj@{k}"].append(majority_at_k(answers, right, k, rng))
    return {name: mean_share(values) for name, values in scores.items()}


def run(arguments: list[str]) -> int:
    """Compose the configuration, answer, print, save."""
    config = compose("evaluate", EvaluateConfig, arguments)
    own = own_keys(EvaluateConfig, config)
    use_threads(own.threads)
    source = build(config.model)
    env = build_env(config, source.tokenizer())
    check_env_fits(env, getattr(source.config().get_text_config(), "max_position_embeddings", None))
    ledger, sampling = Ledger(), Sampling(own.temperature, own.top_p)
    engine = build(config.engine, source.load())
    answered = answer_all(env, engine, own.split, own.problems, own.samples, sampling, own.seed, ledger)
    if not answered:
        raise UsageError(f"No problem of the {own.split} split can be used.")
    results = report(answered, own)
    seconds, tokens = ledger.seconds["evaluation"], ledger.tokens["evaluation"]
    console.print(f"{tokens:,} tokens in {seconds:.1f} s")
    if own.out:
        Path(own.out).write_text(json.dumps(results, indent=1) + "\n")
        console.print(f"saved to {own.out}")
    return 0


def report(answered: Answered, own: EvaluateConfig) -> dict[str, Any]:
    """Print the tables and return what they show."""
    by_level: dict[str, Answered] = defaultdict(list)
    for problem, group in answered:
        by_level[str(problem.meta.get("level", ""))].append((problem, group))
    results: dict[str, Any] = {"all": measure(answered, own.ks, own.seed)}
    if len(by_level) > 1:
        results |= {f"level {name}": measure(by_level[name], own.ks, own.seed) for name in sorted(by_level)}
    table = Table(title=f"{own.split}, temperature {own.temperature}, % (95 % interval over problems)")
    table.add_column("", no_wrap=True)
    for name, measured in results.items():
        count = next(iter(measured.values())).count
        table.add_column(f"{name}\nn={count}", justify="right")
    for name in results["all"]:
        table.add_row(name, *(_cell(measured[name]) for measured in results.values()))
    console.print(table)
    statuses: dict[str, int] = defaultdict(int)
    for _, group in answered:
        for trajectory in group:
            statuses[trajectory.reward.status] += 1
    console.print("statuses: " + ", ".join(f"{name} {count:,}" for name, count in sorted(statuses.items())))
    plain = {name: {k: dataclasses.asdict(v) for k, v in row.items()} for name, row in results.items()}
    return {**plain, "statuses": dict(statuses)}


def _cell(mean: Mean) -> str:
    return f"{100 * mean.value:.1f} ({100 * mean.low:.1f} to {100 * mean.high:.1f})"


if __name__ == "__main__":
    sys.exit(main_command(run, "evaluate", EvaluateConfig, __doc__ or ""))
