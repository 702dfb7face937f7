"""Who takes part in a comparison: methods, their variants of a sweep, and the runs of each."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from algorithms.config import RunConfig, compose
from algorithms.console import console
from algorithms.targets import resolve, schema
from vineenv.env import ReasoningEnv
from vineenv.errors import UsageError

ORACLE = "oracle"
# Methods whose credit is a response's reward against its group's: what exact step credit must beat.
GROUP_METHODS = ("rloo", "grpo")


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


def split_name(name: str) -> tuple[str, str]:
    """The algorithm and the variant that a method's name tells."""
    algo, _, variant = name.partition(" ")
    return algo, variant


def parse_sweep(text: str | None) -> list[tuple[str, str]]:
    """`algo.K:1,3,9` as labels and overrides; one empty pair where there is no sweep."""
    if not text:
        return [("", "")]
    key, _, values = text.partition(":")
    if not key or not values:
        raise UsageError(f"sweep={text!r} is not of the form key:value,value, as algo.K:1,3,9.")
    return [(f" {key.rpartition('.')[2]}={value}", f"{key}={value}") for value in values.split(",")]


def enter(algos: Sequence[str], shared: Sequence[str], sweep: str | None, *, oracle: bool) -> list[Method]:
    """Every method and variant, each checked as `algorithms.run` would.

    Args:
        algos: their names.
        shared: arguments that go to every run.
        sweep: `key:value,value`, or None.
        oracle: let exact step credit take part, wherever the environment knows it.

    Raises:
        UsageError: something that `algorithms.run` would refuse.
    """
    methods = _variants(algos, shared, parse_sweep(sweep))
    for method in methods:
        config = compose("config", RunConfig, method.arguments)
        knows = getattr(resolve(config.env.target), "oracle", None) is not ReasoningEnv.oracle
        if oracle and ORACLE not in algos and not knows:
            console.print(f"{config.env.target} cannot tell which steps are right: no headroom is measured")
            oracle = False
    if oracle and ORACLE not in algos:
        settings = _settings(ORACLE)
        variants = [v for v in parse_sweep(sweep) if _takes(settings, v[1])] or [("", "")]
        methods += _variants([ORACLE], [a for a in shared if _takes(settings, a)], variants)
        for method in methods:
            compose("config", RunConfig, method.arguments)
    return methods


def _variants(
    algos: Sequence[str], shared: Sequence[str], variants: Sequence[tuple[str, str]]
) -> list[Method]:
    return [
        Method(f"{algo}{label}", [f"algo={algo}", *shared, *([override] if override else [])])
        for algo in algos
        for label, override in variants
    ]


def _settings(algo: str) -> set[str]:
    """Names of an algorithm's settings."""
    target = compose("config", RunConfig, [f"algo={algo}"], complete=False).algo.target
    return {name for name, *_ in schema(resolve(target))}


def _takes(settings: set[str], argument: str) -> bool:
    """Whether an algorithm with these settings understands an argument; those of other groups it does."""
    key = argument.partition("=")[0]
    return not key.startswith("algo.") or key.split(".")[1] in settings
