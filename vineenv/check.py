"""Checks an environment against Gymnasium's contract and ours, and says what is likely wrong."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vineenv import contract
from vineenv.env import SPLITS, ReasoningEnv

_MOST_ROWS = 20_000


class ContractError(AssertionError):
    """An environment breaks the contract; the message is the report."""


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        name: of the check.
        fault: what is wrong, or None.
        cause: what usually makes it so.
    """

    name: str
    fault: str | None
    cause: str

    def __str__(self) -> str:
        if self.fault is None:
            return f"passed  {self.name}"
        return f"FAILED  {self.name}: {self.fault}\n        likely cause: {self.cause}"


@dataclass(frozen=True)
class DataReport:
    """What a look at the problems of every split found; `seen` of `rows` were looked at."""

    rows: dict[str, int]
    seen: dict[str, int]
    duplicates: dict[str, int]
    empty_answers: dict[str, int]
    overlap: int

    def __str__(self) -> str:
        lines = [
            f"{split}: {count:,} rows, of the first {self.seen[split]:,}: {self.duplicates[split]} repeated "
            f"questions, {self.empty_answers[split]} empty answers"
            for split, count in self.rows.items()
        ]
        return "\n".join([*lines, f"questions in more than one split: {self.overlap}"])


def check_env(env: ReasoningEnv, *, problems: int = 20, seed: int = 0) -> None:
    """Check an environment.

    Args:
        env: the environment, not wrapped; it is reset.
        problems: how many problems of each split are walked through.
        seed: of the choice of problems and prefixes.

    Raises:
        ContractError: naming each check that failed, what was seen, and the likely cause.
    """
    failed = [finding for finding in findings(env, problems=problems, seed=seed) if finding.fault]
    if failed:
        raise ContractError("\n".join([f"{type(env).__name__} breaks its contract.", *map(str, failed)]))


def findings(env: ReasoningEnv, *, problems: int = 20, seed: int = 0) -> Iterator[Finding]:
    """Yield what each check finds, in order; an exception within a check is its fault."""
    for name, check, cause in contract.CHECKS:
        yield Finding(name, _fault(check, env, problems, random.Random(seed)), cause)


def describe(env: ReasoningEnv, most: int = _MOST_ROWS) -> DataReport:
    """Count repeated questions, empty answers, and questions shared between splits.

    Args:
        env: whose problems are looked at.
        most: problems of each split that are looked at.
    """
    seen = {
        split: [env.problem(split, index) for index in range(min(env.size(split), most))] for split in SPLITS
    }
    questions = {split: Counter(p.prompt.strip() for p in problems) for split, problems in seen.items()}
    shared = Counter(question for counts in questions.values() for question in counts)
    return DataReport(
        rows={split: env.size(split) for split in SPLITS},
        seen={split: len(problems) for split, problems in seen.items()},
        duplicates={split: sum(counts.values()) - len(counts) for split, counts in questions.items()},
        empty_answers={
            split: sum(not p.answer.strip() for p in problems) for split, problems in seen.items()
        },
        overlap=sum(count > 1 for count in shared.values()),
    )


def _fault(
    check: Callable[[ReasoningEnv, Sequence[contract.Walk], random.Random], str | None],
    env: ReasoningEnv,
    problems: int,
    rng: random.Random,
) -> str | None:
    try:
        return check(env, contract.sample_walks(env, problems, rng), rng)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
