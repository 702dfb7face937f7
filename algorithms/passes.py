"""pass@k and maj@k of the policies that a comparison's runs ended with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from algorithms.comparison import share_of_seeds
from algorithms.console import progress_bar
from algorithms.contenders import Run
from algorithms.evaluate import answer_all, measure
from algorithms.opened import open_run
from vineenv.ledger import Ledger
from vineenv.rollout import Sampling

_FILE = "passes.json"


@dataclasses.dataclass(frozen=True)
class PassSettings:
    """The first `problems` of a run's final split, `samples` answers each at temperature 1."""

    problems: int
    samples: int

    @property
    def ks(self) -> list[int]:
        """Powers of two up to the number of samples."""
        return [2**i for i in range(self.samples.bit_length())]


def measure_passes(runs: Sequence[Run], settings: PassSettings) -> dict[str, dict[str, dict[str, Any]]]:
    """Measure every run that has not been, and return each method's pass@k and maj@k over its seeds."""
    found: dict[str, list[Mapping[str, float]]] = {}
    with progress_bar() as bar:
        for run in bar.track(runs, description="pass@k"):
            found.setdefault(run.method.name, []).append(_measure(run, settings))
    return {
        method: {key: share_of_seeds([row[key] for row in rows]) for key in rows[0]}
        for method, rows in found.items()
    }


def _measure(run: Run, settings: PassSettings) -> dict[str, float]:
    """One run's, kept in its folder for the next time."""
    file = run.folder / _FILE
    asked = dataclasses.asdict(settings)
    if file.is_file() and (kept := json.loads(file.read_text()))["settings"] == asked:
        return kept["measured"]
    opened = open_run(str(run.folder))
    try:
        answered = answer_all(
            opened.env,
            opened.engine,
            opened.final_split,
            settings.problems,
            settings.samples,
            Sampling(),
            run.seed,
            Ledger(),
        )
    finally:
        opened.close()
    every = measure(answered, settings.ks, run.seed)
    measured = {key: mean.value for key, mean in every.items() if not key.startswith("avg")}
    file.write_text(json.dumps({"settings": asked, "measured": measured}, indent=1) + "\n")
    return measured
