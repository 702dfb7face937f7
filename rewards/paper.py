"""The lenient rules by which the VinePPO paper's code graded MATH, for comparison with its numbers only.

They reward answers that are wrong: off by a factor of 100, or by less than 0.001, or a number that merely
comes last in a response without any answer. Train on a strict style.
"""

from __future__ import annotations

import re
from fractions import Fraction

from rewards import extract
from rewards.maths import numerals

TOLERANCE = Fraction(1, 1000)

_FINAL = re.compile(r"final answer is \$([^$]*)\$\. I hope")
_STATED = "he answer is"
_LAST_NUMBER = re.compile(r"-?[0-9][0-9,]*(?:\.[0-9]+)?")


def find(response: str) -> str | None:
    """Return the Minerva sentence, else the last box, else what "the answer is", else the last number."""
    final = _FINAL.findall(response)
    if final:
        return final[-1].strip() or None
    boxed = extract.boxed(response)
    if boxed is not None:
        return boxed
    _, stated, rest = response.rpartition(_STATED)
    if stated:
        return rest.strip(" :").partition(".\n")[0].split("\n")[0].strip().rstrip(".") or None
    found = _LAST_NUMBER.findall(response)
    return found[-1] if found else None


def close(answer: str, reference: str) -> bool | None:
    """Whether two numerals are within 0.001, as they are or 100 times apart; None if not numerals."""
    given, gold = numerals.read(answer), numerals.read(reference)
    if given is None or gold is None:
        return None
    return any(
        abs(given.value - Fraction(gold.value) * factor) <= TOLERANCE for factor in (1, 100, Fraction(1, 100))
    )
