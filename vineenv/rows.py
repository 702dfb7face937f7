"""Trajectories as tensors: state-aligned rows, padded on the right.

Index t of a row is the state after token t; its action is token t+1. A row of a trajectory
with L tokens has L-1 positions.

    input_ids, action   [B, T] int64, 0 on padding
    mask                [B, T] bool, the action is a token that the policy wrote
    sample_log_prob     [B, T] float32, of the action when it was sampled
    step_id             [B, T] int64, which segment the action belongs to; -1 off the response
    length              [B]    int64, positions that are not padding
    reward              [B]    float32, the return of the trajectory
    truncated           [B]    bool
    group               [B]    int64, equal for responses to the same problem
    mc_value            [B, S] float32, value of the state at the start of each segment
    on_track            [B, S] bool, all steps before the segment are right (oracle only)
    steps_left          [B, S] int64, steps the rest needs (oracle only)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from vineenv.types import Trajectory

# Keys of shape [B, T]: what later stages add is named here, so that `trim` can tell T from S.
TOKEN_KEYS = frozenset(
    (
        "input_ids",
        "action",
        "mask",
        "sample_log_prob",
        "step_id",
        "advantage",
        "raw_advantage",
        "value_target",
        "state_value",
        "ref_log_prob",
        "weight",
        "share",
    )
)


def build_rows(
    trajectories: Sequence[Trajectory], starts: Sequence[Sequence[int]], groups: Sequence[int]
) -> TensorDict:
    """Return the padded batch of trajectories.

    Args:
        trajectories: B finished episodes.
        starts: for each, the response token indices at which its segments begin.
        groups: for each, a number shared by the responses to one problem.
    """
    longest = max(len(t.state.tokens) for t in trajectories) - 1
    batch, size = TensorDict({}, batch_size=[len(trajectories)]), (len(trajectories), longest)
    out = {
        "input_ids": np.zeros(size, np.int64),
        "action": np.zeros(size, np.int64),
        "mask": np.zeros(size, bool),
        "sample_log_prob": np.zeros(size, np.float32),
        "step_id": np.full(size, -1, np.int64),
    }
    for b, (trajectory, row_starts) in enumerate(zip(trajectories, starts, strict=True)):
        state = trajectory.state
        end, first = len(state.tokens) - 1, state.prompt_length - 1
        out["input_ids"][b, :end] = state.tokens[:-1]
        out["action"][b, :end] = state.tokens[1:]
        out["mask"][b, first:end] = True
        for left, right in state.foreign:
            out["mask"][b, left - 1 : right - 1] = False
        out["sample_log_prob"][b, first:end] = trajectory.logprobs
        marks = np.zeros(end - first, np.int64)
        marks[list(row_starts[1:])] = 1
        out["step_id"][b, first:end] = np.cumsum(marks)
    for key, value in out.items():
        batch[key] = torch.from_numpy(value)
    batch["length"] = torch.tensor([len(t.state.tokens) - 1 for t in trajectories])
    batch["reward"] = torch.tensor([t.reward.value for t in trajectories], dtype=torch.float32)
    batch["truncated"] = torch.tensor([t.truncated for t in trajectories])
    batch["group"] = torch.tensor(list(groups))
    return batch


def pad_states(
    values: Sequence[Sequence[float] | np.ndarray], fill: float | int | bool, dtype: torch.dtype
) -> Tensor:
    """Stack per-state numbers of ragged trajectories: B arrays of [S_b] -> [B, S]."""
    out = torch.full((len(values), max(len(v) for v in values)), fill, dtype=dtype)
    for row, value in zip(out, values, strict=True):
        row[: len(value)] = torch.as_tensor(value, dtype=dtype)
    return out


def trim(batch: TensorDict) -> TensorDict:
    """Cut token columns that are padding in every row; rows may come in pairs, [B, 2]."""
    longest = int(batch["length"].max())
    trimmed = batch.copy()
    for key, value in batch.items():
        if key in TOKEN_KEYS:
            trimmed[key] = value[..., :longest]
    return trimmed
