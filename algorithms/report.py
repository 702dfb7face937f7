"""The report of a comparison: Markdown, a picture, and one HTML file that needs no network."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from algorithms.comparison import AXES, Curve
from algorithms.stats import mean_share

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .7rem;border-bottom:1px solid #8884;text-align:right}
th:first-child,td:first-child{text-align:left}
img{max-width:100%;background:#fff} code{background:#8882;padding:.1rem .3rem}
:root{color-scheme:light dark}
"""
Table = tuple[str, list[str], list[list[str]]]


def write_report(out: Path, curves: Sequence[Curve], summary: dict[str, Any], command: str) -> None:
    """Write `report.md`, `curves.png` and `report.html` into a folder."""
    draw_curves(curves, out / "curves.png")
    tables = build_tables(summary)
    (out / "report.md").write_text(to_markdown(tables, command))
    (out / "report.html").write_text(to_html(tables, command, (out / "curves.png").read_bytes()))


def build_tables(summary: dict[str, Any]) -> list[Table]:
    """The tables of the report: title, head, rows."""
    return [_accuracy(summary), _cost(summary), _differences(summary), _time(summary)]


def _accuracy(summary: dict[str, Any]) -> Table:
    columns = ("start", "final", "greedy", "at_equal_tokens", "at_equal_seconds")
    rows = [[name, *(_share(m[key]) for key in columns)] for name, m in summary["methods"].items()]
    equal = f"{summary['equal_tokens'] / 1e6:.2f} M tokens", f"{summary['equal_seconds']:.0f} s"
    head = ["", "start", "end", "greedy, end", f"at {equal[0]}", f"at {equal[1]}"]
    return "Held-out accuracy, %, mean over seeds with Student's 95 % interval", head, rows


def _cost(summary: dict[str, Any]) -> Table:
    target = f"{100 * summary['target']:.1f} %"
    spent = ["", "iterations", "M tokens", "seconds", *(f"{axis} to {target}" for axis in AXES)]
    rows = [
        [
            name,
            str(m["iterations"]),
            f"{m['tokens']['value'] / 1e6:.2f}",
            f"{m['seconds']['value']:.0f}",
            *(_reached(m["to_target"][axis]) for axis in AXES),
            f"{m['kl']['value']:.3f}",
            f"{100 * m['train_minus_test']['value']:+.1f}",
        ]
        for name, m in summary["methods"].items()
    ]
    return "What it cost, evaluation left out", [*spent, "KL", "train - test, points"], rows


def _differences(summary: dict[str, Any]) -> Table:
    rows = [
        [
            f"{d['first']} - {d['second']}",
            _share(d["difference"], signed=True),
            f"{d['probability_of_improvement']:.2f}",
        ]
        for d in summary["differences"]
    ]
    head = ["", "difference", "chance of improvement"]
    return "Difference at the end, points, paired by seed", head, rows


def _time(summary: dict[str, Any]) -> Table:
    methods = summary["methods"]
    purposes = [key for key in next(iter(methods.values()))["time_split"] if key != "total"]
    rows = [
        [
            name,
            *(f"{m['time_split'].get(purpose, 0.0):.0f}" for purpose in purposes),
            f"{100 * m['unaccounted']:.1f} %",
        ]
        for name, m in methods.items()
    ]
    return "Seconds by purpose", ["", *purposes, "in no part"], rows


def to_markdown(tables: Sequence[Table], command: str) -> str:
    """The report as Markdown."""
    parts = ["# Comparison", f"    {command}", "![curves](curves.png)"]
    for title, head, rows in tables:
        lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        parts += [f"## {title}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def to_html(tables: Sequence[Table], command: str, picture: bytes) -> str:
    """The report as one HTML file; every text in it is escaped."""
    body = [f"<h1>Comparison</h1><p><code>{html.escape(command)}</code></p>"]
    encoded = base64.b64encode(picture).decode()
    body.append(f'<img alt="held-out accuracy of each method" src="data:image/png;base64,{encoded}">')
    for title, head, rows in tables:
        cells = "".join(f"<th scope=col>{html.escape(cell)}</th>" for cell in head)
        lines = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        body.append(
            f"<h2>{html.escape(title)}</h2><table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"
        )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Comparison</title>'
        f"<style>{_STYLE}</style><body>{''.join(body)}</body></html>\n"
    )


def draw_curves(curves: Sequence[Curve], file: Path) -> None:
    """Held-out accuracy against iterations, tokens and seconds, a line and a 95 % band a method."""
    figure, panels = plt.subplots(1, 3, figsize=(13, 4.2), dpi=110, sharey=True)
    names = list(dict.fromkeys(curve.method for curve in curves))
    for axis, panel in zip(AXES, panels, strict=True):
        for number, name in enumerate(names):
            rows = [curve for curve in curves if curve.method == name]
            points = min(len(row.accuracy) for row in rows)
            x = np.mean([getattr(row, axis)[:points] for row in rows], axis=0)
            means = [mean_share([row.accuracy[i] for row in rows]) for i in range(points)]
            colour = f"C{number}" if name != "oracle" else "0.5"
            panel.plot(
                x, [m.value for m in means], color=colour, label=name, ls="--" if name == "oracle" else "-"
            )
            if len(rows) > 1:
                low, high = [m.low for m in means], [m.high for m in means]
                panel.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
        panel.set_xlabel(axis if axis == "iterations" else f"{axis}, evaluation left out")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("held-out accuracy at temperature 1")
    panels[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file)
    plt.close(figure)


def _share(mean: dict[str, Any], *, signed: bool = False) -> str:
    form = "{:+.1f}" if signed else "{:.1f}"
    centre = form.format(100 * mean["value"])
    if mean["low"] is None:
        return centre
    return f"{centre} ({form.format(100 * mean['low'])} to {form.format(100 * mean['high'])})"


def _reached(target: dict[str, Any]) -> str:
    if target["mean"] is None:
        return "never"
    value = f"{target['mean']:,.0f}"
    return value if target["reached"] == target["of"] else f"{value} ({target['reached']} of {target['of']})"
