"""The questions that need a computer algebra system; it is given trees, never text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rewards.maths import nodes
from rewards.maths.nodes import Node, Unsupported

# Loading takes longer than a comparison may: a process with a deadline forbids it.
may_load: bool = True

MAX_NODES = 150
MAX_POWER = 8

# In inequalities, whose solver is far slower.
MAX_POWER_IN_SUM = 6
MAX_POWER_IN_FRACTION = 3
MAX_POWER_IN = {"absolute": 2, "root": 1}
MAX_HARD_PARTS = 2
MAX_MENTIONS = 8


class NotLoaded(Exception):
    """The algebra system would have to be loaded first."""


def is_loaded() -> bool:
    """Whether the algebra system is in memory."""
    return "sympy" in sys.modules


def load() -> Any:
    """Return the algebra system, loading it if need be.

    Raises:
        NotLoaded: that is forbidden here.
    """
    if not is_loaded() and not may_load:
        raise NotLoaded("the algebra system is not loaded")
    import sympy
    import sympy.solvers.inequalities

    return sympy


def warm_up() -> None:
    """Load the algebra system and fill its caches, so that processes forked from this one answer at once."""
    x = nodes.symbol("x")
    same_zeros(Node("divide", (nodes.number(1), x)), Node("divide", (x, nodes.number(2))))
    for left in (Node("power", (x, nodes.number(2))), Node("absolute", (x,))):
        solve_inequality(Node("add", (left, nodes.number(-4))), "<")


def same_zeros(one: Node, other: Node) -> bool:
    """Whether two rational functions have proportional numerators, so that `y = 1/x` is `xy = 1`.

    A factor that both may vanish by is kept: only what stands in a denominator is cleared.
    """
    if not (_has_denominator(one) or _has_denominator(other)):
        return False
    sympy = load()
    top, bottom = (sympy.fraction(sympy.together(to_sympy(node)))[0] for node in (one, other))
    if top == 0 or bottom == 0:
        return False
    return not sympy.cancel(top / bottom).free_symbols


def solve_inequality(difference: Node, op: str) -> list[tuple[Any, bool, Any, bool]]:
    """Return where `difference op 0` holds: intervals as (low, closed, high, closed), ends as mpmath numbers.

    Raises:
        Unsupported: the solver cannot tell.
    """
    _check_difficulty(difference)
    sympy = load()
    left = to_sympy(difference)
    if len(left.free_symbols) != 1:
        raise Unsupported("not in one variable")
    (variable,) = left.free_symbols
    try:
        relation = sympy.Rel(left, 0, op)
        solution = sympy.solve_univariate_inequality(relation, variable, relational=False)
    except (NotImplementedError, ValueError, TypeError) as error:
        raise Unsupported("no solution found") from error
    parts = solution.args if isinstance(solution, sympy.Union) else (solution,)
    return [interval for part in parts for interval in _intervals(part, sympy)]


def _check_difficulty(difference: Node) -> None:
    """Refuse inequalities that would take the solver seconds: high powers, or parts of several kinds."""
    limits = [
        MAX_POWER_IN[part.kind] for part in difference.walk() if part.kind in MAX_POWER_IN and part.args
    ]
    if len({*limits}) > 1 or len(limits) > MAX_HARD_PARTS or (_has_denominator(difference) and limits):
        raise Unsupported("too hard an inequality")
    limit = min(limits, default=MAX_POWER_IN_FRACTION if _has_denominator(difference) else MAX_POWER_IN_SUM)
    powers = [part.args[1] for part in difference.walk() if part.kind == "power"]
    mentioned = sum(part.kind == "symbol" for part in difference.walk())
    if mentioned > MAX_MENTIONS or any(power.kind == "number" and power.value > limit for power in powers):
        raise Unsupported("too hard an inequality")


def _intervals(part: Any, sympy: Any) -> list[tuple[Any, bool, Any, bool]]:
    if part is sympy.S.EmptySet:
        return []
    if isinstance(part, sympy.FiniteSet):
        return [(_end(point), True, _end(point), True) for point in part]
    if not isinstance(part, sympy.Interval):
        raise Unsupported("no union of intervals")
    return [(_end(part.start), not part.left_open, _end(part.end), not part.right_open)]


def _end(value: Any) -> Any:
    return value.evalf(60)._to_mpmath(200) if value.is_finite else value._to_mpmath(200)


def _has_denominator(node: Node) -> bool:
    return any(
        (part.kind == "divide" and nodes.symbols(part.args[1]))
        or (part.kind == "power" and _is_negative(part.args[1]))
        for part in node.walk()
    )


def _is_negative(node: Node) -> bool:
    return node.kind == "negate" or (node.kind == "number" and node.value < 0)


def to_sympy(node: Node) -> Any:
    """Build the sympy expression of a small tree.

    Raises:
        Unsupported: it is too large, or has a kind that algebra is not asked about.
    """
    if sum(1 for _ in node.walk()) > MAX_NODES:
        raise Unsupported("too many nodes for algebra")
    return _build(node, load())


def _build(node: Node, sympy: Any) -> Any:
    if node.kind == "number":
        return sympy.Rational(node.value.numerator, node.value.denominator)
    if node.kind == "symbol":
        return sympy.Symbol(node.value, real=True)
    if node.kind == "constant" and node.value in ("pi", "e"):
        return sympy.pi if node.value == "pi" else sympy.E
    rule = _RULES.get(node.kind)
    if rule is None:
        raise Unsupported(f"no algebra of a {node.kind}")
    args = [_build(arg, sympy) for arg in node.args]
    if node.kind == "power" and args[1].is_number and abs(args[1]) > MAX_POWER:
        raise Unsupported("too large a power for algebra")
    return rule(sympy, args)


_RULES: dict[str, Callable[[Any, list[Any]], Any]] = {
    "add": lambda sympy, args: sympy.Add(*args),
    "negate": lambda sympy, args: -args[0],
    "multiply": lambda sympy, args: sympy.Mul(*args),
    "divide": lambda sympy, args: args[0] / args[1],
    "power": lambda sympy, args: args[0] ** args[1],
    "root": lambda sympy, args: sympy.root(args[0], args[1]),
    "absolute": lambda sympy, args: sympy.Abs(args[0]),
}
