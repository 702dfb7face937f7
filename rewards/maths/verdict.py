"""The verdict on an answer, given a reference: what a worker computes."""

from __future__ import annotations

import re
from typing import Literal

from rewards.maths import compare, lines
from rewards.maths.answers import parse
from rewards.maths.characters import to_latex
from rewards.maths.nodes import Malformed, MathsError, Node, Undefined, Unsupported
from rewards.maths.numerals import bare

Verdict = Literal["correct", "wrong", "unparsed", "gold_error"]

_BETWEEN_DIGITS = re.compile(r"(?<=[0-9])\s+(?=[0-9])")
_IGNORED = re.compile(r"\s+|\\left|\\right|\\[,;:! ]")


def judge(answer: str, reference: str, numerals_only: bool = False) -> Verdict:
    """Compare an answer with a reference; with `numerals_only` a numeral equals only a numeral.

    A reference of a kind that is compared only as text accepts just its own text. One that is malformed or has no
    value is a gold error, whatever the answer.
    """
    fault, gold = _read_gold(reference)
    if fault is not None:
        return "gold_error"
    if numerals_only and (lines.read(answer) is None) != (lines.read(reference) is None):
        return "wrong"
    if gold is None or key(answer) == key(reference):
        return "correct" if key(answer) == key(reference) else "wrong"
    try:
        return "correct" if compare.equal(parse(answer), gold) else "wrong"
    except MathsError:
        return "unparsed"


def fault(reference: str) -> str | None:
    """Return why a reference cannot be graded against, or None."""
    return _read_gold(reference)[0]


def _read_gold(reference: str) -> tuple[str | None, Node | None]:
    """Return the fault of a reference, and its tree unless it is compared only as text."""
    try:
        gold = parse(reference)
        if gold.kind == "text" and gold.value == "nan":
            raise Undefined("not a number")
        if not compare.equal(gold, gold):
            raise Undefined("it does not equal itself")
    except Unsupported:
        return None, None
    except (Malformed, Undefined) as error:
        return str(error), None
    return None, gold


def key(text: str) -> str:
    """Return text without spacing and delimiters, in which two answers of an unknown kind may still agree."""
    spaced = _BETWEEN_DIGITS.sub("\0", bare(to_latex(text)))
    return _IGNORED.sub("", spaced).replace("dfrac", "frac").replace("tfrac", "frac")
