"""GRPO: returns normalised within the group (Shao et al. 2024, arXiv 2402.03300)."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import TensorDict
from torch import Tensor

from algorithms.algorithm import Algorithm
from algorithms.estimators import group_normalised


@dataclass(kw_only=True)
class GRPO(Algorithm):
    """Every token of a response gets (R_i - mean) / std of its group.

    Attributes:
        by_std: divide by the group's standard deviation; false is Dr. GRPO (arXiv 2503.20783).
    """

    by_std: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.need_group()

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """One number a response, on all its tokens."""
        per_response = group_normalised(batch["reward"], batch["group"], by_std=self.by_std)
        return per_response[:, None] * batch["mask"], batch["reward"][:, None] * batch["mask"]
