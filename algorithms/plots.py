"""Pictures of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

_SERIES = (
    ("eval/sampled", "held-out, temperature 1", "tab:blue"),
    ("eval/greedy", "held-out, greedy", "tab:green"),
)


def draw_curve(lines: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw held-out accuracy and training reward against iterations, with 95 % intervals."""
    figure, axes = plt.subplots(figsize=(7, 4), dpi=120)
    rewards = [(line["iteration"], line["reward"]) for line in lines if "reward" in line]
    if rewards:
        axes.plot(*zip(*rewards, strict=True), color="0.7", lw=1, label="training reward")
    for key, label, colour in _SERIES:
        points = [
            (line["iteration"], line[key], line[f"{key}_low"], line[f"{key}_high"])
            for line in lines
            if key in line
        ]
        if points:
            x, y, low, high = zip(*points, strict=True)
            axes.plot(x, y, "o-", ms=3, color=colour, label=label)
            axes.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
    axes.set(xlabel="iteration", ylabel="accuracy", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(loc="best", frameon=False)
    figure.tight_layout()
    figure.savefig(file)
    plt.close(figure)


def draw_diagnosis(results: Mapping[str, Any], file: Path) -> None:
    """Draw the error of values by position in the response, and their calibration."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), dpi=110)
    for number, (name, row) in enumerate(results["values"].items()):
        colour = f"C{number}"
        positions = [p for p in row["by_position"] if p["count"] >= 5]
        _dots(left, positions, "position", "mae", colour, name)
        if name != "constant":
            _dots(right, row["calibration"], "predicted", "truth", colour, name)
    left.set(xlabel="step", ylabel="mean absolute error", ylim=(0, None))
    right.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--")
    right.set(xlabel="predicted value", ylabel="true value", xlim=(0, 1), ylim=(0, 1))
    for panel in (left, right):
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file)
    plt.close(figure)


def _dots(axes: Axes, points: Sequence[Mapping[str, float]], x: str, y: str, colour: str, label: str) -> None:
    axes.plot([p[x] for p in points], [p[y] for p in points], "o-", ms=3, color=colour, label=label)
