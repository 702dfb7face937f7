"""Check an environment and its data: `python -m algorithms.check env=gsm8k env.path=...`.

Exit codes: 0 everything passed, 1 a check failed, 2 bad input.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time

from algorithms.command import main_command
from algorithms.config import compose, own_keys
from algorithms.console import console
from algorithms.parts import build_env
from algorithms.targets import build
from vineenv.check import describe, findings
from vineenv.env import ReasoningEnv
from vineenv.errors import UsageError

FAILED = 1


@dataclasses.dataclass(kw_only=True)
class CheckConfig:
    """What the check takes beside environment, reward and the model whose tokenizer is used.

    `problems` of each split are walked through; `rows` of each are looked at for repeats.
    """

    problems: int
    rows: int
    seed: int

    def __post_init__(self) -> None:
        if min(self.problems, self.rows) < 1:
            raise UsageError(f"problems={self.problems} and rows={self.rows} must be at least 1.")


def run(arguments: list[str]) -> int:
    """Build the environment, print what each check finds and what the data hold."""
    config = compose("check", CheckConfig, arguments)
    own = own_keys(CheckConfig, config)
    env = build_env(config, build(config.model).tokenizer())
    failed = []
    for finding in findings(env, problems=own.problems, seed=own.seed):
        console.print(str(finding), markup=False, highlight=False, soft_wrap=True)
        if finding.fault is not None:
            failed.append(finding.name)
    print_data(env, own.rows)
    print(json.dumps({"env": type(env).__name__, "failed": failed}))
    return FAILED if failed else 0


def print_data(env: ReasoningEnv, rows: int) -> None:
    """Print an example, the report on the data, and how fast problems come."""
    example = env.problem("train", 0)
    start = time.perf_counter()
    report = describe(env, rows)
    rate = sum(report.seen.values()) / (time.perf_counter() - start)
    tokens = len(env.encode(example.prompt)), len(env.encode(example.solution or ""))
    console.print(f"\nexample {example.id}: {tokens[0]} tokens, solution {tokens[1]}", markup=False)
    console.print(f"{example.prompt}{example.solution or ''}", markup=False, highlight=False)
    console.print(f"\n{report}\n{rate:,.0f} problems a second", markup=False)


if __name__ == "__main__":
    sys.exit(main_command(run, "check", CheckConfig, __doc__ or ""))
