"""Pictures of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

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
