"""Look at a run's trajectories step by step: `python -m algorithms.view run=runs/x`.

Answers problems with the run's policy, grows vines at every step, and writes one HTML file that needs no
network: each step coloured by its advantage, its value with interval, its vines to read, and the credit
of several methods side by side. Exit codes: 0 finished, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from algorithms.command import main_command
from algorithms.config import compose, load_group, own_keys
from algorithms.console import console
from algorithms.microscope import Specimens, describe
from algorithms.opened import check_run, open_run
from algorithms.parts import use_threads
from vineenv.env import SPLITS
from vineenv.errors import UsageError, unknown
from vineenv.rollout import Sampling

PAGE = "microscope.html"
DATA = "/*DATA*/"


@dataclasses.dataclass(kw_only=True)
class ViewConfig:
    """What is looked at.

    The first `problems` of `split` are answered `group` times each by the policy of `run`, with `K` vines
    at every step. `algos` are shown where they can be: `oracle` needs an environment that knows its steps,
    `ppo` a critic, the run's own or that of `critic_run`. `out` is the page; by default it lies in the run.
    """

    run: str
    split: str
    problems: int
    group: int
    K: int
    algos: list[str]
    temperature: float
    seed: int
    critic_run: str | None = None
    out: str | None = None
    threads: int = 0

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise unknown("split", self.split, SPLITS)
        if min(self.problems, self.group, self.K) < 1 or not self.temperature > 0:
            raise UsageError("problems, group and K must be at least 1, temperature above 0.")
        if not self.algos:
            raise UsageError("algos is empty: name at least one, as algos=[vineppo,grpo].")
        for algo in self.algos:
            load_group("algo", algo)
        for folder in filter(None, (self.run, self.critic_run)):
            check_run(folder)


def run(arguments: list[str]) -> int:
    """Sample, value, write the page."""
    own = own_keys(ViewConfig, compose("view", ViewConfig, arguments))
    use_threads(own.threads)
    opened = open_run(own.run, own.critic_run)
    specimens = Specimens(
        opened.env,
        opened.engine,
        opened.problems(own.split, own.problems),
        group=own.group,
        K=own.K,
        sampling=Sampling(own.temperature),
        seed=own.seed,
    )
    data = describe(specimens, opened.credits(specimens, own.algos))
    data["title"] = f"{Path(own.run).name}, {own.split}"
    data["K"] = own.K
    out = Path(own.out) if own.out else Path(own.run) / PAGE
    out.write_text(page(data), encoding="utf-8")
    console.print(f"{len(data['items'])} trajectories, {len(data['vines'])} states with {own.K} vines each")
    console.print(f"saved to {out}", markup=False)
    return 0


def page(data: dict[str, Any]) -> str:
    """The page with its data in it; nothing in the data can end the script it stands in."""
    plain = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        plain = plain.replace(sign, f"\\u{ord(sign):04x}")
    template = files("algorithms").joinpath(PAGE).read_text(encoding="utf-8")
    return template.replace(DATA, plain)


if __name__ == "__main__":
    sys.exit(main_command(run, "view", ViewConfig, __doc__ or ""))
