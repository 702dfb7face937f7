"""What runs of several methods say when they are put side by side."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from algorithms.contenders import GROUP_METHODS, ORACLE, Run, split_name
from algorithms.stats import (
    Mean,
    area_under,
    first_reaching,
    least_squares_slope,
    mean_of,
    paired_difference,
    probability_of_improvement,
)

AXES = ("iterations", "tokens", "seconds", "flops")
# What a method is charged with; evaluation is the same for all. Tokens: sampled and trained on.
SPENT = {
    "tokens": ("policy", "vines", "training"),
    "seconds": ("policy", "vines", "scoring", "training", "weights"),
    "flops": ("policy", "vines", "scoring", "training"),
}
Methods = Mapping[str, Sequence["Curve"]]


@dataclasses.dataclass(frozen=True)
class Curve:
    """A finished run: held-out accuracy against what had been spent by then.

    `tokens`, `seconds` and `flops` leave evaluation out: it is the same for all, and no part of a method.
    `reward` is the mean training reward since the measurement before; nan at the start.
    """

    method: str
    seed: int
    iterations: list[int]
    accuracy: list[float]
    tokens: list[float]
    seconds: list[float]
    flops: list[float]
    kl: list[float]
    reward: list[float]
    start: float
    final: float
    greedy: float
    split: dict[str, float]
    total_seconds: float

    def at(self, axis: str, amount: float) -> float:
        """Accuracy when so much had been spent, in a straight line between two measurements."""
        return float(np.interp(amount, getattr(self, axis), self.accuracy))


def read_run(run: Run) -> Curve:
    """Read a finished run's metrics."""
    lines = run.lines()
    places = [i for i, line in enumerate(lines) if "eval/sampled" in line]
    measured, last = [lines[i] for i in places], lines[-1]
    rewards = [[line["reward"] for line in lines[a + 1 : b + 1]] for a, b in pairwise(places)]
    return Curve(
        method=run.method.name,
        seed=run.seed,
        iterations=[line["iteration"] for line in measured],
        accuracy=[line["eval/sampled"] for line in measured],
        tokens=[spent(line, "tokens") for line in measured],
        seconds=[spent(line, "seconds") for line in measured],
        flops=[spent(line, "flops") for line in measured],
        kl=[line.get("kl", 0.0) for line in measured],
        reward=[math.nan, *(float(np.mean(row)) for row in rewards)],
        start=lines[0]["test/sampled"],
        final=last["test/sampled"],
        greedy=last["test/greedy"],
        split={k.removeprefix("seconds/"): v for k, v in last.items() if k.startswith("seconds/")},
        total_seconds=last["seconds/total"],
    )


def spent(line: Mapping[str, Any], kind: str) -> float:
    """Tokens, seconds or flops that a line of metrics charges its method with."""
    return float(sum(line.get(f"{kind}/{purpose}", 0) for purpose in SPENT[kind]))


