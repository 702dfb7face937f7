"""Numerals as exact rationals: the path that needs neither a parser nor algebra.

A numeral is one written number: an integer, decimal, fraction, mixed number or power-of-ten form, with a
sign, thousands separators, a currency or a percent sign. `12*4` is not one.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

MAX_CHARACTERS = 2000
MAX_EXPONENT = 2000

_BLANKS = re.compile(r"[ \t\n\r\f\v]+")
_INTEGER = re.compile(r"-?[0-9]+")
_SEPARATOR = r"(?P<separator>\{,\}|,|,\\!|\\,|\\ |[\u00a0\u2007\u2009\u202f])"
_WHOLE = rf"(?:[1-9][0-9]{{0,2}}{_SEPARATOR}[0-9]{{3}}(?:(?P=separator)[0-9]{{3}})*|[0-9]+)"
_POWER = r"""(?:[eE](?P<exponent>[+-]?[0-9]+)
    |[ ]?(?:\\times|\\cdot|\*)[ ]?10[ ]?(?:\^|\*\*)[ ]?
    (?:\{[ ]?(?P<braced>[+-]?[0-9]+)[ ]?\}|(?P<bare>[+-]?[0-9]+)))"""
_DECIMAL = (
    rf"(?P<whole>{_WHOLE})?(?:\.(?P<decimals>[0-9]*)(?:\\overline\{{(?P<repeating>[0-9]+)\}})?)?{_POWER}?"
)
_PART = r"\{[ ]?(?P<%s>[+-]?[0-9]+)[ ]?\}|(?P<%s>[0-9])"
_FRACTION = rf"""(?:(?P<mixed>[0-9]+)[ ]?)?\\[dtc]?frac[ ]?(?:{_PART % ("top", "top_digit")})
    [ ]?(?:{_PART % ("bottom", "bottom_digit")})"""
_SLASHED = r"(?:(?P<mixed_slashed>[0-9]+)[ ])?(?P<over>[0-9]+)[ ]?(?:/|\\div)[ ]?(?P<under>[0-9]+)"
_NUMERAL = re.compile(
    rf"""(?P<before>[+-])?[ ]?(?P<currency>\\?\$|€|£|\\euro|\\pounds)?[ ]?(?P<sign>[+-])?[ ]?
    (?:{_FRACTION}|{_SLASHED}|{_DECIMAL})[ ]?(?P<percent>\\?%)?""",
    re.VERBOSE,
)
_CURRENCY = {"$": "dollar", "€": "euro", "\\euro": "euro", "£": "pound", "\\pounds": "pound"}
_WRAPPERS = (
    ("\\boxed{", "}"),
    ("**", "**"),
    ("$$", "$$"),
    ("$", "$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("`", "`"),
)


class Numeral(NamedTuple):
    """An exact value and the unit written with it: empty, `percent`, a currency, or other words."""

    value: Fraction | int
    unit: str = ""


def read(text: str) -> Numeral | None:
    """Return the numeral that the whole of `text` is, or None. Time is linear in the length of `text`."""
    if len(text) > MAX_CHARACTERS:
        return None
    if _INTEGER.fullmatch(text):
        return Numeral(int(text))
    match = _NUMERAL.fullmatch(bare(text))
    return None if match is None else numeral_of(match)


def prefix(text: str) -> tuple[Numeral, str] | None:
    """Return the numeral that `text` begins with and what follows it, or None."""
    text = bare(text[:MAX_CHARACTERS])
    match = _NUMERAL.match(text)
    numeral = None if match is None else numeral_of(match)
    if numeral is None or match is None:
        return None
    blank = " " if match.group().endswith(" ") else ""
    return numeral, blank + text[match.end() :]


def bare(text: str) -> str:
    """Return `text` without the delimiters, bold marks, trailing stop or line break around it.

    Runs of blanks become one, so that no pattern meets a long one.
    """
    text = _BLANKS.sub(" ", text).strip()
    for _ in range(4):
        before = text
        text = text.rstrip().removesuffix("\\\\").rstrip()
        if text.endswith((".", ",")) and not text.endswith(("..", "\\,")):
            text = text[:-1].rstrip()
        for opening, closing in _WRAPPERS:
            if (
                len(text) > len(opening) + len(closing)
                and text.startswith(opening)
                and text.endswith(closing)
            ):
                inner = text[len(opening) : -len(closing)]
                if opening not in inner:
                    text = inner.strip()
        if text == before:
            break
    return text


def numeral_of(match: re.Match[str]) -> Numeral | None:
    """Return the value of a matched numeral; None for two signs, no digits, or a zero denominator."""
    group = match.groupdict()
    if group["before"] and group["sign"]:
        return None
    if group["top"] or group["top_digit"]:
        value = _mixed(
            group["mixed"], group["top"] or group["top_digit"], group["bottom"] or group["bottom_digit"]
        )
    elif group["over"]:
        value = _mixed(group["mixed_slashed"], group["over"], group["under"])
    else:
        value = _decimal(group)
    if value is None:
        return None
    currency = (group["currency"] or "").replace("\\$", "$")
    if currency and group["percent"]:
        return None
    unit = "percent" if group["percent"] else _CURRENCY.get(currency, "")
    return Numeral(-value if "-" in (group["before"], group["sign"]) else value, unit)


def _mixed(whole: str | None, top: str, bottom: str) -> Fraction | None:
    over, under = int(top), int(bottom)
    if under == 0:
        return None
    if whole is None:
        return Fraction(over, under)
    return Fraction(int(whole) * under + over, under) if 0 < over < under else None


def _decimal(group: dict[str, str | None]) -> Fraction | int | None:
    whole, decimals, repeating = group["whole"] or "", group["decimals"] or "", group["repeating"] or ""
    if not (whole or decimals or repeating):
        return None
    exponent = int(group["exponent"] or group["braced"] or group["bare"] or 0)
    if abs(exponent) > MAX_EXPONENT:
        return None
    digits = "".join(filter(str.isdigit, whole))
    value = Fraction(int(digits + decimals or "0"), 10 ** len(decimals))
    if repeating:
        value += Fraction(int(repeating), (10 ** len(repeating) - 1) * 10 ** len(decimals))
    return value * Fraction(10) ** exponent


def equal(one: Numeral, other: Numeral, tolerance: Fraction | int = 0) -> bool:
    """Whether two numerals are the same value, or at most `tolerance` apart.

    A unit on one side alone is ignored, two must agree.
    """
    near = abs(one.value - other.value) <= tolerance
    return near and (one.unit == other.unit or not one.unit or not other.unit)
