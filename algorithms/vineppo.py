"""VinePPO: step values by Monte-Carlo continuations (Kazemnejad et al. 2024, arXiv 2410.01679)."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import TensorDict
from torch import Tensor

from algorithms.algorithm import Algorithm
from algorithms.estimators import count_segments, spread_to_tokens, step_advantages
from vineenv.vines import Vines


@dataclass(kw_only=True)
class VinePPO(Algorithm):
    """Every token of a step gets V(state after the step) - V(state before it).

    Attributes:
        K, every, max_states, budget: see `vineenv.vines.Vines`.
    """

    K: int
    every: int
    max_states: int
    budget: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.vines  # checks its numbers now, before anything is loaded

    @property
    def vines(self) -> Vines:
        """Continuations at the prompt and at the start of every chosen step but the first."""
        return Vines(K=self.K, every=self.every, max_states=self.max_states, budget=self.budget)

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """One number a segment, on all its tokens."""
        segments = count_segments(batch["step_id"])
        per_segment = step_advantages(batch["mc_value"], segments, batch["reward"])
        target = spread_to_tokens(batch["mc_value"], batch["step_id"])
        return spread_to_tokens(per_segment, batch["step_id"]), target