def group_by_method(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    """The runs of each method, in the order of their first."""
    methods: dict[str, list[Curve]] = {}
    for curve in curves:
        methods.setdefault(curve.method, []).append(curve)
    return methods


def summarise(curves: Sequence[Curve], target: float = 0.0) -> dict[str, Any]:
    """What `summary.json` holds: each method's results, and every pair's difference.

    Equal tokens and seconds are those of the cheapest run; accuracy there is read off the curve of
    the validation split. Final accuracy is of the test split.
    """
    methods = group_by_method(curves)
    equal = {axis: min(getattr(c, axis)[-1] for c in curves) for axis in ("tokens", "seconds")}
    start = float(np.mean([curve.accuracy[0] for curve in curves]))
    best = max(float(np.mean([c.accuracy[-1] for c in rows])) for rows in methods.values())
    target = target or start + (best - start) / 2
    return {
        "target": target,
        "equal_tokens": equal["tokens"],
        "equal_seconds": equal["seconds"],
        "methods": {name: _describe(rows, equal, target) for name, rows in methods.items()},
        "differences": _differences(methods, equal),
        "headroom": measure_headroom(methods),
    }


def measure_headroom(methods: Methods) -> list[dict[str, Any]]:
    """What exact step credit has over the best group credit at the end, for each variant of a sweep.

    Only where it is `significant` (the whole 95 % interval above 0) can runs tell estimators of step
    values apart. The best of the group methods is taken by its mean, so the headroom is told too
    small rather than too large.
    """
    out = []
    for name, rows in methods.items():
        algo, variant = split_name(name)
        if algo != ORACLE:
            continue
        rivals = [
            other
            for other, (kind, own) in ((other, split_name(other)) for other in methods)
            if kind in GROUP_METHODS and (not variant or own in (variant, ""))
        ]
        if rivals:
            rival = max(rivals, key=lambda other: float(np.mean([c.final for c in methods[other]])))
            difference = _paired(rows, methods[rival], lambda c: c.final)
            out.append(
                {
                    "oracle": name,
                    "group": rival,
                    "difference": _plain(difference),
                    "significant": difference.low > 0,
                }
            )
    return out


def _describe(rows: Sequence[Curve], equal: Mapping[str, float], target: float) -> dict[str, Any]:
    def mean(values: Sequence[float]) -> dict[str, Any]:
        return _plain(mean_of(values))

    reached = {axis: [first_reaching(getattr(c, axis), c.accuracy, target) for c in rows] for axis in AXES}
    slopes = [least_squares_slope(c.reward[1:], c.accuracy[1:]) for c in rows]
    return {
        "seeds": [c.seed for c in rows],
        "start": share_of_seeds([c.start for c in rows]),
        "final": share_of_seeds([c.final for c in rows]),
        "final_each": [c.final for c in rows],
        "greedy": share_of_seeds([c.greedy for c in rows]),
        **{f"at_equal_{axis}": share_of_seeds([c.at(axis, v) for c in rows]) for axis, v in equal.items()},
        "area_by_iterations": mean([area_under(c.iterations, c.accuracy) for c in rows]),
        "to_target": {axis: _all_or_none(values) for axis, values in reached.items()},
        "train_minus_test": mean([c.reward[-1] - c.final for c in rows]),
        "generalisation_slope": None if None in slopes else mean([s for s in slopes if s is not None]),
        "kl": mean([c.kl[-1] for c in rows]),
        "iterations": rows[0].iterations[-1],
        **{axis: mean([getattr(c, axis)[-1] for c in rows]) for axis in SPENT},
        "time_split": {key: float(np.mean([c.split.get(key, 0.0) for c in rows])) for key in rows[0].split},
        "unaccounted": float(np.mean([_unaccounted(c) for c in rows])),
    }


def _differences(methods: Methods, equal: Mapping[str, float]) -> list[dict[str, Any]]:
    """Every pair's difference at the end (test split), at equal tokens and seconds (validation split)."""
    out = []
    for (first, a), (second, b) in combinations(methods.items(), 2):
        at_equal = {
            f"at_equal_{axis}": _plain(_paired(a, b, lambda c, axis=axis, v=v: c.at(axis, v)))
            for axis, v in equal.items()
        }
        out.append(
            {
                "first": first,
                "second": second,
                "difference": _plain(_paired(a, b, lambda c: c.final)),
                **at_equal,
                "probability_of_improvement": probability_of_improvement(
                    [c.final for c in a], [c.final for c in b]
                ),
            }
        )
    return out


def _paired(first: Sequence[Curve], second: Sequence[Curve], value: Callable[[Curve], float]) -> Mean:
    """Mean difference over the seeds that both have."""
    a, b = ({c.seed: value(c) for c in rows} for rows in (first, second))
    both = sorted(a.keys() & b.keys())
    return paired_difference([a[s] for s in both], [b[s] for s in both])


def _unaccounted(curve: Curve) -> float:
    """Share of the wall time that no part of the ledger holds."""
    parts = sum(value for key, value in curve.split.items() if key != "total")
    return 1 - parts / curve.total_seconds


def _all_or_none(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean over the seeds that got there, and how many did."""
    there = [value for value in values if value is not None]
    return {"mean": float(np.mean(there)) if there else None, "reached": len(there), "of": len(values)}


def share_of_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Mean over seeds of a share, its interval clipped to 0 and 1, which that of two seeds often passes."""
    mean = mean_of(values)
    if mean.count > 1:
        mean = Mean(mean.value, max(mean.low, 0.0), min(mean.high, 1.0), mean.count)
    return _plain(mean)


def _plain(mean: Mean) -> dict[str, Any]:
    finite = {key: (value if np.isfinite(value) else None) for key, value in dataclasses.asdict(mean).items()}
    return finite
