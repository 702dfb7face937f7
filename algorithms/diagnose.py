"""Hold value estimates against ground truth: `python -m algorithms.diagnose run=runs/x`.

States are the step starts of fresh responses. Their truth is the mean return of rollouts of its
own; every prediction is made of others, with the same sampler for all. The credit of several methods
is then held against true step advantages. Exit codes: 0, 2, 130.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from algorithms.command import main_command
from algorithms.config import compose, load_group, own_keys
from algorithms.console import console, progress_bar
from algorithms.credit_quality import agreement, signal_to_noise, true_advantages
from algorithms.microscope import Specimens
from algorithms.models import Critic
from algorithms.opened import OpenedRun, check_run, load_algorithm, open_run
from algorithms.parts import use_threads
from algorithms.plots import draw_diagnosis
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
    problem give the group mean; of the first `ranked` states `candidates` next steps are ranked, 0 for
    none. A critic is compared where the run has one, or `critic_run`. The credit of `algos` is judged on
    `credit_problems` problems (0 for none), `group` responses each, with `K` vines a state.
    """

    run: str
    problems: int
    states: int
    truth: int
    ks: list[int]
    group: int
    candidates: int
    ranked: int
    credit_problems: int
    K: int
    algos: list[str]
    temperature: float
    seed: int
    critic_run: str | None = None
    threads: int = 0

    def __post_init__(self) -> None:
        if min(self.problems, self.states, self.group, self.ranked, *self.ks) < 1 or self.truth < 2:
            raise UsageError("problems, states, ranked, group and ks must be at least 1, truth at least 2.")
        if self.candidates == 1 or self.candidates < 0 or not self.temperature > 0:
            raise UsageError("candidates is 0 or from 2 on, temperature above 0.")
        if self.K < 1 or self.credit_problems < 0 or self.credit_problems in (1, 2):
            raise UsageError("K must be at least 1, credit_problems 0 or from 3 on.")
        for algo in self.algos:
            load_group("algo", algo)
        for folder in filter(None, (self.run, self.critic_run)):
            check_run(folder)


class Sampler:
    """Draws returns from states, with seeds that no two purposes share, and shows how far it is."""

    def __init__(self, env: ReasoningEnv, engine: Engine, temperature: float, seed: int) -> None:
        self.env, self.engine, self.sampling, self.seed = env, engine, Sampling(temperature), seed

    def play(self, states: Sequence[State], n: int, purpose: str) -> list[list[Trajectory]]:
        """`n` episodes from each state."""
        seed = derive_seed(self.seed, purpose)
        with progress_bar() as bar:
            task = bar.add_task(purpose, total=len(states) * n)
            return rollout(
                self.env,
                self.engine,
                states,
                n,
                self.sampling,
                seed,
                lambda done, total: bar.update(task, completed=done, total=total),
            )

    def values(self, states: Sequence[State], n: int, purpose: str) -> Floats:
        """[N] mean return of `n` episodes."""
        played = self.play(states, n, purpose)
        return np.array([np.mean([t.reward.value for t in row]) for row in played])


def run(arguments: list[str]) -> int:
    """Sample states, value them every way, print and save."""
    config = compose("diagnose", DiagnoseConfig, arguments)
    own = own_keys(DiagnoseConfig, config)
    use_threads(own.threads)
    opened = open_run(own.run, own.critic_run)
    sampler = Sampler(opened.env, opened.engine, own.temperature, own.seed)
    results = diagnose(sampler, own, opened.critic)
    results["credit"] = judge_credit(opened, sampler, own) if own.credit_problems else {}
    out = Path(own.run) / "diagnosis.json"
    out.write_text(json.dumps(results, indent=1) + "\n")
    draw_diagnosis(results, out.with_suffix(".png"))
    _print(results)
    console.print(f"saved to {out} and {out.with_suffix('.png')}")
    return 0


def diagnose(sampler: Sampler, own: DiagnoseConfig, critic: Critic | None = None) -> dict[str, Any]:
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
    if critic is not None:
        predictions["critic"] = critic_values(critic, states)
    return {
        "states": len(states),
        "truth_rollouts": own.truth,
        "mean_truth": float(truth.mean()),
        "values": {
            name: {**quality(p, truth, own.truth), "by_position": by_position(p, truth, position)}
            for name, p in predictions.items()
        },
        "ranking": rank_steps(sampler, states[: own.ranked], own, critic) if own.candidates else {},
    }


def rank_steps(
    sampler: Sampler, states: Sequence[State], own: DiagnoseConfig, critic: Critic | None = None
) -> dict[str, Any]:
    """Sample next steps of each state, and see whether K rollouts, or the critic, pick the best of them."""
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
    guesses = {f"MC K={k}": sampler.values(flat, k, f"rank {k}") for k in own.ks}
    if critic is not None:
        guesses["critic"] = critic_values(critic, flat)
    return {name: ranking(np.split(guess, cuts), truth) for name, guess in guesses.items()}


@torch.no_grad()
def critic_values(critic: Critic, states: Sequence[State]) -> Floats:
    """[N] a critic's values of states."""
    out = []
    for begin in range(0, len(states), 64):
        part = states[begin : begin + 64]
        ids = torch.zeros(len(part), max(len(state.tokens) for state in part), dtype=torch.int64)
        for row, state in zip(ids, part, strict=True):
            row[: len(state.tokens)] = torch.tensor(state.tokens)
        last = torch.tensor([len(state.tokens) - 1 for state in part])
        out.append(critic(ids)[torch.arange(len(part)), last].double().numpy())
    return np.concatenate(out)


def judge_credit(opened: OpenedRun, sampler: Sampler, own: DiagnoseConfig) -> dict[str, Any]:
    """Each method's credit against true step advantages, and the signal of its gradient."""
    problems = opened.problems("validation", own.credit_problems)
    specimens = Specimens(
        opened.env,
        opened.engine,
        problems,
        group=own.group,
        K=own.K,
        sampling=sampler.sampling,
        seed=own.seed,
    )
    states = [
        [prefix_state(opened.env, t, start) for start in v.starts]
        for t, v in zip(specimens.trajectories, specimens.values, strict=True)
    ]
    flat = sampler.values([state for row in states for state in row], own.truth, "truth of steps")
    values = np.split(flat, np.cumsum([len(row) for row in states])[:-1])
    truth, error = true_advantages(values, [t.reward.value for t in specimens.trajectories], own.truth)
    judged = {}
    for name, rows in opened.credits(specimens, own.algos).items():
        signal = signal_to_noise(opened.policy, specimens, rows, own.temperature)
        vines = specimens.vine_tokens if load_algorithm(name).vines is not None else 0
        judged[name] = {
            **agreement(np.concatenate(rows), truth, error),
            "signal": dataclasses.asdict(signal),
            "tokens": (specimens.policy_tokens + vines) / len(problems),
        }
    return judged


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
    if results["credit"]:
        table = Table(title="step advantages against the true ones; signal-to-noise of the gradient")
        for name in ("credit of", "correlation", "sign right", "SNR a problem", "tokens a problem"):
            table.add_column(name, justify="right" if name != "credit of" else "left")
        for name, row in results["credit"].items():
            agreed = ["" if row[key] is None else f"{row[key]:.2f}" for key in ("correlation", "sign")]
            signal = "{value:.3f} ({low:.3f} to {high:.3f})".format(**row["signal"])
            table.add_row(name, *agreed, signal, f"{row['tokens']:,.0f}")
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
