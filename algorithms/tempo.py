"""TEMPO: credit from the prefix tree of a group (Tran et al. 2025, arXiv 2509.18314)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from algorithms.algorithm import Algorithm
from algorithms.estimators import prefix_values, tempo_advantages


@dataclass(kw_only=True)
class Tempo(Algorithm):
    """GRPO's credit, plus the change of the mean return where responses of a group part ways."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.need_group()

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """One number a token; it differs from GRPO's at branches."""
        tokens = torch.cat([batch["input_ids"][:, :1], batch["action"]], dim=1)
        values = prefix_values(tokens, batch["length"] + 1, batch["group"], batch["reward"])
        advantage = tempo_advantages(values, batch["mask"], batch["reward"], batch["group"])
        return advantage, torch.where(batch["mask"], values[:, :-1], torch.zeros(()))
