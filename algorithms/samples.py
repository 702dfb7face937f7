"""Trajectories for people: steps with their values and advantages."""

from __future__ import annotations

from collections.abc import Sequence

from tensordict import TensorDict

from vineenv.env import ReasoningEnv
from vineenv.types import Trajectory


def show(env: ReasoningEnv, trajectory: Trajectory, row: TensorDict) -> str:
    """Write one trajectory as text, a line a segment.

    Args:
        env: turns ids into text.
        trajectory: the episode.
        row: its row of the batch, after estimation.
    """
    reward = trajectory.reward
    lines = [
        f"--- {trajectory.state.problem.id}: reward {reward.value:g} ({reward.status}), "
        f"reference {trajectory.state.problem.answer}",
        env.decode(trajectory.state.tokens[: trajectory.state.prompt_length]).rstrip("\n"),
    ]
    for start, end in _segments(row["step_id"].tolist()):
        tokens = trajectory.state.tokens[start + 1 : end + 1]
        text = env.decode(tokens).rstrip("\n").replace("\n", "⏎ ")
        lines.append(f"  {_value(row, start)}A {float(row['raw_advantage'][start]):+.3f}  {text}")
    return "\n".join(lines)


def _value(row: TensorDict, position: int) -> str:
    """The value of the state a segment starts from, where the algorithm has one."""
    if "mc_value" in row:
        return f"V {float(row['mc_value'][int(row['step_id'][position])]):.3f}  "
    if "state_value" in row:
        return f"V {float(row['state_value'][position]):.3f}  "
    return ""


def _segments(step_id: Sequence[int]) -> list[tuple[int, int]]:
    """Half-open position ranges of equal step ids, prompt and padding left out."""
    spans: list[tuple[int, int]] = []
    for position, step in enumerate(step_id):
        if step < 0:
            continue
        if spans and step_id[spans[-1][0]] == step:
            spans[-1] = (spans[-1][0], position + 1)
        else:
            spans.append((position, position + 1))
    return spans
