"""VinePPO: step values by Monte-Carlo continuations (Kazemnejad et al. 2024, arXiv 2410.01679)."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import TensorDict
from torch import Tensor

from algorithms.algorithm import Algorithm
from algorithms.estimators import count_segments, smooth_values, spread_to_tokens, step_advantages
from vineenv.errors import UsageError
from vineenv.segment import Fixed, Segmenter
from vineenv.vines import Vines


@dataclass(kw_only=True)
class VinePPO(Algorithm):
    """Every token of a step gets V(state after the step) - V(state before it).

    Attributes:
        K, every, max_states, budget, prompt, pilot, stop_certain: see `vineenv.vines.Vines`.
        interval: a step is this many tokens; 0 takes the environment's steps.
        smooth: weight of a value's neighbours, see `estimators.smooth_values`; biased above 0.
    """

    K: int
    every: int
    max_states: int
    budget: str
    prompt: str = "own"
    pilot: int = 0
    stop_certain: bool = False
    interval: int = 0
    smooth: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.interval < 0 or not 0 <= self.smooth <= 1:
            raise UsageError(
                f"algo.interval={self.interval} must be at least 0, algo.smooth={self.smooth} from 0 to 1."
            )
        if self.prompt == "siblings":
            self.need_group()
        _ = self.vines  # checks its numbers now, before anything is loaded

    @property
    def vines(self) -> Vines:
        """Continuations at the prompt and at the start of every chosen step but the first."""
        return Vines(
            K=self.K,
            every=self.every,
            max_states=self.max_states,
            budget=self.budget,
            prompt=self.prompt,
            pilot=self.pilot,
            stop_certain=self.stop_certain,
            segmenter=self.segmenter,
        )

    @property
    def segmenter(self) -> Segmenter | None:
        """Where steps begin; None leaves it to the environment."""
        return Fixed(None, size=self.interval) if self.interval else None

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """One number a segment, on all its tokens."""
        segments = count_segments(batch["step_id"])
        values = smooth_values(batch["mc_value"], segments, self.smooth)
        per_segment = step_advantages(values, segments, batch["reward"])
        target = spread_to_tokens(values, batch["step_id"])
        return spread_to_tokens(per_segment, batch["step_id"]), target
