"""A number in a line of prose: `72 clips, altogether.`, `$5 each`, `x = 18`."""

from __future__ import annotations

import re
from fractions import Fraction

from rewards.maths import numerals, units
from rewards.maths.characters import to_latex
from rewards.maths.numerals import Numeral

_NAMED = re.compile(r"(?:[A-Za-z][ ]?)?=[ ]?|:[ ]?")
_WRAPPED_NUMBER = re.compile(r"\\(?:text|textbf|mathbf|mathrm|mbox)\{([^{}A-Za-z]*)\}")


def read(text: str) -> Numeral | None:
    """Return the one number that `text` states, with its unit; None for two, or for open arithmetic."""
    if len(text) > numerals.MAX_CHARACTERS:
        return None
    exact = numerals.read(text)
    if exact is not None:
        return exact
    text = numerals.bare(to_latex(text).replace("**", " ").replace("__", " "))
    text = _WRAPPED_NUMBER.sub(r"\1", text)
    name = _NAMED.match(text)
    found = numerals.prefix(text[name.end() :] if name else text)
    if found is None:
        return None
    numeral, rest = found
    return numeral if not rest.strip() else _with_words(numeral, rest)


def _with_words(numeral: Numeral, rest: str) -> Numeral | None:
    words = units.read(rest.rstrip(" $"))
    if words is None:
        return None
    unit, factor = words
    if rest[0].isalpha() and factor == 1 and units.named(rest.split()[0].rstrip(".,;")) is None:
        return None
    if numeral.unit and unit and unit != numeral.unit:
        unit = f"{numeral.unit} {unit}"
    return Numeral(numeral.value * Fraction(factor), unit or numeral.unit)
