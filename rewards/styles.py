"""The styles of answer: where each is found in a response, and what settles it without a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rewards import extract, paper
from rewards.maths import lines, numerals
from rewards.maths.numerals import Numeral
from vineenv.types import RewardStatus


class Style(NamedTuple):
    """One style of answer.

    Attributes:
        find: returns the answer in a response, or None.
        settle: returns the status where answer and reference are numerals, else None.
        numerals_only: whether a numeral equals only a numeral, so that `48*17` is not the answer 816.
    """

    find: Callable[[str], str | None]
    settle: Callable[[str, str], RewardStatus | None]
    numerals_only: bool = False


def _settled(gold: Numeral | None, given: Numeral | None) -> RewardStatus | None:
    if gold is None or given is None:
        return None
    return "correct" if numerals.equal(gold, given) else "wrong"


def _exact(answer: str, reference: str) -> RewardStatus | None:
    return _settled(numerals.read(reference), numerals.read(answer))


def _line(answer: str, reference: str) -> RewardStatus | None:
    gold, given = lines.read(reference), lines.read(answer)
    return "unparsed" if gold is not None and given is None else _settled(gold, given)


def _lenient(answer: str, reference: str) -> RewardStatus | None:
    close = paper.close(answer, reference)
    return None if close is None else "correct" if close else "wrong"


STYLES = {
    "boxed": Style(extract.boxed, _exact),
    "gsm8k": Style(extract.gsm8k, _line, numerals_only=True),
    "plain": Style(extract.plain, _line, numerals_only=True),
    "paper": Style(paper.find, _lenient),
}


def style_named(name: str) -> Style:
    """Return a style.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in STYLES:
        raise ValueError(f"No style {name!r}: it is one of {', '.join(STYLES)}.")
    return STYLES[name]
