"""Hold value estimates against ground truth: `python -m algorithms.diagnose run=runs/x`.

States are the step starts of fresh responses. Their truth is the mean return of rollouts of its
own; every prediction is made of others, with the same sampler for all. Exit codes: 0, 2, 130.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from rich.table import Table

from algorithms.command import main_command
from algorithms.config import compose, own_keys
from algorithms.console import console
from algorithms.parts import build_env, use_threads
from algorithms.plots import draw_diagnosis
from algorithms.targets import build
from algorithms.value_quality import by_position, quality, ranking
from vineenv.engines.base import Engine
from vineenv.env import ReasoningEnv
from vineenv.errors import UsageError
from vineenv.rollout import Sampling, derive_seed, rollout
from vineenv.types import State, Trajectory
from vineenv.vines import prefix_state

Floats = NDArray[np.float64]


@dataclasses.dataclass(kw_only=True)
class DiagnoseConfig:
    """What is looked at.

    `run` is a run folder, whose last policy and environment are used. One response to each of
    `problems` of the validation split gives the states, at most `states`. `truth` rollouts are
    their ground truth; `ks` are the sizes of the Monte-Carlo predictions; `group` responses to the
    problem give the group mean; `candidates` next steps of a state are ranked, 0 for none.
    """

    run: str
    problems: int
    states: int
    truth: int
    ks: list[int]
    group: int
    candidates: int
    temperature: float
    seed: int
    threads: int = 0

    def __post_init__(self) -> None:
        if min(self.problems, self.states, self.group, *self.ks) < 1 or self.truth < 2:
            raise UsageError("problems, states, group and ks must be at least 1, truth at least 2.")
        if self.candidates == 1 or self.candidates < 0 or not self.temperature > 0:
            raise UsageError("candidates is 0 or from 2 on, temperature above 0.")
        for name in ("config.yaml", "policy"):
            if not (Path(self.run) / name).exists():
                raise UsageError(f"run={self.run!r} has no {name}: it is not the folder of a finished run.")


class Sampler:
    """Draws returns from states, with seeds that no two purposes share."""

    def __init__(self, env: ReasoningEnv, engine: Engine, temperature: float, seed: int) -> None:
        self.env, self.engine, self.sampling, self.seed = env, engine, Sampling(temperature), seed

    def play(self, states: Sequence[State], n: int, purpose: str) -> list[list[Trajectory]]:
        """`n` episodes from each state."""
        return rollout(self.env, self.engine, states, n, self.sampling, derive_seed(self.seed, purpose))

    def values(self, states: Sequence[State], n: int, purpose: str) -> Floats:
        """[N] mean return of `n` episodes."""
        played = self.play(states, n, purpose)
        return np.array([np.mean([t.reward.value for t in row]) for row in played])


def run(arguments: list[str]) -> int:
    """Sample states, value them every way, print and save."""
    config = compose("diagnose", DiagnoseConfig, arguments)
    own = own_keys(DiagnoseConfig, config)
    use_threads(own.threads)
    env, engine = _parts(Path(own.run))
    sampler = Sampler(env, engine, own.temperature, own.seed)
    results = diagnose(sampler, own)
    out = Path(own.run) / "diagnosis.json"
    out.write_text(json.dumps(results, indent=1) + "\n")
    draw_diagnosis(results, out.with_suffix(".png"))
    _print(results)
    console.print(f"saved to {out} and {out.with_suffix('.png')}")
    return 0


def diagnose(sampler: Sampler, own: DiagnoseConfig) -> dict[str, Any]:
    """Values and rankings of a policy's own states, see the module."""
    env = sampler.env
    problems = [env.problem("validation", i) for i in range(min(own.problems, env.size("validation")))]
    starts = [env.initial_state(problem) for problem in problems]
    responses = [row[0] for row in sampler.play(starts, 1, "responses")]
    places = [
        (i, k, start) for i, t in enumerate(responses) for k, start in enumerate(env.step_starts(t.state))
    ]
    chosen = np.random.default_rng(own.seed).permutation(len(places))[: own.states]
    places = [places[i] for i in sorted(chosen)]
    states = [prefix_state(env, responses[i], start) for i, _, start in places]
    position = np.array([k for _, k, _ in places])
    truth = sampler.values(states, own.truth, "truth")
    group = sampler.values(starts, own.group, "group")
    predictions = {
        "constant": np.full(len(states), truth.mean()),
        "group mean": group[[i for i, *_ in places]],
    }
    predictions |= {f"MC K={k}": sampler.values(states, k, f"predict {k}") for k in own.ks}
    return {
        "states": len(states),
        "truth_rollouts": own.truth,
        "mean_truth": float(truth.mean()),
        "values": {
            name: {**quality(p, truth, own.truth), "by_position": by_position(p, truth, position)}
            for name, p in predictions.items()
        },
        "ranking": rank_steps(sampler, states, own) if own.candidates else {},
    }


def rank_steps(sampler: Sampler, states: Sequence[State], own: DiagnoseConfig) -> dict[str, Any]:
    """Sample next steps of each state, and see whether K rollouts pick the best of them."""
    env = sampler.env
    after: list[list[State]] = []
    for state, row in zip(states, sampler.play(states, own.candidates, "candidates"), strict=True):
        found: dict[tuple[int, ...], State] = {}
        for trajectory in row:
            begun = len(state.response)
            later = [s for s in env.step_starts(trajectory.state) if s > begun]
            if later:
                found.setdefault(
                    trajectory.state.response[: later[0]], prefix_state(env, trajectory, later[0])
                )
        after.append(list(found.values()))
    flat = [state for row in after for state in row]
    cuts = np.cumsum([len(row) for row in after])[:-1]
    truth = np.split(sampler.values(flat, own.truth, "truth of candidates"), cuts)
    return {f"MC K={k}": ranking(np.split(sampler.values(flat, k, f"rank {k}"), cuts), truth) for k in own.ks}


def _print(results: dict[str, Any]) -> None:
    table = Table(title=f"{results['states']} states, truth from {results['truth_rollouts']} rollouts each")
    for name in ("values", "mean error", "bias", "correlation", "within 0.05"):
        table.add_column(name, justify="right" if name != "values" else "left")
    for name, row in results["values"].items():
        correlation = "" if row["correlation"] is None else f"{row['correlation']:.2f}"
        table.add_row(
            name, f"{row['mae']:.3f}", f"{row['bias']:+.3f}", correlation, f"{100 * row['within']:.0f} %"
        )
    console.print(table)
    if results["ranking"]:
        table = Table(title="best of the candidate steps picked")
        for name in ("by", "top-1", "chance", "states"):
            table.add_column(name, justify="right" if name != "by" else "left")
        for name, row in results["ranking"].items():
            shares = [f"{100 * row[key]:.0f} %" if row["states"] else "" for key in ("top1", "chance")]
            table.add_row(name, *shares, str(row["states"]))
        console.print(table)


if __name__ == "__main__":
    sys.exit(main_command(run, "diagnose", DiagnoseConfig, __doc__ or ""))
