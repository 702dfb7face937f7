"""Kill a run at random moments and go on: `python tests/resume_soak.py`.

Each trial starts a run, kills it with SIGKILL (every third one while it writes a checkpoint), starts
the same command again, and compares all that the run leaves with what an unbroken run leaves: weights
byte for byte, metrics but for the seconds, samples, TensorBoard's scalars. The same is then done
with SIGTERM, after which the run must exit by itself. The last line is one JSON object: `trials` and
`equal` of SIGKILL, `stops` and `stops_equal` of SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])  # the tests' folder has packages of the project's names

ALGORITHMS = ("vineppo", "ppo", "reinforce", "restem")
SETTINGS = (
    "env=math", "iterations=4", "algo.prompts=4", "algo.minibatch=4", "save_every=1", "keep=2", "threads=1",
    "eval.every=2", "eval.problems=8", "eval.final_problems=8", "samples=1",
)  # fmt: skip
OWN = {"reinforce": ["algo.baseline=running_mean"], "vineppo": ["algo.K=2", "algo.every=4"]}
PROCESSES = multiprocessing.get_context("forkserver")


def work(arguments: list[str], log: str) -> None:
    """The run itself, as the command would do it."""
    with Path(log).open("a") as stream:
        sys.stdout = sys.stderr = stream
        from algorithms import console
        from algorithms.run import run

        console.console.file = stream
        sys.exit(run(arguments))


def start(algorithm: str, folder: Path) -> ForkServerProcess:
    """Begin a run, or go on with it."""
    arguments = [f"algo={algorithm}", *SETTINGS, *OWN.get(algorithm, ()), f"run_dir={folder}"]
    process = PROCESSES.Process(target=work, args=(arguments, f"{folder}.log"))
    process.start()
    return process


def left_behind(folder: Path) -> dict[str, Any]:
    """What a finished run left, without what cannot be the same twice."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    tags = [tag for tag in events.Tags()["scalars"] if "seconds/" not in tag]
    return {
        "weights": (folder / "policy" / "model.safetensors").read_bytes(),
        "metrics": [{k: v for k, v in line.items() if not k.startswith("seconds/")} for line in lines],
        "samples": (folder / "samples.txt").read_text(),
        "scalars": {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags},
    }


def wait_for_save(process: ForkServerProcess, folder: Path, saves: int) -> None:
    """Return while the run writes its checkpoint number `saves`."""
    seen: set[str] = set()
    while process.is_alive() and len(seen) < saves:
        seen.update(part.name for part in (folder / "checkpoints").glob("*.part"))
        time.sleep(0.0005)


def trial(algorithm: str, folder: Path, rng: random.Random, number: int, seconds: float, how: int) -> str:
    """Break a run once or twice and finish it; say how it was broken."""
    told: list[str] = []
    for time_of_break in range(rng.choice((1, 1, 2))):
        process = start(algorithm, folder)
        if how == signal.SIGKILL and number % 3 == 2:
            wait_for_save(process, folder, rng.randint(1, 3))
            time.sleep(rng.uniform(0, 0.02))
            told.append("in a save")
        else:
            time.sleep(moment := rng.uniform(0.05, 0.95) * seconds)
            told.append(f"after {moment:.1f} s")
        end(process, how)
        if process.exitcode == 0 and not time_of_break:  # it was over before the signal: once more
            shutil.rmtree(folder)
            return trial(algorithm, folder, rng, number, 0.8 * seconds, how)
    last = start(algorithm, folder)
    last.join()
    return f"{', '.join(told)}; exit code {last.exitcode}"


def end(process: ForkServerProcess, how: int) -> None:
    """Send a signal and wait for the process to be gone."""
    if process.is_alive() and process.pid:
        os.kill(process.pid, how)
    process.join(60)
    if process.is_alive():
        raise SystemExit("the run did not end within 60 s of the signal")


def main() -> None:
    """Make the references, then break runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--stops", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    PROCESSES.set_forkserver_preload(["algorithms.run", "transformers.models.llama.modeling_llama"])
    rng = random.Random(given.seed)
    counts = {"trials": 0, "equal": 0, "stops": 0, "stops_equal": 0}
    with tempfile.TemporaryDirectory() as scratch:
        start(ALGORITHMS[0], Path(scratch) / "warm").join()  # the first process also starts the server
        known, times = {}, {}
        for algorithm in ALGORITHMS:
            folder, began = Path(scratch) / algorithm, time.perf_counter()
            start(algorithm, folder).join()
            times[algorithm] = time.perf_counter() - began
            known[algorithm] = left_behind(folder)
            print(f"{algorithm}: unbroken in {times[algorithm]:.1f} s", flush=True)
        kinds = [(signal.SIGKILL, "trials", "equal")] * given.trials
        kinds += [(signal.SIGTERM, "stops", "stops_equal")] * given.stops
        for number, (how, count, equal) in enumerate(kinds):
            algorithm = ALGORITHMS[number % len(ALGORITHMS)]
            folder = Path(scratch) / f"{number}"
            told = trial(algorithm, folder, rng, number, times[algorithm], how)
            found = left_behind(folder)
            other = [key for key, value in known[algorithm].items() if found[key] != value]
            counts[count] += 1
            counts[equal] += not other
            verdict = f"DIFFERENT: {', '.join(other)}" if other else "equal"
            print(f"{number}: {algorithm}, {how.name} {told}: {verdict}", flush=True)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
