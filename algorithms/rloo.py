"""RLOO: the mean of a response's siblings is its baseline (Ahmadian et al. 2024, arXiv 2402.14740)."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import TensorDict
from torch import Tensor

from algorithms.algorithm import Algorithm
from algorithms.estimators import leave_one_out


@dataclass(kw_only=True)
class RLOO(Algorithm):
    """Every token of a response gets R_i minus the mean return of the other responses."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.need_group()

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """One number a response, on all its tokens."""
        advantage = leave_one_out(batch["reward"], batch["group"])[:, None] * batch["mask"]
        return advantage, batch["reward"][:, None] * batch["mask"]
