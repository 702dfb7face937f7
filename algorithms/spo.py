"""SPO-chain: Monte-Carlo credit between improbable tokens (Guo et al. 2025, arXiv 2505.23564)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from algorithms.vineppo import VinePPO
from vineenv.segment import LowProbability, Segmenter


@dataclass(kw_only=True)
class SPO(VinePPO):
    """A segment holds `cuts` improbable tokens, and these alone get its advantage.

    Attributes:
        threshold: a token sampled with less probability is a cut point.
        cuts: cut points a segment.
        masked: give the advantage to cut points only; false gives it to the whole segment.
    """

    threshold: float
    cuts: int
    masked: bool = True

    @property
    def segmenter(self) -> Segmenter:
        """A step ends after every `cuts`-th cut point."""
        return LowProbability(None, threshold=self.threshold, every=self.cuts)

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """One number a segment, on its cut points."""
        advantage, target = super().advantages(batch)
        if self.masked:
            improbable = batch["sample_log_prob"] < math.log(self.threshold)
            advantage = torch.where(improbable, advantage, torch.zeros(()))
        return advantage, target
