"""The report of a comparison: Markdown, a picture, and one HTML file that needs no network."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from algorithms.comparison import Curve
from algorithms.comparison_plots import draw_comparison

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .7rem;border-bottom:1px solid #8884;text-align:right}
th:first-child,td:first-child{text-align:left}
img{max-width:100%;background:#fff} code{background:#8882;padding:.1rem .3rem}
:root{color-scheme:light dark}
"""
_REACHED = ("iterations", "tokens", "seconds")
Table = tuple[str, list[str], list[list[str]]]


def write_report(out: Path, curves: Sequence[Curve], summary: dict[str, Any], command: str) -> None:
    """Write `report.md`, `curves.png` and `report.html` into a folder."""
    draw_comparison(curves, summary, out / "curves.png")
    tables = build_tables(summary)
    (out / "report.md").write_text(to_markdown(tables, command))
    (out / "report.html").write_text(to_html(tables, command, (out / "curves.png").read_bytes()))


def build_tables(summary: dict[str, Any]) -> list[Table]:
    """The tables of the report: title, head, rows."""
    tables = [_headroom(summary), _accuracy(summary), _differences(summary), _cost(summary)]
    tables += [_learning(summary), _time(summary)]
    if any("passes" in m for m in summary["methods"].values()):
        tables.append(_passes(summary))
    return tables


def _headroom(summary: dict[str, Any]) -> Table:
    rows = [
        [
            f"{row['oracle']} - {row['group']}",
            _share(row["difference"], signed=True),
            "yes" if row["significant"] else "no",
        ]
        for row in summary["headroom"]
    ]
    rows = rows or [["not measured", "", "unknown: it takes oracle, and rloo or grpo"]]
    title = "Headroom: exact step credit over the best group credit, points at the end"
    return title, ["", "difference", "enough to rank methods"], rows


def _accuracy(summary: dict[str, Any]) -> Table:
    columns = ("start", "final", "greedy", "at_equal_tokens", "at_equal_seconds")
    rows = [[name, *(_share(m[key]) for key in columns)] for name, m in summary["methods"].items()]
    equal = f"{summary['equal_tokens'] / 1e6:.2f} M tokens", f"{summary['equal_seconds']:.0f} s"
    head = ["", "start", "end", "greedy, end", f"at {equal[0]}", f"at {equal[1]}"]
    return "Held-out accuracy, %, mean over seeds with Student's 95 % interval", head, rows


def _cost(summary: dict[str, Any]) -> Table:
    target = f"{100 * summary['target']:.1f} %"
    spent = ["", "iterations", "M tokens", "seconds", "TFLOP", *(f"{axis} to {target}" for axis in _REACHED)]
    rows = [
        [
            name,
            str(m["iterations"]),
            f"{m['tokens']['value'] / 1e6:.2f}",
            f"{m['seconds']['value']:.0f}",
            f"{m['flops']['value'] / 1e12:.1f}",
            *(_reached(m["to_target"][axis]) for axis in _REACHED),
        ]
        for name, m in summary["methods"].items()
    ]
    return "What it cost, evaluation left out", spent, rows


def _learning(summary: dict[str, Any]) -> Table:
    rows = [
        [
            name,
            f"{100 * m['area_by_iterations']['value']:.1f}",
            f"{m['kl']['value']:.3f}",
            f"{100 * m['train_minus_test']['value']:+.1f}",
            _number(m["generalisation_slope"]),
        ]
        for name, m in summary["methods"].items()
    ]
    head = ["", "mean accuracy on the way, %", "KL, nats a token", "train - test, points", "slope"]
    return "How it learned; slope: points of held-out accuracy a point of training reward", head, rows


def _differences(summary: dict[str, Any]) -> Table:
    rows = [
        [
            f"{d['first']} - {d['second']}",
            *(_share(d[key], signed=True) for key in ("difference", "at_equal_tokens", "at_equal_seconds")),
            f"{d['probability_of_improvement']:.2f}",
        ]
        for d in summary["differences"]
    ]
    head = ["", "at the end", "at equal tokens", "at equal seconds", "chance of improvement, end"]
    return "Differences, points, paired by seed, with Student's 95 % interval", head, rows


def _time(summary: dict[str, Any]) -> Table:
    methods = summary["methods"]
    purposes = dict.fromkeys(key for m in methods.values() for key in m["time_split"] if key != "total")
    rows = [
        [
            name,
            *(f"{m['time_split'].get(purpose, 0.0) / m['iterations']:.2f}" for purpose in purposes),
            f"{100 * m['unaccounted']:.1f} %",
        ]
        for name, m in methods.items()
    ]
    return "Seconds an iteration by purpose", ["", *purposes, "in no part"], rows


def _passes(summary: dict[str, Any]) -> Table:
    methods = {name: m["passes"] for name, m in summary["methods"].items() if "passes" in m}
    keys = list(next(iter(methods.values())))
    rows = [[name, *(_share(row[key]) for key in keys)] for name, row in methods.items()]
    return "Several answers to a problem at the end, %, over seeds", ["", *keys], rows


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


def _share(mean: dict[str, Any], *, signed: bool = False) -> str:
    form = "{:+.1f}" if signed else "{:.1f}"
    centre = form.format(100 * mean["value"])
    if mean["low"] is None:
        return centre
    return f"{centre} ({form.format(100 * mean['low'])} to {form.format(100 * mean['high'])})"


def _number(mean: dict[str, Any] | None) -> str:
    if mean is None:
        return ""
    if mean["low"] is None:
        return f"{mean['value']:.2f}"
    return f"{mean['value']:.2f} ({mean['low']:.2f} to {mean['high']:.2f})"


def _reached(target: dict[str, Any]) -> str:
    if target["mean"] is None:
        return "never"
    value = f"{target['mean']:,.0f}"
    return value if target["reached"] == target["of"] else f"{value} ({target['reached']} of {target['of']})"
