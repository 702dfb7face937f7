r"""MATH-style problems with `\boxed{}` answers, from the user's own copy.

A row, with any of the field names of `LAYOUTS`:

    {"problem": "Solve $2x=6$.", "solution": "So $x=\boxed{3}$.", "level": "Level 1", "subject": "Algebra"}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from transformers import PreTrainedTokenizerBase

from envs.data import Fields, Row, find_file, load_rows
from rewards.extract import boxed
from vineenv.env import ReasoningEnv, RewardFunction
from vineenv.errors import UsageError, unknown
from vineenv.segment_math import MathSentences
from vineenv.types import Problem


@dataclass(frozen=True)
class Layout:
    """Where a named data set keeps its parts.

    Attributes:
        train: file name of the training rows, or None where the set is for testing only.
        test: file name of the test rows.
        fields: names of its fields.
    """

    train: str | None
    test: str
    fields: Fields = Fields(from_solution=boxed)  # noqa: RUF009 (frozen)


# Where a row says how far off a numeral may be, and in what unit the answer is.
TOLERANCE_FIELDS = ("tolerance", "error")
UNIT_FIELD = "unit"
_FINAL = Fields(answer=("final_answer", "answer"), problem=("question", "problem"))
LAYOUTS = {
    "math": Layout("train", "test"),  # 7,500 and 5,000
    "math_12k": Layout("train", "math500"),  # 12,000 and 500
    "math500": Layout(None, "math500"),
    "college_math": Layout(None, "test", Fields(problem=("question", "problem"))),
    "olympiadbench": Layout(None, "test", _FINAL),
    "minerva": Layout(None, "test"),
    "aime": Layout(None, "test"),
    "amc": Layout(None, "test"),
}
LEVELS = (1, 2, 3, 4, 5)


class MathProblems(ReasoningEnv):
    """Competition mathematics in one of the named layouts.

    Args:
        tokenizer: see `ReasoningEnv`.
        reward: see `ReasoningEnv`; `reward=boxed` grades the last box.
        path: folder with the layout's files, a file, or a hub name.
        layout: one of `LAYOUTS`.
        prompt: how a question is put; `{problem}` stands for it.
        validation_size: the last rows of the training file are the validation split. A set for
            testing only lends its test rows to all splits.
        levels: keep rows of these MATH levels (1 to 5); empty keeps all.
        subjects: keep rows of these subjects; empty keeps all.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        reward: RewardFunction,
        *,
        path: str,
        layout: str,
        prompt: str,
        validation_size: int,
        levels: Sequence[int] = (),
        subjects: Sequence[str] = (),
        **base: Any,
    ) -> None:
        base["segmenter"] = base.get("segmenter") or MathSentences(tokenizer)
        super().__init__(tokenizer, reward, **base)
        if layout not in LAYOUTS:
            raise unknown("env.layout", layout, LAYOUTS)
        if "{problem}" not in prompt:
            raise UsageError(f"env.prompt={prompt!r} has no {{problem}} for the question.")
        if bad := [level for level in levels if level not in LEVELS]:
            raise UsageError(f"env.levels has {bad}; a level is one of {LEVELS}.")
        self.prompt = prompt
        self.rows = _read_splits(path, LAYOUTS[layout], validation_size)
        every = [row for rows in self.rows.values() for row in rows]
        for row in every:
            tolerance_of(row)
        known = {str(subject_of(row)) for row in every}
        for subject in subjects:
            if subject not in known:
                raise unknown("subject in env.subjects", subject, known)
        self.rows = {
            split: tuple(row for row in rows if _wanted(row, levels, subjects))
            for split, rows in self.rows.items()
        }

    def size(self, split: str) -> int:
        """How many problems the split has."""
        return len(self.rows[split])

    def problem(self, split: str, index: int) -> Problem:
        """Return row `index` of a split."""
        row = self.rows[split][index]
        prompt = self.prompt.replace("{problem}", row.problem)
        meta = {**row.meta, "tolerance": tolerance_of(row)}
        return Problem(f"{split}/{index}", prompt, _with_unit(row), row.solution, meta)


def tolerance_of(row: Row) -> Fraction:
    """How far from the reference a number may be; 0 where the row does not say.

    Raises:
        UsageError: the field is no number, or negative.
    """
    name = next((name for name in TOLERANCE_FIELDS if row.meta.get(name) not in (None, "")), None)
    if name is None:
        return Fraction(0)
    try:
        tolerance = Fraction(str(row.meta[name]))
    except ValueError:
        tolerance = Fraction(-1)
    if tolerance < 0:
        raise UsageError(f"{row.where}: field {name!r} must be a number from 0, not {row.meta[name]!r}.")
    return tolerance


def _with_unit(row: Row) -> str:
    unit = row.meta.get(UNIT_FIELD)
    if not isinstance(unit, str) or not unit.strip() or unit in row.answer:
        return row.answer
    return rf"{row.answer} \text{{ {unit.strip()}}}"


def level_of(row: Row) -> int | None:
    """MATH level of a row ("Level 3" or 3), or None."""
    match = re.search(r"[1-5]", str(row.meta.get("level", "")))
    return int(match[0]) if match else None


def subject_of(row: Row) -> str | None:
    """Subject of a row, or None."""
    value = row.meta.get("subject", row.meta.get("type"))
    return None if value is None else str(value)


def _wanted(row: Row, levels: Sequence[int], subjects: Sequence[str]) -> bool:
    return (not levels or level_of(row) in levels) and (not subjects or subject_of(row) in subjects)


def _read_splits(path: str, layout: Layout, validation_size: int) -> dict[str, tuple[Row, ...]]:
    test = load_rows(find_file(path, layout.test), "test", layout.fields)
    if layout.train is None:
        return {"train": test, "validation": test, "test": test}
    train = load_rows(find_file(path, layout.train), "train", layout.fields)
    if not 1 <= validation_size < len(train):
        raise UsageError(f"env.validation_size={validation_size} must be between 1 and {len(train) - 1}.")
    return {"train": train[:-validation_size], "validation": train[-validation_size:], "test": test}
