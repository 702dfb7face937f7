"""The verdict on an answer, given a reference: what a worker computes."""

from __future__ import annotations

import re
from typing import Literal

from rewards.maths import compare, exact, lines
from rewards.maths.answers import parse
from rewards.maths.characters import to_latex
from rewards.maths.nodes import MathsError, Node, Undefined, Unsupported
from rewards.maths.numerals import bare

Verdict = Literal["correct", "wrong", "unparsed", "gold_error"]

_BETWEEN_DIGITS = re.compile(r"(?<=[0-9])\s+(?=[0-9])")
_IGNORED = re.compile(r"\s+|\\left|\\right|\\[,;:! ]")


def judge(answer: str, reference: str, numerals_only: bool = False) -> Verdict:
    """Compare an answer with a reference; with `numerals_only` a numeral equals only a numeral.

    A reference of a kind that is compared only as text accepts just its own text. One that is malformed or
    has no value is a gold error, whatever the answer.
    """
    try:
        gold = _read(reference)
    except MathsError:
        return "gold_error"
    if numerals_only and (lines.read(answer) is None) != (lines.read(reference) is None):
        return "wrong"
    try:
        given = _read(answer)
        if gold is None or given is None:
            is_same_text = gold is None and given is None and key(answer) == key(reference)
            return "correct" if is_same_text else "unparsed" if given is None else "wrong"
        return "correct" if compare.equal(given, gold) else "wrong"
    except MathsError:
        return "unparsed"


def fault(reference: str) -> str | None:
    """Return why a reference cannot be graded against, or None."""
    try:
        _read(reference)
    except MathsError as error:
        return str(error)
    return None


def _read(text: str) -> Node | None:
    """Return the tree of an answer, or None if it is compared only as text.

    Raises:
        Malformed, Undefined: it is no answer, or has no value.
    """
    try:
        node = parse(text)
        if node.kind == "text" and node.value == "nan":
            raise Undefined("not a number")
        if node.kind in compare.EXPRESSIONS:
            exact.fold(node)
        elif not compare.equal(node, node):
            raise Undefined("it does not equal itself")
    except Unsupported:
        return None
    return node


def key(text: str) -> str:
    """Return text without spacing and delimiters, in which two answers of an unknown kind may still agree."""
    spaced = _BETWEEN_DIGITS.sub("\0", bare(to_latex(text)))
    return _IGNORED.sub("", spaced).replace("dfrac", "frac").replace("tfrac", "frac")
