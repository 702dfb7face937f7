"""Sets of real numbers as unions of intervals, however they are written."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

from mpmath import mp

from rewards.maths import algebra, exact, expressions, nodes, relations
from rewards.maths.nodes import Node, Undefined, Unsupported

_CLOSE = mp.mpf(10) ** -45
_FLIPPED = relations.FLIPPED
_MINUS_INFINITY = nodes.negate(nodes.INFINITY)


class End(NamedTuple):
    """An end of an interval: its value to 50 digits, its expression if known, and whether it belongs."""

    value: Any
    node: Node | None
    closed: bool


class Interval(NamedTuple):
    """From one end to another; a point has equal closed ends."""

    low: End
    high: End


class Region(NamedTuple):
    """A set of reals, intervals in order and apart, and the variable that it was written for, if any."""

    name: str | None
    intervals: tuple[Interval, ...]


def region(node: Node) -> Region | None:
    """Return the set of reals that `node` describes, or None if it describes none.

    Raises:
        Undefined, Unsupported: an end has no real constant value.
    """
    if node.kind == "reals":
        return Region(None, (Interval(_end(_MINUS_INFINITY, False), _end(nodes.INFINITY, False)),))
    if node.kind in ("tuple", "list", "interval") and len(node.args) == 2:
        brackets = {"tuple": "()", "list": "[]"}.get(node.kind, node.value)
        return _interval(node.args[0], brackets[0] == "[", node.args[1], brackets[1] == "]")
    if node.kind == "set" or (node.kind == "items" and not _has_conditions(node)):
        return Region(None, _merged([_point(arg) for arg in node.args]))
    if node.kind == "relation":
        return _relation(node)
    if node.kind in ("union", "intersection", "difference"):
        return _combined(node.kind, *(region(arg) for arg in node.args))
    return _items(node) if node.kind == "items" else None


def _has_conditions(node: Node) -> bool:
    """Whether a list has members other than values."""
    return any(arg.kind in ("relation", "interval", "union", "tuple", "list", "set") for arg in node.args)


def same(one: Region, other: Region) -> bool:
    """Whether two regions hold the same numbers of variables that may be the same."""
    if one.name and other.name and one.name != other.name:
        return False
    return len(one.intervals) == len(other.intervals) and all(
        _same_end(this.low, that.low) and _same_end(this.high, that.high)
        for this, that in zip(one.intervals, other.intervals, strict=True)
    )


def _same_end(one: End, other: End) -> bool:
    if one.closed != other.closed:
        return False
    if one.node is not None and other.node is not None:
        return expressions.same(one.node, other.node)
    return _order(one, other) == 0


def _end(node: Node, closed: bool) -> End:
    node = exact.fold(node)
    return End(expressions.value(node), node, closed and not exact.is_infinite(node))


def _point(node: Node) -> Interval:
    return Interval(_end(node, True), _end(node, True))


def _interval(low: Node, low_closed: bool, high: Node, high_closed: bool) -> Region:
    interval = Interval(_end(low, low_closed), _end(high, high_closed))
    order = _order(interval.low, interval.high)
    if order > 0:
        raise Undefined("an interval whose ends are the wrong way round")
    return Region(None, (interval,) if order < 0 or (interval.low.closed and interval.high.closed) else ())


def _order(one: End, other: End) -> int:
    """Return the sign of `one - other`."""
    with mp.workprec(expressions.FIRST_BITS):
        if one.value == other.value:
            return 0
        difference = one.value - other.value
        if mp.isfinite(difference) and abs(difference) <= _CLOSE * max(1, abs(one.value)):
            return 0
        return 1 if difference > 0 else -1


def _relation(node: Node) -> Region | None:
    if node.value == ("in",):
        inside = region(node.args[1])
        name = node.args[0].value if node.args[0].kind == "symbol" else None
        return None if inside is None else Region(name, inside.intervals)
    if len(node.args) > 2:
        pairs = zip(node.args, node.args[1:], node.value, strict=False)
        return reduce(_intersected, (_comparison(left, op, right) for left, right, op in pairs))
    return _comparison(node.args[0], node.value[0], node.args[1])


def _comparison(left: Node, op: str, right: Node) -> Region | None:
    if op not in _FLIPPED:
        return None
    if right.kind == "symbol" and not nodes.symbols(left):
        left, op, right = right, _FLIPPED[op], left
    if left.kind == "symbol" and not nodes.symbols(right):
        return Region(left.value, _ray(op, right))
    names = nodes.symbols(left) | nodes.symbols(right)
    if len(names) != 1 or op == "=":
        return None
    difference = exact.fold(Node("add", (left, nodes.negate(right))))
    linear = _linear(difference, op, min(names))
    if linear is not None:
        return linear
    found = algebra.solve_inequality(difference, op)
    ends = [Interval(End(low, None, a), End(high, None, b)) for low, a, high, b in found]
    return Region(min(names), _merged(ends))


def _linear(difference: Node, op: str, name: str) -> Region | None:
    """Solve an inequality whose difference is linear, without algebra; None if it is not linear."""
    if nodes.mentions(difference, "absolute", "function", "root", "factorial"):
        return None
    at_zero, at_one = (
        exact.fold(relations.substitute(difference, {name: Fraction(place)})) for place in (0, 1)
    )
    slope = exact.fold(Node("add", (at_one, nodes.negate(at_zero))))
    line = Node("add", (at_zero, Node("multiply", (slope, nodes.symbol(name)))))
    size = expressions.value(slope)
    if size == 0 or not expressions.same(difference, line):
        return None
    end = exact.fold(nodes.negate(Node("divide", (at_zero, slope))))
    return Region(name, _ray(op if size > 0 else _FLIPPED[op], end))


def _ray(op: str, end: Node) -> tuple[Interval, ...]:
    if op == "=":
        return (_point(end),)
    if op == "!=":
        return _complement((_point(end),))
    closed = op.endswith("=")
    if op.startswith("<"):
        return _interval(_MINUS_INFINITY, False, end, closed).intervals
    return _interval(end, closed, nodes.INFINITY, False).intervals


def _combined(kind: str, one: Region | None, other: Region | None) -> Region | None:
    if one is None or other is None:
        return None
    if kind == "intersection":
        return _intersected(one, other)
    if kind == "difference":
        return _intersected(one, Region(other.name, _complement(other.intervals)))
    name = _common_name(one, other)
    return Region(name, _merged([*one.intervals, *other.intervals]))


def _intersected(one: Region | None, other: Region | None) -> Region | None:
    """Return the intersection: what lies outside neither."""
    if one is None or other is None:
        return None
    outside = _merged([*_complement(one.intervals), *_complement(other.intervals)])
    return Region(_common_name(one, other), _complement(outside))


def _common_name(one: Region, other: Region) -> str | None:
    if one.name and other.name and one.name != other.name:
        raise Unsupported("a set of several variables")
    return one.name or other.name


def _items(node: Node) -> Region | None:
    """Return the union of alternatives, or the intersection of listed conditions unless it is empty."""
    parts = [region(arg) or Region(None, (_point(arg),)) for arg in node.args]
    if node.value != "or":
        both = reduce(_intersected, parts)
        if node.value == "and" or (both is not None and both.intervals):
            return both
    return reduce(lambda one, other: _combined("union", one, other), parts)


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    """Return the union of intervals as separate ones in order."""
    merged: list[Interval] = []
    for interval in sorted(intervals, key=lambda item: (item.low.value, not item.low.closed)):
        last = merged[-1] if merged else None
        gap = 1 if last is None else _order(interval.low, last.high)
        if last is None or gap > 0 or (gap == 0 and not interval.low.closed and not last.high.closed):
            merged.append(interval)
            continue
        further = _order(interval.high, last.high)
        if further > 0 or (further == 0 and interval.high.closed):
            merged[-1] = Interval(last.low, interval.high)
    return tuple(merged)


def _complement(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Return the reals outside `intervals`, which are separate and in order."""
    gaps = []
    low = _end(_MINUS_INFINITY, False)
    for interval in intervals:
        if not (mp.isinf(low.value) and mp.isinf(interval.low.value)):
            gaps.append(Interval(low, interval.low._replace(closed=not interval.low.closed)))
        low = interval.high._replace(closed=not interval.high.closed)
    if not (mp.isinf(low.value) and low.value > 0):
        gaps.append(Interval(low, _end(nodes.INFINITY, False)))
    return tuple(gap for gap in gaps if _order(gap.low, gap.high) < 0 or (gap.low.closed and gap.high.closed))
