"""Equations and inequalities: which name one defines, and when two are the same."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from rewards.maths import algebra, expressions, nodes
from rewards.maths.nodes import Node, Undefined, Unsupported

FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
_FUNCTION_NAMES = frozenset("fghpqrFGHPQRT")


def label(node: Node) -> str | None:
    r"""Return the name that a left side defines: `x`, `f(x)`, `|AB|`, `\angle ABC`, words; or None."""
    if node.kind == "symbol":
        return node.value
    if node.kind == "text":
        return "words"
    if node.kind == "absolute":
        inner = label(node.args[0])
        return None if inner is None else f"|{inner}|"
    if node.kind == "multiply":
        return _product_label(node)
    if node.kind == "tuple" and all(arg.kind == "symbol" for arg in node.args):
        return f"({','.join(arg.value for arg in node.args)})"
    return None


def _product_label(node: Node) -> str | None:
    """Return the name of a segment (`AB`) or a function with its argument (`f(x)`), both read as products."""
    left, right = node.args
    if left.kind == "power" and left.args[0].kind == "symbol" and left.args[1] == nodes.number(-1):
        return f"{left.args[0].value}^-1({label(right)})"
    first, second = label(left), label(right)
    if first is None or second is None:
        return None
    if first.isupper() and second.isupper():
        return first + second
    is_function = first.rstrip("'") in _FUNCTION_NAMES or "\\angle" in second
    return f"{first}({second})" if is_function else None


def definition(node: Node) -> tuple[str, Node] | None:
    """Return the name and value of `name = value`, also written `value = name`; else None."""
    if node.kind != "relation" or node.value != ("=",):
        return None
    left, right = node.args
    name = label(left)
    if name is not None:
        return name, right
    name = label(right)
    return None if name is None or not _is_constant(left) else (name, left)


def _is_constant(node: Node) -> bool:
    return not nodes.symbols(node) and not nodes.mentions(node, "text")


def same_relation(one: Node, other: Node) -> bool:
    """Whether two relations of two sides are the same up to a constant factor (positive, if ordered)."""
    if len(one.args) != 2 or len(other.args) != 2:
        return False
    one_op, other_op = one.value[0], other.value[0]
    if one_op not in FLIPPED or other_op not in FLIPPED:
        return False
    left, right = _difference(one), _difference(other)
    if nodes.symbols(left) != nodes.symbols(right):
        return False
    if one_op in ("=", "!="):
        if one_op != other_op:
            return False
        return _proportional(left, right) is not None or algebra.same_zeros(left, right)
    sign = _proportional(left, right)
    return sign is not None and other_op == (one_op if sign > 0 else FLIPPED[one_op])


def _difference(relation: Node) -> Node:
    return Node("add", (relation.args[0], nodes.negate(relation.args[1])))


def _proportional(one: Node, other: Node) -> int | None:
    """Return the sign of c where `one = c · other` with a constant c, or None if there is no such c."""
    for point in expressions.points(frozenset(nodes.symbols(one) | nodes.symbols(other))):
        here, there = substitute(one, point), substitute(other, point)
        try:
            values = expressions.value(here), expressions.value(there)
        except (Undefined, Unsupported):
            continue
        if not (values[0] and values[1]):
            continue
        cross = Node("multiply", (one, there)), Node("multiply", (other, here))
        return (1 if values[0] * values[1] > 0 else -1) if expressions.same(*cross) else None
    return None


def substitute(node: Node, point: Mapping[str, Fraction]) -> Node:
    """Return `node` with its symbols replaced by numbers."""
    if node.kind == "symbol":
        return nodes.number(point[node.value])
    return Node(node.kind, tuple(substitute(arg, point) for arg in node.args), node.value)
