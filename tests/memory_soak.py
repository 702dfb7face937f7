"""A long run of tiny iterations, watched for leaks: `python tests/memory_soak.py`.

Resident memory, open files and threads of the process are read after every iteration. The last line
is one JSON object: `iterations`, `growth` (of the median memory of the last tenth over that of the
second tenth; in the first, allocators and caches fill up, among them the tokenizer's of 10,000 texts,
for which there are few enough problems), `files` and
`threads`, by how many there are more in the last tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])  # the tests' folder has packages of the project's names

from algorithms.console import Reporter  # noqa: E402
from algorithms.run import run  # noqa: E402

SETTINGS = (
    "algo=vineppo", "env=math", "algo.prompts=2", "algo.group_size=2", "algo.minibatch=4", "algo.K=2",
    "algo.every=2", "env.min_steps=2", "env.max_steps=3", "env.max_new_tokens=40", "threads=1",
    "env.train_size=300",
    "eval.every=100", "eval.problems=4", "eval.final_problems=4", "save_every=20", "samples=1",
)  # fmt: skip


def reading() -> tuple[int, int, int]:
    """Resident bytes, open files and threads of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 (the directory itself is no file to keep)
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd")), threads  # noqa: PTH208


def main() -> int:
    """Run and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--iterations", type=int, default=2000)
    count = parser.parse_args().iterations
    readings: list[tuple[int, int, int]] = []

    def note(_: Reporter, number: int, *rest: Any) -> None:
        readings.append(reading())
        if number % 100 == 0:
            memory, files, threads = readings[-1]
            print(f"{number}: {memory / 2**20:.1f} MiB, {files} files, {threads} threads", flush=True)

    Reporter.iteration = note  # ty: ignore[invalid-assignment]
    with tempfile.TemporaryDirectory() as scratch:
        code = run([*SETTINGS, f"iterations={count}", f"run_dir={scratch}/run"])
    tenth = len(readings) // 10
    early, late = zip(*readings[tenth : 2 * tenth], strict=True), zip(*readings[-tenth:], strict=True)
    before, after = ([statistics.median(column) for column in part] for part in (early, late))
    result = {
        "iterations": len(readings) - 1,
        "growth": round(after[0] / before[0] - 1, 4),
        "files": after[1] - before[1],
        "threads": after[2] - before[2],
    }
    print(json.dumps(result))
    return code


if __name__ == "__main__":
    sys.exit(main())
