"""Compare methods over seeds: `python -m algorithms.compare algos=[vineppo,grpo] env=math seeds=5`.

Whatever is not a key of its own goes to every run (`env=math algo.kl_coef=0.1 iterations=10`).
Runs that are finished in the folder `out` are used as they are; unfinished ones go on.

Exit codes: 0 finished, 1 a run failed, 2 bad input, 130 interrupted (run it again to go on).
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from algorithms.command import main_command
from algorithms.comparison import read_run, spent, summarise
from algorithms.config import compose, load_group, own_keys
from algorithms.console import console, progress_bar
from algorithms.contenders import Method, Run, enter, parse_sweep
from algorithms.parts import use_threads
from algorithms.passes import PassSettings, measure_passes
from algorithms.report import write_report
from vineenv.errors import UsageError, unknown

FAILED = 1
BUDGETS = ("iterations", "tokens", "seconds")


@dataclasses.dataclass(kw_only=True)
class CompareConfig:
    """What is compared.

    `budget` is `iterations:25`, or `tokens:3e6` or `seconds:600` a run: a probe of two iterations
    then says how many iterations each method may have. `sweep` is `algo.K:1,3,9`, a variant of each
    method a value. `workers` runs go side by side, a thread each; 0 takes the number of cores.
    `target` is the accuracy that the time to reach is told for; 0 takes halfway to the best. `oracle`
    lets exact step credit take part where the environment knows it: what it has over group credit is the
    headroom. pass@k of the last policies is of `pass_samples` answers to `pass_problems` each, 0 for none.
    """

    algos: list[str]
    seeds: int
    budget: str
    out: str
    workers: int
    oracle: bool
    pass_problems: int
    pass_samples: int
    sweep: str | None = None
    target: float = 0.0

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.workers < 0:
            raise UsageError(f"seeds={self.seeds} must be at least 1, workers={self.workers} at least 0.")
        if self.pass_problems < 0 or self.pass_samples < 1:
            raise UsageError(
                f"pass_problems={self.pass_problems} must be at least 0, "
                f"pass_samples={self.pass_samples} at least 1."
            )
        if not self.algos:
            raise UsageError("algos is empty: name at least one, as algos=[vineppo,grpo].")
        for algo in self.algos:
            load_group("algo", algo)
        parse_budget(self.budget)
        parse_sweep(self.sweep)


def parse_budget(text: str) -> tuple[str, float]:
    """`tokens:3e6` as a kind and an amount.

    Raises:
        UsageError: neither of the kinds, or no positive number.
    """
    kind, _, amount = str(text).partition(":")
    if kind not in BUDGETS:
        raise unknown("budget", kind, BUDGETS)
    try:
        value = float(amount)
    except ValueError:
        value = 0.0
    if not value >= 1:
        raise UsageError(f"budget={text!r}: after {kind}: comes a number from 1 on, as {kind}:100.")
    return kind, value


def run(arguments: list[str]) -> int:
    """Check everything, run what is missing, write the report."""
    names = [field.name for field in dataclasses.fields(CompareConfig)]
    own_arguments = [a for a in arguments if a.partition("=")[0] in names]
    shared = [a for a in arguments if a not in own_arguments]
    config = compose("compare", CompareConfig, own_arguments)
    own = own_keys(CompareConfig, config)
    methods = enter(own.algos, shared, own.sweep, oracle=own.oracle)
    out = Path(own.out)
    out.mkdir(parents=True, exist_ok=True)
    kind, amount = parse_budget(own.budget)
    workers = own.workers or os.cpu_count() or 1
    if kind == "iterations":
        methods = [method.with_iterations(int(amount)) for method in methods]
    else:
        methods = list(_probed(methods, kind, amount, out, workers))
    runs = [Run(method, seed, out / "runs") for method in methods for seed in range(own.seeds)]
    failed = execute(runs, workers, "runs")
    for bad in failed:
        console.print(f"failed: {bad.name}; see {bad.log}", style="red")
    done = [r for r in runs if r.is_finished()]
    if not done:
        return FAILED
    curves = [read_run(r) for r in done]
    summary = summarise(curves, own.target)
    if own.pass_problems:
        use_threads(workers)
        for name, passes in measure_passes(done, PassSettings(own.pass_problems, own.pass_samples)).items():
            summary["methods"][name]["passes"] = passes
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    write_report(out, curves, summary, " ".join(["python -m algorithms.compare", *arguments]))
    console.print(f"\n{(out / 'report.md').read_text()}\nreport      {out / 'report.html'}", markup=False)
    return FAILED if failed else 0


def _probed(methods: Sequence[Method], kind: str, amount: float, out: Path, workers: int) -> Iterator[Method]:
    """Each method with the iterations that its budget pays, by what one costs in a probe of two."""
    small = ["eval.problems=8", "eval.final_problems=8", "samples=0"]
    probes = [
        Run(Method(m.name, [*m.arguments, *small]).with_iterations(2), 0, out / "probes") for m in methods
    ]
    if failed := execute(probes, 1 if kind == "seconds" else workers, "probes"):
        raise UsageError(f"The probe of {failed[0].name} failed; see {failed[0].log}.")
    for method, probe in zip(methods, probes, strict=True):
        first, last = probe.lines()[-2:]
        cost = spent(last, kind) - spent(first, kind)
        count = max(1, int(amount / cost))
        console.print(f"{method.name}: {cost:,.0f} {kind} an iteration, so {count} iterations", markup=False)
        yield method.with_iterations(count)


def execute(runs: Sequence[Run], workers: int, what: str) -> list[Run]:
    """Run what is not finished, several at a time; return what failed."""
    waiting = [r for r in runs if not r.is_finished()]
    if len(waiting) < len(runs):
        console.print(f"{len(runs) - len(waiting)} of {len(runs)} {what} are there already")
    failed: list[Run] = []
    with progress_bar() as bar, ThreadPoolExecutor(workers) as pool:
        task = bar.add_task(what, total=len(waiting))

        def one(r: Run) -> None:
            start = time.perf_counter()
            if not _launch(r):
                failed.append(r)
            console.print(f"{r.name}: {time.perf_counter() - start:.0f} s", markup=False)
            bar.update(task, advance=1)

        list(pool.map(one, waiting))
    return failed


def _launch(r: Run) -> bool:
    r.log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "algorithms.run", *r.arguments()]
    with r.log.open("a") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False)
    return r.is_finished()


if __name__ == "__main__":
    sys.exit(main_command(run, "compare", CompareConfig, __doc__ or ""))
