"""One form for what is written in several: expanded ±, resolved approximations, units outermost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from rewards.maths import expressions, nodes
from rewards.maths.nodes import Node, Unsupported
from rewards.maths.relations import label

MAX_SIGNS = 3
_ROUNDING = 0.01


def canonical(node: Node) -> Node:
    """Return the form in which answers are compared.

    Raises:
        Unsupported: an equation of constants that does not hold, or too many alternatives.
    """
    if node.kind == "relation":
        return _relation(node)
    if node.kind == "items":
        return _items(node)
    if node.kind == "set":
        return Node("set", _flattened(node.args))
    if node.kind == "list" and len(node.args) == 1 and node.args[0].kind == "matrix":
        return node.args[0]
    if node.kind in ("tuple", "list") and not nodes.mentions(node, "plusminus"):
        return Node(node.kind, tuple(canonical(arg) for arg in node.args))
    if node.kind == "multiply" and node.args[1].kind == "matrix":
        scalar, matrix = node.args
        return Node("matrix", tuple(Node("multiply", (scalar, entry)) for entry in matrix.args), matrix.value)
    if nodes.mentions(node, "plusminus"):
        return Node("items", _expanded(node), ",")
    return _with_unit(node)


def _with_unit(node: Node) -> Node:
    """Return `node` with a degree mark as a unit, outside a sign."""
    if node.kind == "degrees":
        return Node("quantity", node.args, "degree")
    if node.kind == "negate":
        inner = _with_unit(node.args[0])
        return nodes.negate(inner) if inner.kind == "quantity" else node
    return node


def _expanded(node: Node) -> tuple[Node, ...]:
    """Return the two (or more) values of an expression with ±; ∓ takes the opposite sign of every ±."""
    marks = [part for part in node.walk() if part.kind == "plusminus"]
    if len(marks) > MAX_SIGNS:
        raise Unsupported("too many signs")
    linked = any(mark.value == "mp" for mark in marks)
    choices = [(sign,) * len(marks) for sign in (1, -1)] if linked else product((1, -1), repeat=len(marks))
    return tuple(_with_unit(_signed(node, iter(signs))) for signs in choices)


def _signed(node: Node, signs: Iterator[int]) -> Node:
    if node.kind != "plusminus":
        return Node(node.kind, tuple(_signed(arg, signs) for arg in node.args), node.value)
    sign = next(signs) * (-1 if node.value == "mp" else 1)
    left, right = (_signed(arg, signs) for arg in node.args)
    return Node("add", (left, right if sign > 0 else nodes.negate(right)))


def _flattened(args: tuple[Node, ...]) -> tuple[Node, ...]:
    members: list[Node] = []
    for arg in args:
        member = canonical(arg)
        members.extend(member.args if member.kind == "items" else (member,))
    return tuple(members)


def _items(node: Node) -> Node:
    """Return a list with ± expanded; in `x = 2, 3` the name holds for all."""
    first = node.args[0]
    named = first.kind == "relation" and first.value == ("=",) and label(first.args[0]) is not None
    if named and all(arg.kind not in ("relation", "text") for arg in node.args[1:]):
        rest = (Node("relation", (first.args[0], arg), ("=",)) for arg in node.args[1:])
        return Node("items", _flattened((first, *rest)), node.value)
    return Node("items", _flattened(node.args), node.value)


def _relation(node: Node) -> Node:
    sides, ops = list(node.args), list(node.value)
    while len(ops) > 1 and ops[-1] == "approx":
        _check_rounding(sides[-2], sides[-1])
        sides.pop(), ops.pop()
    if ops == ["approx"]:
        if label(sides[0]) is None:
            _check_rounding(sides[0], sides[1])
            return canonical(sides[0])
        ops = ["="]
    if set(ops) == {"="}:
        return _equation(sides)
    return Node("relation", tuple(sides), tuple(ops))


def _equation(sides: list[Node]) -> Node:
    """Return one equation for a chain `x = 2 + 3 = 5`, or the value where there is no name."""
    name = sides[0] if label(sides[0]) is not None else None
    values = sides[1:] if name else sides
    constant = not any(nodes.symbols(value) for value in values)
    if len(values) > 1 and constant:
        if not all(expressions.same(value, values[-1]) for value in values[:-1]):
            raise Unsupported("an equation of constants that does not hold")
        values = values[-1:]
    if name is None:
        return canonical(values[0]) if len(values) == 1 else _pair(values)
    if len(values) > 1:
        values = values[-1:]
    value = canonical(values[0])
    if value.kind == "items":
        return Node("items", tuple(Node("relation", (name, arg), ("=",)) for arg in value.args), value.value)
    return Node("relation", (name, value), ("=",))


def _pair(values: list[Node]) -> Node:
    if len(values) > 2:
        raise Unsupported("a chain of equations")
    return Node("relation", tuple(values), ("=",))


def _check_rounding(value: Node, approximation: Node) -> None:
    exact, rounded = expressions.value(value), expressions.value(approximation)
    if abs(exact - rounded) > _ROUNDING * max(abs(exact), abs(rounded)):
        raise Unsupported("an approximation of another value")
