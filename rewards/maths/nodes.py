"""The tree that an answer is read into, and the ways in which reading can fail.

Kinds of node, with `value` in brackets:

    numbers      number [Fraction], constant [pi, e, i, infinity], symbol [name]
    arithmetic   add, multiply, divide, power, negate, plusminus [± or ∓], factorial [number of marks],
                 absolute, root (radicand, degree), degrees, function [name]
    answers      quantity [unit], text [words], base [(digits, base)], ratio, remainder, time [minutes, half],
                 tuple, list, interval [brackets], set, items [separator], matrix [rows], union, intersection,
                 difference, relation [operators], reals
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


class MathsError(ValueError):
    """An answer that cannot be compared as mathematics."""


class Malformed(MathsError):
    """It is not written as mathematics: unbalanced, incomplete, or not mathematics at all."""


class Unsupported(MathsError):
    """It may be mathematics, but of a kind or size that is compared only as text."""


class Undefined(MathsError):
    """It has no value: a zero denominator, infinity minus infinity."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of an answer's tree."""

    kind: str
    args: tuple[Node, ...] = ()
    value: Any = None

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.args)


INFINITY = Node("constant", value="infinity")


def number(value: int | Fraction) -> Node:
    """Return a number node."""
    return Node("number", value=Fraction(value))


def symbol(name: str) -> Node:
    """Return a symbol node."""
    return Node("symbol", value=name)


def negate(node: Node) -> Node:
    """Return minus `node`, folded for a number and passed inside a unit."""
    if node.kind == "number":
        return number(-node.value)
    if node.kind == "quantity":
        return Node("quantity", (negate(node.args[0]),), node.value)
    return Node("negate", (node,))


def symbols(node: Node) -> set[str]:
    """Return the names of all symbols in `node`."""
    return {part.value for part in node.walk() if part.kind == "symbol"}


def mentions(node: Node, *kinds: str) -> bool:
    """Whether a node of one of these kinds is in `node`."""
    return any(part.kind in kinds for part in node.walk())
