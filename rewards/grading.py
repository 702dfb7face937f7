"""From a response and a reference to a Reward: extract, compare exactly, else ask a worker."""

from __future__ import annotations

from functools import lru_cache

from rewards.extract import EXTRACTORS
from rewards.maths import lines, numerals
from vineenv.types import Reward, RewardStatus

MAX_ANSWER = 1500
_NUMERAL_STYLES = ("gsm8k", "plain")
STYLES = tuple(EXTRACTORS)


def grade(response: str, reference: str, style: str = "boxed") -> Reward:
    """Grade one response; see `rewards.grade`."""
    if style not in EXTRACTORS:
        raise ValueError(f"No style {style!r}: it is one of {', '.join(EXTRACTORS)}.")
    if not isinstance(reference, str) or not reference.strip():
        return Reward(0.0, "gold_error")
    answer = EXTRACTORS[style](response) if isinstance(response, str) else None
    if answer is None:
        return Reward(0.0, "no_answer")
    status = _status(answer, reference, style)
    return Reward(1.0 if status == "correct" else 0.0, status, answer)


@lru_cache(maxsize=65536)
def _status(answer: str, reference: str, style: str) -> RewardStatus:
    read = lines.read if style in _NUMERAL_STYLES else numerals.read
    gold, given = read(reference), read(answer)
    if gold is not None and given is not None:
        return "correct" if numerals.equal(gold, given) else "wrong"
    if style in _NUMERAL_STYLES and (gold or given):
        return "unparsed" if gold else "wrong"
    from rewards.maths.verdict import judge
    return judge(answer, reference)
