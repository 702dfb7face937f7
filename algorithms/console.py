"""What a person sees: progress with rate and time left, a line an iteration, a closing summary."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

console = Console(highlight=False, soft_wrap=True)

_COLUMNS = (
    ("reward", "reward", "{:.3f}"),
    ("eval/sampled", "held-out", "{:.3f}"),
    ("eval/greedy", "greedy", "{:.3f}"),
    ("kl", "kl", "{:.4f}"),
    ("entropy", "entropy", "{:.3f}"),
    ("clip_fraction", "clipped", "{:.3f}"),
    ("advantage_nonzero", "credited", "{:.2f}"),
    ("first_ratio_error", "|ratio-1|", "{:.0e}"),
    ("engine_gap", "engine gap", "{:.0e}"),
)


def progress_bar() -> Progress:
    """A progress bar with count, elapsed time and time left; silent where nobody watches."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


class Reporter:
    """Shows a run at the console."""

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations
        self.started = time.perf_counter()
        self.first = self.tokens = 0
        self.bar = progress_bar()
        self._doing = "starting"
        self.task: TaskID = self.bar.add_task("starting", total=iterations)

    def __enter__(self) -> Reporter:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def begin(self, done: int, tokens: int) -> None:
        """Count rate and time left from here: what was done before took another process's time."""
        self.first, self.tokens, self.started = done, tokens, time.perf_counter()
        self.bar.update(self.task, completed=done)

    def say(self, text: str) -> None:
        """Name what is going on now."""
        self._doing = text
        self.bar.update(self.task, description=text)

    def rows(self, done: int, total: int) -> None:
        """Show how many continuations of the engine's present call are there."""
        self.bar.update(self.task, description=f"{self._doing} {done}/{total}")

    def warn(self, text: str) -> None:
        """Print something that needs a person's eye."""
        warn(text)

    def iteration(self, number: int, metrics: Mapping[str, Any], tokens: int) -> None:
        """Print one line, with rate and time left, and move the bar on."""
        elapsed = time.perf_counter() - self.started
        cells = [f"{name} {form.format(metrics[key])}" for key, name, form in _COLUMNS if key in metrics]
        line = f"[{number}/{self.iterations}]  " + "  ".join(cells)
        line += f"  {(tokens - self.tokens) / elapsed:,.0f} tok/s"
        if number > self.first:
            left = elapsed / (number - self.first) * (self.iterations - number)
            line += f"  {clock(elapsed)} elapsed, {clock(left)} left"
        console.print(line)
        self.bar.update(self.task, completed=number)


def warn(text: str) -> None:
    """Print something that needs a person's eye."""
    console.print(f"warning: {text}", style="yellow", markup=False)


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def print_summary(lines: list[dict[str, Any]], folder: Path, policy: Path | None) -> None:
    """Print before and after, and what was spent."""
    measured = [line for line in lines if "test/sampled" in line]
    if measured:
        table = Table(title="held-out accuracy, % (95 % interval)")
        table.add_column("")
        for line in measured:
            table.add_column(f"iteration {line['iteration']}", justify="right")
        for key, name in (("test/sampled", "temperature 1"), ("test/greedy", "greedy")):
            table.add_row(name, *(interval(line, key) for line in measured))
        console.print(table)
    last = lines[-1]
    tokens = {k.removeprefix("tokens/"): v for k, v in last.items() if k.startswith("tokens/")}
    seconds = {k.removeprefix("seconds/"): v for k, v in last.items() if k.startswith("seconds/")}
    flops = {k.removeprefix("flops/"): v for k, v in last.items() if k.startswith("flops/")}
    hits = {k.removeprefix("hit_rate/"): v for k, v in last.items() if k.startswith("hit_rate/")}
    table = Table(title="spent")
    table.add_column("on")
    table.add_column("tokens", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("TFLOP", justify="right")
    table.add_column("prefixes cached", justify="right")
    for purpose in dict.fromkeys([*seconds, *tokens]):
        count = f"{tokens[purpose]:,}" if purpose in tokens else ""
        operations = f"{flops[purpose] / 1e12:,.1f}" if purpose in flops else ""
        cached = f"{hits[purpose]:.1%}" if purpose in hits else ""
        table.add_row(purpose, count, f"{seconds.get(purpose, 0.0):,.1f}", operations, cached)
    console.print(table)
    console.print(f"run folder  {folder}")
    if policy is not None:
        console.print(f"policy      {policy}  (opens with transformers' from_pretrained)")


def interval(line: Mapping[str, Any], key: str) -> str:
    """Write a share and its interval in per cent."""
    return f"{100 * line[key]:.1f} ({100 * line[f'{key}_low']:.1f} to {100 * line[f'{key}_high']:.1f})"
