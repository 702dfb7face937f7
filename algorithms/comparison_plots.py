"""The picture of a comparison: eight panels, a colour a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from algorithms.comparison import AXES, Curve, group_by_method
from algorithms.contenders import ORACLE, split_name
from algorithms.stats import mean_share

_LABELS = {
    "iterations": "iterations",
    "tokens": "tokens",
    "seconds": "seconds",
    "flops": "floating-point operations",
    "kl": "KL to the start, nats a token",
    "reward": "training reward",
}


def draw_comparison(curves: Sequence[Curve], summary: Mapping[str, Any], file: Path) -> None:
    """Draw accuracy against what was spent, KL and training reward; seconds by purpose; pass@k and maj@k."""
    figure, panels = plt.subplots(2, 4, figsize=(17, 8), dpi=110)
    methods = group_by_method(curves)
    colours = {name: _colour(name, number) for number, name in enumerate(methods)}
    for panel, key in zip(panels.flat, [*AXES, "kl", "reward"], strict=False):
        for name, rows in methods.items():
            _draw_curve(panel, key, rows, name, colours[name])
        free = ", evaluation left out" if key in AXES and key != "iterations" else ""
        panel.set(xlabel=f"{_LABELS[key]}{free}", ylabel="held-out accuracy")
        panel.grid(alpha=0.3)
    panels[0, 0].legend(frameon=False, fontsize="small")
    _draw_times(panels[1, 2], summary["methods"])
    _draw_passes(panels[1, 3], summary["methods"], colours)
    figure.tight_layout()
    figure.savefig(file)
    plt.close(figure)


def _colour(name: str, number: int) -> str:
    return "0.5" if split_name(name)[0] == ORACLE else f"C{number % 10}"


def _draw_curve(panel: Axes, key: str, rows: Sequence[Curve], name: str, colour: str) -> None:
    """Mean over seeds with its 95 % band, at the seeds' mean of what is on the x axis."""
    first = 1 if key == "reward" else 0  # there is no training reward before the first update
    points = range(first, min(len(row.accuracy) for row in rows))
    x = [np.mean([getattr(row, key)[i] for row in rows]) for i in points]
    means = [mean_share([row.accuracy[i] for row in rows]) for i in points]
    style = "--" if split_name(name)[0] == ORACLE else "-"
    panel.plot(x, [m.value for m in means], color=colour, label=name, ls=style)
    if len(rows) > 1:
        panel.fill_between(x, [m.low for m in means], [m.high for m in means], color=colour, alpha=0.15, lw=0)


def _draw_times(panel: Axes, methods: Mapping[str, Any]) -> None:
    """Seconds an iteration by purpose, stacked."""
    every = dict.fromkeys(purpose for method in methods.values() for purpose in method["time_split"])
    left = np.zeros(len(methods))
    for purpose in (p for p in every if p not in ("total", "evaluation")):
        widths = [m["time_split"].get(purpose, 0.0) / m["iterations"] for m in methods.values()]
        panel.barh(list(methods), widths, left=left, label=purpose)
        left += np.array(widths)
    panel.invert_yaxis()
    panel.set(xlabel="seconds an iteration, evaluation left out")
    panel.legend(frameon=False, fontsize="small")


def _draw_passes(panel: Axes, methods: Mapping[str, Any], colours: Mapping[str, str]) -> None:
    """pass@k (lines) and maj@k (dashes) of the policies at the end."""
    for name, method in methods.items():
        for kind, style in (("pass", "-"), ("maj", ":")):
            keys = [key for key in method.get("passes", {}) if key.startswith(f"{kind}@")]
            ks = [int(key.partition("@")[2]) for key in keys]
            panel.plot(ks, [method["passes"][key]["value"] for key in keys], style, color=colours[name])
    panel.set(xlabel="k", ylabel="pass@k (line), maj@k (dots)")
    panel.set_xscale("log", base=2)
    panel.grid(alpha=0.3)
