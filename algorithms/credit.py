"""What an iteration's credit and values look like, before any scaling."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import Tensor

from algorithms.value_quality import calibration


def describe_credit(batch: TensorDict) -> dict[str, float]:
    """Rewards, advantages and, where there is a critic, how good its values are.

    Args:
        batch: an iteration after estimation, see `vineenv.rows`.
    """
    mask, raw = batch["mask"], batch["raw_advantage"]
    kept = raw[mask]
    low, middle, high = torch.quantile(kept, torch.tensor([0.05, 0.5, 0.95])).tolist()
    out = {
        "reward": float(batch["reward"].mean()),
        "truncated": float(batch["truncated"].float().mean()),
        "response_tokens": float(mask.sum(1).float().mean()),
        "advantage_rms": float(kept.square().mean().sqrt()),
        "advantage_nonzero": float((kept != 0).float().mean()),
        "equal_groups": equal_groups(batch),
        "advantage_p05": low,
        "advantage_p50": middle,
        "advantage_p95": high,
    }
    if "state_value" in batch:
        returns = batch["reward"][:, None].expand(mask.shape)[mask]
        values = batch["state_value"][mask]
        out["explained_variance"] = explained_variance(values, returns)
        out["calibration_error"] = calibration_error(values, returns)
    return out


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(R - V) / Var(R) over tokens [N]; 0 where all returns are equal.

    The values were computed before anything was learned from these returns.
    """
    spread = float(returns.var()) if len(returns) > 1 else 0.0
    return 1 - float((returns - values).var()) / spread if spread else 0.0


def calibration_error(values: Tensor, returns: Tensor) -> float:
    """Mean distance of value and return over ten bins of the value from 0 to 1, by their tokens [N]."""
    bins = calibration(values.double().numpy(force=True), returns.double().numpy(force=True))
    return sum(b["count"] * abs(b["predicted"] - b["truth"]) for b in bins) / len(values)


def equal_groups(batch: TensorDict) -> float:
    """Share of the groups of at least two responses whose rewards are all equal; 0 without any."""
    groups, rewards = batch["group"].tolist(), batch["reward"].tolist()
    by_group: dict[int, list[float]] = {}
    for group, reward in zip(groups, rewards, strict=True):
        by_group.setdefault(group, []).append(reward)
    several = [row for row in by_group.values() if len(row) > 1]
    return sum(len(set(row)) == 1 for row in several) / len(several) if several else 0.0
