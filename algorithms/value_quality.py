"""How good predicted values and rankings are, against ground truth from rollouts of its own.

Shapes: N states; predictions and truth are [N]. The truth is a mean of rollouts itself, so the
squared error of a perfect prediction is its variance, not 0; that floor is reported, and taken off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_CLOSE = 0.05
_BINS = 10


def quality(predicted: Floats, truth: Floats, rollouts: int) -> dict[str, Any]:
    """Error, bias, correlation and calibration of values.

    Args:
        predicted: [N] values.
        truth: [N] means of `rollouts` independent 0/1 returns.
        rollouts: that number.

    Returns:
        `mae`, `bias`, `mse` (with the truth's own variance taken off), `floor` (that variance),
        `correlation`, `within` (share at most 0.05 off) and `calibration`.
    """
    error = predicted - truth
    floor = float(np.mean(truth * (1 - truth)) / max(rollouts - 1, 1))
    varies = predicted.std() > 0 and truth.std() > 0
    return {
        "mae": float(np.abs(error).mean()),
        "bias": float(error.mean()),
        "mse": float((error**2).mean()) - floor,
        "floor": floor,
        "correlation": float(np.corrcoef(predicted, truth)[0, 1]) if varies else None,
        "within": float((np.abs(error) <= _CLOSE + 1e-12).mean()),
        "calibration": calibration(predicted, truth),
    }


def calibration(predicted: Floats, truth: Floats) -> list[dict[str, float]]:
    """Mean prediction, mean truth and count of each tenth of the range of predictions [N] that holds any."""
    place = np.clip((predicted * _BINS).astype(int), 0, _BINS - 1)
    return [
        {
            "predicted": float(predicted[place == b].mean()),
            "truth": float(truth[place == b].mean()),
            "count": int((place == b).sum()),
        }
        for b in range(_BINS)
        if (place == b).any()
    ]


def by_position(predicted: Floats, truth: Floats, position: NDArray[np.int64]) -> list[dict[str, float]]:
    """Mean absolute error at each step index, with the number of states there."""
    return [
        {
            "position": int(p),
            "mae": float(np.abs(predicted - truth)[position == p].mean()),
            "count": int((position == p).sum()),
        }
        for p in np.unique(position)
    ]


def ranking(predicted: Sequence[Floats], truth: Sequence[Floats]) -> dict[str, Any]:
    """How often the candidate with the highest prediction is one of the best.

    Ties among the predictions count by their share of best ones, as a fair draw would.

    Args:
        predicted: for each state, values of its distinct candidates, two or more.
        truth: for each state, their true values.

    Returns:
        `top1`, `chance` (a random candidate), `states`, and both by the number of candidates.
    """
    rows: list[tuple[int, float, float]] = []
    for guess, true in zip(predicted, truth, strict=True):
        if len(true) < 2:
            continue
        best = true >= true.max() - 1e-12
        chosen = guess >= guess.max() - 1e-12
        rows.append((len(true), float(best[chosen].mean()), float(best.mean())))
    if not rows:
        return {"top1": None, "chance": None, "states": 0, "by_candidates": {}}
    sizes, hits, chances = (np.array(column) for column in zip(*rows, strict=True))
    return {
        "top1": float(hits.mean()),
        "chance": float(chances.mean()),
        "states": len(rows),
        "by_candidates": {
            int(n): {
                "top1": float(hits[sizes == n].mean()),
                "chance": float(chances[sizes == n].mean()),
                "states": int((sizes == n).sum()),
            }
            for n in np.unique(sizes)
        },
    }
