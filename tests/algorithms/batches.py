"""Batches of made-up episodes for tests of estimators and losses."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

COMMON: dict[str, Any] = {
    "prompts": 2, "group_size": 3, "temperature": 1.0, "epochs": 1, "minibatch": 6, "microbatch": 6,
    "lr": 1e-3, "warmup": 0, "max_grad_norm": 1e9, "clip": 0.2, "kl_coef": 0.0, "kl": "k3", "scale": "none",
    "reduction": "token",
}  # fmt: skip
CRITIC: dict[str, Any] = {**COMMON, "lam": 1.0, "critic_lr": 1e-2, "value_clip": 0.0}


def ragged_batch(rows: int = 6, width: int = 12, vocab: int = 20, seed: int = 0) -> TensorDict:
    """Right-padded rows with prompts of 2 to 3 tokens and responses of 3 or more, three to a group."""
    draw = torch.Generator().manual_seed(seed)
    length = torch.randint(6, width + 1, (rows,), generator=draw)
    first = torch.randint(1, 3, (rows,), generator=draw)
    position = torch.arange(width).expand(rows, width)
    mask = (position >= first[:, None]) & (position < length[:, None])
    tokens = torch.randint(2, vocab, (rows, width + 1), generator=draw)
    real = position < length[:, None]
    step = torch.where(mask, (position - first[:, None]) // 3, torch.tensor(-1))
    return TensorDict(
        {
            "input_ids": tokens[:, :-1] * real,
            "action": tokens[:, 1:] * real,
            "mask": mask,
            "sample_log_prob": -torch.rand(rows, width, generator=draw) * 3 * mask,
            "ref_log_prob": -torch.rand(rows, width, generator=draw) * 3 * mask,
            "advantage": torch.randn(rows, width, generator=draw) * mask,
            "state_value": torch.rand(rows, width, generator=draw) * mask,
            "value_target": torch.rand(rows, width, generator=draw) * mask,
            "step_id": step,
            "length": length,
            "reward": torch.randint(0, 2, (rows,), generator=draw).float(),
            "group": torch.arange(rows) // 3,
        },
        batch_size=[rows],
    )
