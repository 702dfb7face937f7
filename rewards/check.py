"""Measure a style's grader on cases with known verdicts: `python -m rewards.check FILE.jsonl`.

Each line has `completion`, `reference`, `style` and `expected` (true or false); optional are `id`, `kind` and
`debatable`. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewards import grading
from vineenv.types import Reward

SLOWEST_SHOWN = 5


@dataclass(frozen=True)
class Outcome:
    """One graded case; `reward` is None where the grader raised."""

    case: dict[str, Any]
    reward: Reward | None
    seconds: float

    @property
    def accepted(self) -> bool:
        """Whether the answer was rewarded."""
        return self.reward is not None and self.reward.value > 0

    @property
    def is_right(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.accepted == bool(self.case["expected"])


def read_cases(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the cases of a file, each with an id.

    Raises:
        ValueError: a line is not JSON or lacks a field; the message names the line.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{number}: not JSON: {error}") from error
        fields = ("completion", "reference", "style", "expected")
        missing = [field for field in fields if not isinstance(case, dict) or field not in case]
        if missing:
            raise ValueError(f"{path}:{number}: no field {', '.join(missing)}.")
        yield {"id": f"line-{number}", "kind": "all", **case}


def run_case(case: dict[str, Any]) -> Outcome:
    """Grade one case and time it; an exception, which is a fault of the grader, is printed and counted."""
    start = time.perf_counter()
    try:
        reward = grading.grade(case["completion"], case["reference"], case["style"])
    except Exception as error:
        print(f"{case['id']} raised {type(error).__name__}: {error}", file=sys.stderr)
        reward = None
    return Outcome(case, reward, time.perf_counter() - start)


def summary(outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """Return the figures of the last line; accuracy and false positives leave the debatable out."""
    clear = [outcome for outcome in outcomes if not outcome.case.get("debatable")]
    negatives = [outcome for outcome in clear if not outcome.case["expected"]]
    right = sum(outcome.is_right for outcome in clear)
    accepted = sum(outcome.accepted for outcome in negatives)
    return {
        "accuracy": round(right / len(clear), 6) if clear else None,
        "false_positive_rate": round(accepted / len(negatives), 6) if negatives else None,
        "crashes": sum(outcome.reward is None for outcome in outcomes),
        "slowest_s": round(max((outcome.seconds for outcome in outcomes), default=0.0), 4),
        "grades_per_s": round(len(outcomes) / seconds, 1) if seconds > 0 else None,
        "wrong": [outcome.case["id"] for outcome in clear if not outcome.is_right],
    }


def print_report(outcomes: Sequence[Outcome]) -> None:
    """Print confusion by kind, statuses and the slowest cases."""
    print(f"{'kind':<14}{'cases':>6}{'right':>6}{'false +':>8}{'false -':>8}")
    for kind in sorted({outcome.case["kind"] for outcome in outcomes}):
        rows = [outcome for outcome in outcomes if outcome.case["kind"] == kind]
        wrong = [outcome for outcome in rows if not outcome.is_right]
        positives = sum(outcome.accepted for outcome in wrong)
        print(f"{kind:<14}{len(rows):>6}{len(rows) - len(wrong):>6}{positives:>8}{len(wrong) - positives:>8}")
    statuses = Counter(outcome.reward.status if outcome.reward else "crash" for outcome in outcomes)
    print("statuses: " + ", ".join(f"{status} {count}" for status, count in statuses.most_common()))
    debatable = [outcome for outcome in outcomes if outcome.case.get("debatable")]
    if debatable:
        agreed = sum(outcome.is_right for outcome in debatable)
        print(f"debatable, not counted below: {agreed} of {len(debatable)} as expected")
    slowest = sorted(outcomes, key=lambda outcome: -outcome.seconds)[:SLOWEST_SHOWN]
    print(
        "slowest: " + ", ".join(f"{outcome.case['id']} {outcome.seconds * 1e3:.1f} ms" for outcome in slowest)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade a file of cases and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m rewards.check", description=__doc__)
    parser.add_argument("file", type=Path, help="cases, one JSON object a line")
    path = parser.parse_args(arguments).file
    try:
        cases = list(read_cases(path))
        for style in {case["style"] for case in cases}:
            grading.style_named(style)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    grading.shared_pool()
    start = time.perf_counter()
    outcomes = [run_case(case) for case in cases]
    seconds = time.perf_counter() - start
    print_report(outcomes)
    print(json.dumps(summary(outcomes, seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
