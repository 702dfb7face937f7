"""Statistics of what is measured on samples and seeds, each with its interval.

Five seeds are few: a percentile bootstrap of their mean covers the truth in about 83 of 100
cases where it says 95 (`tests/algorithms/test_stats.py` measures it), so means over seeds have
Student's interval.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

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


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean of independent values with its 95 % Student interval; infinite for a single one."""

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f}, n={self.count})"


def mean_of(values: Sequence[float] | NDArray[np.float64]) -> Mean:
    """Mean of independent values, as the results of seeds, or the scores of problems."""
    n, centre = len(values), float(np.mean(values))
    if n < 2:
        return Mean(centre, -math.inf, math.inf, n)
    half = float(scipy_stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return Mean(centre, centre - half, centre + half, n)


def mean_share(scores: Sequence[float]) -> Mean:
    """Mean of scores between 0 and 1; where all are 0 or all are 1 the interval is that of a share."""
    mean = mean_of(scores)
    if min(scores) == max(scores) and mean.value in (0.0, 1.0):
        return Mean(mean.value, *Share(round(sum(scores)), len(scores)).interval, mean.count)
    return Mean(mean.value, max(mean.low, 0.0), min(mean.high, 1.0), mean.count)


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Mean:
    """Mean difference of two methods over the same seeds, in the same order."""
    return mean_of(np.subtract(first, second))


def probability_of_improvement(first: Sequence[float], second: Sequence[float]) -> float:
    """Chance that a run of the first beats one of the second, ties counting half (Agarwal et al. 2021)."""
    gaps = np.subtract.outer(first, second)
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


def area_under(x: Sequence[float], y: Sequence[float]) -> float:
    """Mean height of a curve over its range, by the trapezoidal rule."""
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def least_squares_slope(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Slope of the straight line that fits best; None where fewer than two x differ."""
    spread = np.subtract(x, np.mean(x)) if len(x) else np.zeros(0)
    if not spread.any():
        return None
    return float(spread @ np.asarray(y) / (spread @ spread))


def first_reaching(x: Sequence[float], y: Sequence[float], target: float) -> float | None:
    """Where a curve first reaches a height, between points in a straight line; None if it never does."""
    for i, height in enumerate(y):
        if height >= target:
            if i == 0:
                return float(x[0])
            share = (target - y[i - 1]) / (height - y[i - 1])
            return float(x[i - 1] + share * (x[i] - x[i - 1]))
    return None


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Chance that one of k samples is right, unbiased from n: 1 - C(n - c, k) / C(n, k).

    Chen et al. 2021 (arXiv 2107.03374), equation 1.
    """
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def majority_at_k(
    answers: Sequence[str | None], right: Sequence[bool], k: int, rng: np.random.Generator, draws: int = 200
) -> float:
    """Chance that the most frequent answer of k samples is right; a tie counts by its share of right ones.

    Args:
        answers: of n samples; None is no answer and gets no vote.
        right: whether each is.
        k: votes; all n are counted once, fewer are drawn without replacement.
        rng: draws the subsets.
        draws: how many subsets.
    """
    known = {answer: ok for answer, ok in zip(answers, right, strict=True) if answer is not None}
    everyone = np.arange(len(answers))
    subsets = [everyone] if k >= len(answers) else [rng.permutation(everyone)[:k] for _ in range(draws)]
    scores = []
    for subset in subsets:
        votes = Counter(answer for i in subset if (answer := answers[i]) is not None)
        most = max(votes.values(), default=0)
        winners = [answer for answer, count in votes.items() if count == most]
        scores.append(sum(known[w] for w in winners) / len(winners) if winners else 0.0)
    return float(np.mean(scores))
