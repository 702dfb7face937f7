"""Gather runs of the main job: a table, a plot and one JSON line.

    for a in vineppo ppo grpo rloo oracle; do for s in 0 1 2; do
        python -m algorithms.run algo=$a env=math seed=$s run_dir=runs/main/$a-$s; done; done
    python benchmarks/main_job.py runs/main/*

Each point of the plot is the mean over seeds of held-out accuracy at temperature 1 on the
validation split, with the range over seeds; the table is of the test split.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from omegaconf import OmegaConf

RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).parent.parent / "docs" / "main_job.png"
ORDER = ("oracle", "vineppo", "ppo", "grpo", "rloo")
COLOURS = {
    "oracle": "0.5",
    "vineppo": "tab:blue",
    "ppo": "tab:red",
    "grpo": "tab:orange",
    "rloo": "tab:green",
}


def read_run(folder: Path) -> dict[str, Any]:
    """What matters of one finished run."""
    config = OmegaConf.load(folder / "config.yaml")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    first, last = lines[0], lines[-1]
    if "test/sampled" not in last or last["iteration"] == 0:
        raise SystemExit(f"{folder}: the run did not finish")
    keys = [f"test/{name}{part}" for name in ("sampled", "greedy") for part in ("", "_low", "_high")]
    spent = {k: v for k, v in last.items() if k.startswith(("tokens/", "seconds/"))}
    return {
        "algo": config.algo.target.rpartition(".")[2].lower(),
        "seed": config.seed,
        "curve": [
            (x["iteration"], x["eval/sampled"], x["eval/greedy"]) for x in lines if "eval/sampled" in x
        ],
        "start": {key: first[key] for key in keys},
        "end": {key: last[key] for key in keys},
        "worst_first_ratio_error": max(x["first_ratio_error"] for x in lines[1:]),
        **spent,
    }


def draw(runs: dict[str, list[dict[str, Any]]]) -> None:
    """Draw accuracy against iterations and against seconds, a line an algorithm."""
    figure, axes = plt.subplots(figsize=(7, 4), dpi=120)
    for algo in (a for a in ORDER if a in runs):
        iterations = [point[0] for point in runs[algo][0]["curve"]]
        values = np.array([[point[1] for point in run["curve"]] for run in runs[algo]])
        style = "--" if algo == "oracle" else "-"
        axes.plot(iterations, values.mean(0), style, color=COLOURS[algo], label=algo)
        axes.fill_between(iterations, values.min(0), values.max(0), color=COLOURS[algo], alpha=0.15, lw=0)
    seeds = len(next(iter(runs.values())))
    axes.set(
        xlabel="iteration",
        ylabel="held-out accuracy at temperature 1",
        title=f"mean and range of {seeds} seeds",
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(PICTURE)
    plt.close(figure)


def interval(numbers: dict[str, float], key: str) -> str:
    """A share and its interval in per cent."""
    return (
        f"{100 * numbers[key]:.1f} ({100 * numbers[key + '_low']:.1f} to {100 * numbers[key + '_high']:.1f})"
    )


def main(folders: list[str]) -> None:
    """Print the table, draw, save."""
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for folder in folders:
        run = read_run(Path(folder))
        runs[run["algo"]].append(run)
    print("| algo | seed | temperature 1, start | end | greedy, start | end | seconds |")
    print("|---|---|---|---|---|---|---|")
    for algo in (a for a in ORDER if a in runs):
        for run in sorted(runs[algo], key=lambda r: r["seed"]):
            cells = [
                interval(run[when], f"test/{kind}")
                for kind in ("sampled", "greedy")
                for when in ("start", "end")
            ]
            print(f"| {algo} | {run['seed']} | {' | '.join(cells)} | {run['seconds/total']:.0f} |")
    draw(runs)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "main_job.json").write_text(json.dumps(runs, indent=1) + "\n")
    gain = {
        algo: float(np.mean([run["end"]["test/sampled"] - run["start"]["test/sampled"] for run in rows]))
        for algo, rows in runs.items()
    }
    print(json.dumps({"gain": gain, "runs": {algo: len(rows) for algo, rows in runs.items()}}))


if __name__ == "__main__":
    main(sys.argv[1:])
