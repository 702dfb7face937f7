"""Whether two expressions are the same function of their symbols."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from mpmath import mp

from rewards.maths import exact, nodes
from rewards.maths.nodes import Node, Undefined, Unsupported
from rewards.maths.numeric import Evaluator, NonReal

FIRST_BITS = 170
MAX_BITS = 20_000
ENOUGH_POINTS = 3

_RANGES = ((0.2, 1), (1, 3), (0.2, 3), (-3, -0.2), (-1, 1), (-3, 3), (3, 20), (-1, 0), (20, 90), (0.01, 0.2))


def same(one: Node, other: Node) -> bool:
    """Whether two expressions are equal: exactly for rationals, else at many random points to many digits.

    Two values count as equal only if they agree to half of a precision that grows with the range of sizes met
    while evaluating them, so neither a last digit nor a tiny term is lost. Points at which only one side is
    defined do not count; over the reals an odd root of a negative number is negative.

    Raises:
        Undefined: an expression has no value. Unsupported: it is too large to evaluate.
    """
    one, other = exact.fold(one), exact.fold(other)
    if one == other:
        return True
    if (
        (one.kind == "number" and other.kind == "number")
        or exact.is_infinite(one)
        or exact.is_infinite(other)
    ):
        return False
    names = nodes.symbols(one) | nodes.symbols(other)
    candidates = points(frozenset(names)) if names else ({},)
    enough = ENOUGH_POINTS if names else 1
    has_i = any(
        part.value == "i" and part.kind == "constant" for node in (one, other) for part in node.walk()
    )
    for real in (False,) if has_i else (True, False):
        agreed = 0
        for point in candidates:
            verdict = _agree(one, other, point, real=real)
            if verdict is False:
                return False
            agreed += verdict is True
        if agreed >= enough:
            return True
    return False


@lru_cache(maxsize=512)
def points(names: frozenset[str]) -> tuple[Mapping[str, Fraction], ...]:
    """Return fixed random points, some all positive, some of mixed sign."""
    source = random.Random(20_240_229)
    ordered = sorted(names)
    return tuple(
        {name: Fraction(source.uniform(low, high)).limit_denominator(10**6) for name in ordered}
        for low, high in _RANGES
    )


def _agree(one: Node, other: Node, point: Mapping[str, Fraction], *, real: bool) -> bool | None:
    """Return whether both sides agree at a point; None where one of them has no value."""
    bits = FIRST_BITS
    for _ in range(2):
        try:
            close, spread = _close(one, other, point, bits, real=real)
        except NonReal:
            return None
        except Undefined:
            if not point:
                raise
            return None
        if not close:
            return False
        bits = 3 * FIRST_BITS + 2 * spread
        if bits > MAX_BITS:
            raise Unsupported("parts of too different a size")
    return True


def _close(
    one: Node, other: Node, point: Mapping[str, Fraction], bits: int, *, real: bool
) -> tuple[bool, int]:
    """Return whether the values agree to half of `bits`, and the range of sizes met, in bits."""
    with mp.workprec(bits):
        at = Evaluator(point, real=real)
        difference = at.value(one) - at.value(other)
        spread = at.high - at.low
        return difference == 0 or int(mp.mag(difference)) <= at.high - bits // 2, spread


def value(node: Node) -> Any:
    """Return the real value of a constant expression to 50 digits; plus or minus infinity included.

    Raises:
        Undefined: it is not real. Unsupported: it has symbols.
    """
    node = exact.fold(node)
    if exact.is_infinite(node):
        return mp.inf if node == nodes.INFINITY else -mp.inf
    if nodes.symbols(node):
        raise Unsupported("no constant")
    with mp.workprec(FIRST_BITS):
        return Evaluator({}, real=True).value(node)
