"""REINFORCE (Williams 1992) with a choice of baselines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from algorithms.algorithm import Algorithm
from algorithms.estimators import batch_normalised, leave_one_out
from vineenv.errors import UsageError, unknown

BASELINES = ("none", "running_mean", "leave_one_out", "batch")


@dataclass(kw_only=True)
class Reinforce(Algorithm):
    """Every token of a response gets its return minus a baseline.

    Attributes:
        baseline: "running_mean" of the returns of earlier iterations, "leave_one_out" (RLOO), "batch"
            (mean and standard deviation of the iteration: REINFORCE++, arXiv 2501.03262), or "none".
        decay: of the running mean, an iteration.
    """

    baseline: str
    decay: float = 0.9
    mean: float | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baseline not in BASELINES:
            raise unknown("algo.baseline", self.baseline, BASELINES)
        if not 0 <= self.decay < 1:
            raise UsageError(f"algo.decay={self.decay} must lie from 0 to below 1.")
        if self.baseline == "leave_one_out":
            self.need_group()

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """One number a response, on all its tokens."""
        returns = batch["reward"]
        advantage = self._subtract(returns, batch["group"])[:, None] * batch["mask"]
        return advantage, returns[:, None] * batch["mask"]

    def _subtract(self, returns: Tensor, groups: Tensor) -> Tensor:
        if self.baseline == "leave_one_out":
            return leave_one_out(returns, groups)
        if self.baseline == "batch":
            return batch_normalised(returns)
        if self.baseline == "none":
            return returns
        # The mean of earlier iterations alone: with this one's in it, it would depend on the actions.
        before = self.mean if self.mean is not None else 0.0
        now = float(returns.mean())
        self.mean = now if self.mean is None else self.decay * self.mean + (1 - self.decay) * now
        return returns - torch.tensor(before, dtype=returns.dtype)

    def state_dict(self) -> dict[str, Any]:
        """What later iterations depend on."""
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.mean = state["mean"]
