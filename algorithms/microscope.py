"""What the microscope shows: trajectories in steps, with values, vines and the credit of several methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict

from algorithms.algorithm import Algorithm
from algorithms.models import Critic
from algorithms.stats import Share
from vineenv.collector import ask_oracle
from vineenv.engines.base import Engine
from vineenv.env import ReasoningEnv
from vineenv.errors import UsageError
from vineenv.rollout import Sampling, derive_seed, rollout
from vineenv.rows import build_rows, pad_states
from vineenv.types import Problem, State, Trajectory
from vineenv.vines import StateValues, Vines, grow_vines, prefix_state

Key = tuple[str, tuple[int, ...]]


class Specimens:
    """Responses to problems, with continuations at every step.

    Args:
        env: where they are played.
        engine: what samples.
        problems: each is answered `group` times.
        group: responses a problem.
        K: continuations a state.
        sampling: of both.
        seed: of both.

    Attributes:
        trajectories: B of them.
        values: the Monte-Carlo values of each.
        vines: by state, its continuations.
        batch: the trajectories as an algorithm sees them, `vineenv.rows`.
        policy_tokens: of the responses.
        vine_tokens: of the continuations.
    """

    def __init__(
        self,
        env: ReasoningEnv,
        engine: Engine,
        problems: Sequence[Problem],
        *,
        group: int,
        K: int,
        sampling: Sampling,
        seed: int,
    ) -> None:
        self.env = env
        self.vines: dict[Key, list[Trajectory]] = {}
        starts = [env.initial_state(problem) for problem in problems]
        played = rollout(env, engine, starts, group, sampling, derive_seed(seed, "responses"))
        self.trajectories = [t for row in played for t in row]
        self.policy_tokens = sum(len(t.state.written) for t in self.trajectories)
        self.values, self.vine_tokens = grow_vines(
            env,
            engine,
            self.trajectories,
            Vines(K=K),
            sampling,
            derive_seed(seed, "vines"),
            watch=self._keep,
        )
        groups = [i for i, row in enumerate(played) for _ in row]
        self.batch = build_rows(self.trajectories, [v.starts for v in self.values], groups)
        self.batch["mc_value"] = pad_states([v.means for v in self.values], 0.0, torch.float32)

    def _keep(self, state: State, continuations: Sequence[Trajectory]) -> None:
        self.vines[_key(state)] = list(continuations)

    def ask_oracle(self) -> bool:
        """Add what the environment knows of the steps; false if it knows nothing."""
        try:
            self.batch.update(ask_oracle(self.env, self.trajectories, [v.starts for v in self.values]))
        except UsageError:
            return False
        return True

    @torch.no_grad()
    def ask_critic(self, critic: Critic) -> None:
        """Add a critic's value of every state."""
        rows = [critic(part) for part in self.batch["input_ids"].split(64)]
        self.batch["state_value"] = torch.cat(rows)

    def credit(self, algorithm: Algorithm) -> list[list[float]]:
        """Mean advantage of each step's tokens, of every trajectory."""
        advantage, _ = algorithm.advantages(self.batch.copy())
        return [
            [_mean(advantage[b], row, step) for step in range(len(self.values[b].starts))]
            for b, row in enumerate(self.batch.unbind(0))
        ]


def describe(specimens: Specimens, credit: Mapping[str, list[list[float]]]) -> dict[str, Any]:
    """All that the page needs, as plain data.

    Args:
        specimens: what is shown.
        credit: by method, the advantage of each step of each trajectory.

    Returns:
        `methods`, `vines` (by number: text, status and reward of each continuation of a state) and
        `items`: problem, prompt, answer, reward, status, truncated, and `steps`, each with its text,
        value (mean, lower and upper end of its 95 % interval, count), advantages, the number of
        its state's vines, and `right` (whether all before and in it is right; null if not known).
    """
    numbers = {key: number for number, key in enumerate(specimens.vines)}
    env = specimens.env
    vines = [[_vine(env, key, t) for t in row] for key, row in specimens.vines.items()]
    items = [
        _item(specimens, b, {name: rows[b] for name, rows in credit.items()}, numbers)
        for b in range(len(specimens.trajectories))
    ]
    return {"methods": list(credit), "vines": vines, "items": items}


def _item(
    specimens: Specimens, b: int, credit: Mapping[str, list[float]], numbers: Mapping[Key, int]
) -> dict[str, Any]:
    env, trajectory, values = specimens.env, specimens.trajectories[b], specimens.values[b]
    state, reward = trajectory.state, trajectory.reward
    ends = [*values.starts[1:], len(state.response)]
    steps = []
    for i, (start, end) in enumerate(zip(values.starts, ends, strict=True)):
        before = prefix_state(env, trajectory, start)
        steps.append(
            {
                "text": env.decode(state.response[start:end]),
                "value": _interval(values, specimens.vines[_key(before)], i),
                "credit": [round(rows[i], 4) for rows in credit.values()],
                "vines": numbers[_key(before)],
                "right": _is_right(specimens.batch, b, i),
            }
        )
    return {
        "problem": state.problem.id,
        "prompt": env.decode(state.tokens[: state.prompt_length]),
        "answer": state.problem.answer,
        "reward": reward.value,
        "status": reward.status,
        "truncated": trajectory.truncated,
        "steps": steps,
    }


def _interval(values: StateValues, row: Sequence[Trajectory], i: int) -> list[float]:
    returns = [t.reward.value for t in row]
    if all(value in (0.0, 1.0) for value in returns):
        low, high = Share(int(sum(returns)), len(returns)).interval
    else:
        low, high = min(returns), max(returns)
    return [round(float(values.means[i]), 4), round(low, 4), round(high, 4), len(returns)]


def _is_right(batch: TensorDict, b: int, i: int) -> bool | None:
    """Whether the prefix after step i is right: the next state's, or the outcome after the last."""
    if "on_track" not in batch:
        return None
    last = int(batch["step_id"][b].max())
    return bool(batch["on_track"][b, i + 1]) if i < last else bool(batch["reward"][b] > 0)


def _vine(env: ReasoningEnv, key: Key, trajectory: Trajectory) -> list[Any]:
    text = env.decode(trajectory.state.tokens[len(key[1]) :])
    return [text, trajectory.reward.status, trajectory.reward.value]


def _key(state: State) -> Key:
    return state.problem.id, state.tokens


def _mean(advantage: torch.Tensor, row: TensorDict, step: int) -> float:
    kept = (row["step_id"] == step) & row["mask"]
    return float(advantage[kept].mean()) if bool(kept.any()) else 0.0
