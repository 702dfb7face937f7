"""Intervals for what is measured on samples."""

from __future__ import annotations

import dataclasses
import math

_Z = 1.959963984540054  # two-sided 95 % of a normal


@dataclasses.dataclass(frozen=True)
class Share:
    """A share of successes with its 95 % Wilson interval."""

    successes: int
    trials: int

    @property
    def value(self) -> float:
        """The share itself; nan when nothing was tried."""
        return self.successes / self.trials if self.trials else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson score interval (E. B. Wilson, 1927), never outside 0 to 1."""
        if not self.trials:
            return (0.0, 1.0)
        n, p = self.trials, self.value
        centre = p + _Z**2 / (2 * n)
        spread = _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        return ((centre - spread) / (1 + _Z**2 / n), (centre + spread) / (1 + _Z**2 / n))

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{100 * self.value:.1f} % (95 % interval {100 * low:.1f} to {100 * high:.1f}, n={self.trials})"
        )
