"""What runs of several methods say when they are put side by side."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.stats import (
    Mean,
    area_under,
    first_reaching,
    mean_of,
    paired_difference,
    probability_of_improvement,
)

# What a method is charged with; evaluation is the same for all. Tokens: sampled and trained on.
SPENT = {
    "tokens": ("policy", "vines", "training"),
    "seconds": ("policy", "vines", "scoring", "training", "weights"),
    "flops": ("policy", "vines", "scoring", "training"),
}


@dataclasses.dataclass(frozen=True)
class Method:
    """A name for the report, and what a run of it is started with."""

    name: str
    arguments: list[str]

    def with_iterations(self, count: int) -> Method:
        """The same with a number of iterations."""
        return Method(self.name, [*self.arguments, f"iterations={count}"])


@dataclasses.dataclass(frozen=True)
class Run:
    """One seed of a method, in a folder of its own."""

    method: Method
    seed: int
    parent: Path

    @property
    def name(self) -> str:
        """Method and seed."""
        return f"{self.method.name}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        """Where it is."""
        plain = re.sub(r"[^\w.=-]+", "-", self.method.name)
        return self.parent / f"{plain}-{self.seed}"

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.folder.with_suffix(".log")

    def arguments(self) -> list[str]:
        """Of `algorithms.run`."""
        return [*self.method.arguments, f"seed={self.seed}", f"run_dir={self.folder}", "threads=1"]

    def lines(self) -> list[dict[str, Any]]:
        """Its metrics."""
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def is_finished(self) -> bool:
        """Whether its last iteration was measured on the test split and the policy saved."""
        if not (self.folder / "summary.json").is_file() or not (self.folder / "policy").is_dir():
            return False
        last = self.lines()[-1]
        return last["iteration"] > 0 and "test/sampled" in last


@dataclasses.dataclass(frozen=True)
class Curve:
    """A finished run: held-out accuracy against what had been spent by then.

    `tokens`, `seconds` and `flops` leave evaluation out: it is the same for all, and no part of a method.
    """

    method: str
    seed: int
    iterations: list[int]
    accuracy: list[float]
    tokens: list[float]
    seconds: list[float]
    flops: list[float]
    kl: list[float]
    reward: float
    start: float
    final: float
    greedy: float
    split: dict[str, float]
    total_seconds: float


def read_run(run: Run) -> Curve:
    """Read a finished run's metrics."""
    lines = run.lines()
    measured = [line for line in lines if "eval/sampled" in line]
    last = lines[-1]
    return Curve(
        method=run.method.name,
        seed=run.seed,
        iterations=[line["iteration"] for line in measured],
        accuracy=[line["eval/sampled"] for line in measured],
        tokens=[spent(line, "tokens") for line in measured],
        seconds=[spent(line, "seconds") for line in measured],
        flops=[spent(line, "flops") for line in measured],
        kl=[line.get("kl", 0.0) for line in measured],
        reward=last["reward"],
        start=lines[0]["test/sampled"],
        final=last["test/sampled"],
        greedy=last["test/greedy"],
        split={k.removeprefix("seconds/"): v for k, v in last.items() if k.startswith("seconds/")},
        total_seconds=last["seconds/total"],
    )


def summarise(curves: Sequence[Curve], target: float = 0.0) -> dict[str, Any]:
    """What `summary.json` holds: each method's results, and every pair's difference.

    Equal tokens and seconds are those of the cheapest run; accuracy there is read off the curve of
    the validation split. Final accuracy is of the test split.
    """
    methods: dict[str, list[Curve]] = {}
    for curve in curves:
        methods.setdefault(curve.method, []).append(curve)
    tokens = min(curve.tokens[-1] for curve in curves)
    seconds = min(curve.seconds[-1] for curve in curves)
    start = float(np.mean([curve.accuracy[0] for curve in curves]))
    best = max(float(np.mean([c.accuracy[-1] for c in rows])) for rows in methods.values())
    target = target or start + (best - start) / 2
    return {
        "target": target,
        "equal_tokens": tokens,
        "equal_seconds": seconds,
        "methods": {name: _describe(rows, tokens, seconds, target) for name, rows in methods.items()},
        "differences": _differences(methods),
    }


def _describe(rows: Sequence[Curve], tokens: float, seconds: float, target: float) -> dict[str, Any]:
    def mean(values: Sequence[float]) -> dict[str, Any]:
        return _plain(mean_of(values))

    def accuracy(values: Sequence[float]) -> dict[str, Any]:
        """Clipped to 0 and 1, which two seeds' intervals often pass."""
        mean = mean_of(values)
        return _plain(Mean(mean.value, max(mean.low, 0.0), min(mean.high, 1.0), mean.count))

    reached = {axis: [first_reaching(getattr(c, axis), c.accuracy, target) for c in rows] for axis in AXES}
    return {
        "seeds": [c.seed for c in rows],
        "start": accuracy([c.start for c in rows]),
        "final": accuracy([c.final for c in rows]),
        "final_each": [c.final for c in rows],
        "greedy": accuracy([c.greedy for c in rows]),
        "at_equal_tokens": accuracy([float(np.interp(tokens, c.tokens, c.accuracy)) for c in rows]),
        "at_equal_seconds": accuracy([float(np.interp(seconds, c.seconds, c.accuracy)) for c in rows]),
        "area_by_iterations": mean([area_under(c.iterations, c.accuracy) for c in rows]),
        "to_target": {axis: _all_or_none(values) for axis, values in reached.items()},
        "train_minus_test": mean([c.reward - c.final for c in rows]),
        "kl": mean([c.kl[-1] for c in rows]),
        "iterations": rows[0].iterations[-1],
        "tokens": mean([c.tokens[-1] for c in rows]),
        "seconds": mean([c.seconds[-1] for c in rows]),
        "flops": mean([c.flops[-1] for c in rows]),
        "time_split": {key: float(np.mean([c.split.get(key, 0.0) for c in rows])) for key in rows[0].split},
        "unaccounted": float(np.mean([_unaccounted(c) for c in rows])),
    }


AXES = ("iterations", "tokens", "seconds")


def _differences(methods: Mapping[str, Sequence[Curve]]) -> list[dict[str, Any]]:
    out = []
    names = list(methods)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            a, b = ({c.seed: c.final for c in methods[name]} for name in (first, second))
            both = sorted(a.keys() & b.keys())
            out.append(
                {
                    "first": first,
                    "second": second,
                    "difference": _plain(paired_difference([a[s] for s in both], [b[s] for s in both])),
                    "probability_of_improvement": probability_of_improvement(
                        list(a.values()), list(b.values())
                    ),
                }
            )
    return out


def spent(line: Mapping[str, Any], kind: str) -> float:
    """Tokens, seconds or flops that a line of metrics charges its method with."""
    return float(sum(line.get(f"{kind}/{purpose}", 0) for purpose in SPENT[kind]))


def _unaccounted(curve: Curve) -> float:
    """Share of the wall time that no part of the ledger holds."""
    parts = sum(value for key, value in curve.split.items() if key != "total")
    return 1 - parts / curve.total_seconds


def _all_or_none(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean over the seeds that got there, and how many did."""
    there = [value for value in values if value is not None]
    return {"mean": float(np.mean(there)) if there else None, "reached": len(there), "of": len(values)}


def _plain(mean: Mean) -> dict[str, Any]:
    finite = {key: (value if np.isfinite(value) else None) for key, value in dataclasses.asdict(mean).items()}
    return finite
