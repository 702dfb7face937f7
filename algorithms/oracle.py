"""Oracle credit: not a method but the measure of headroom.

Where exact knowledge of which step is right does not clearly beat group credit, no
estimator of step values can, and comparing them measures noise.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import TensorDict
from torch import Tensor

from algorithms.algorithm import Algorithm
from algorithms.estimators import (
    count_segments,
    geometric_values,
    spread_to_tokens,
    step_advantages,
    step_success_rate,
)


@dataclass(kw_only=True)
class Oracle(Algorithm):
    """Step values from the environment's own knowledge of which prefixes are right.

    V is 0 after a wrong step, and otherwise the iteration's step success rate to the power
    of the steps left.
    """

    @property
    def needs_oracle(self) -> bool:
        """The environment must implement `oracle`."""
        return True

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """One number a step, on all its tokens."""
        segments = count_segments(batch["step_id"])
        success = step_success_rate(batch["on_track"], segments, batch["reward"])
        values = geometric_values(batch["on_track"], batch["steps_left"], success)
        per_step = step_advantages(values, segments, batch["reward"])
        return spread_to_tokens(per_step, batch["step_id"]), spread_to_tokens(values, batch["step_id"])
