"""Where to spend continuations: the same number everywhere, or more where the values are in doubt.

Choosing where to refine by the very returns that are then averaged biases the values. Here the
second stage is drawn afresh, and the two stages are joined by weights that do not depend on what
the first one found, so every value keeps the mean it should have:

    V = w pilot + (1 - w) second,   w = pilot continuations / K

whatever the allocation, as long as each state gets at least one continuation in each stage. Where
states stop because their pilot returns are all equal (`stop_certain`), that no longer holds: with
0/1 returns and n pilot continuations the bias is (1 - w) (p^n (1 - p) - (1 - p)^n p), towards the
nearer end, zero at p = 1/2 and at the ends themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# (which states, how many continuations of each, stage) -> their returns
Play = Callable[[Sequence[int], Sequence[int], int], list[Floats]]


def estimate(
    play: Play, states: int, K: int, pilot: int = 0, stop_certain: bool = False
) -> tuple[Floats, NDArray[np.int64]]:
    """Value all states with K continuations each, or K on the mean.

    Args:
        play: draws returns.
        states: N.
        K: continuations a state.
        pilot: those of the first stage; 0 makes one stage of it.
        stop_certain: leave out of the second stage whatever the first one found certain.

    Returns:
        [N] values and [N] how many continuations each had.
    """
    every = range(states)
    if not states:
        return np.zeros(0), np.zeros(0, np.int64)
    first = np.stack(play(every, [pilot or K] * states, 0))
    means = first.mean(axis=1)
    if not pilot:
        return means, np.full(states, K)
    open_ones = np.flatnonzero(first.std(axis=1) > 0) if stop_certain else np.arange(states)
    counts = np.full(states, pilot)
    if len(open_ones):
        more = share_out(first[open_ones], (K - pilot) * states)
        second = play(open_ones.tolist(), more.tolist(), 1)
        share = pilot / K
        means[open_ones] = share * means[open_ones] + (1 - share) * np.array([row.mean() for row in second])
        counts[open_ones] += more
    return means, counts


def share_out(pilot: Floats, total: int) -> NDArray[np.int64]:
    """Share `total` continuations out in proportion to the spread of pilot returns (Neyman, 1934).

    The spread is that of the returns with one success and one failure added, since a few equal
    returns do not prove that there is none.

    Args:
        pilot: [N, n] returns; their range is taken from all of them.
        total: at least N are given, one each.

    Returns:
        [N] counts, each at least 1, which add up to max(total, N).
    """
    states, _size = pilot.shape
    low, high = min(pilot.min(), 0.0), max(pilot.max(), 1.0)
    extra = np.tile([low, high], (states, 1))
    spread = np.concatenate([pilot, extra], axis=1).std(axis=1)
    left = max(total - states, 0)
    wanted = left * spread / spread.sum()
    counts = np.floor(wanted).astype(np.int64)
    order = np.argsort(counts - wanted, kind="stable")
    counts[order[: left - int(counts.sum())]] += 1
    return counts + 1
