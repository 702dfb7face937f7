"""Exact rational arithmetic on trees, with every size bounded before anything is computed."""

from __future__ import annotations

import math
from fractions import Fraction

from rewards.maths import nodes
from rewards.maths.nodes import Node, Undefined, Unsupported

MAX_BITS = 100_000
MAX_FACTORIAL = 5000
_ARITHMETIC = ("add", "multiply", "divide", "power", "root", "factorial", "absolute", "function", "plusminus")


def fold(node: Node) -> Node:
    """Return `node` with every rational part of it computed.

    Raises:
        Undefined: it divides by zero or computes with infinity.
        Unsupported: a number in it would be too large.
    """
    if not node.args:
        return node
    args = tuple(fold(arg) for arg in node.args)
    if node.kind in _ARITHMETIC and any(is_infinite(arg) for arg in args):
        raise Undefined("arithmetic with infinity")
    if node.kind == "negate":
        return args[0].args[0] if args[0].kind == "negate" else nodes.negate(args[0])
    rule = _RULES.get(node.kind)
    folded = rule(args, node.value) if rule else None
    return Node(node.kind, args, node.value) if folded is None else folded


def is_infinite(node: Node) -> bool:
    """Whether `node` is plus or minus infinity."""
    return node == nodes.INFINITY or node == Node("negate", (nodes.INFINITY,))


def _number(value: Fraction | int) -> Node:
    value = Fraction(value)
    if value.numerator.bit_length() + value.denominator.bit_length() > 2 * MAX_BITS:
        raise Unsupported("too large a number")
    return nodes.number(value)


def _values(args: tuple[Node, ...]) -> list[Fraction] | None:
    return [arg.value for arg in args] if all(arg.kind == "number" for arg in args) else None


def _split(args: tuple[Node, ...]) -> tuple[list[Fraction], list[Node]]:
    """Return the numbers among `args` and the rest."""
    return [arg.value for arg in args if arg.kind == "number"], [arg for arg in args if arg.kind != "number"]


def _add(args: tuple[Node, ...], _: object) -> Node:
    flat = tuple(part for arg in args for part in (arg.args if arg.kind == "add" else (arg,)))
    numbers, rest = _split(flat)
    total = sum(numbers, Fraction(0))
    if not rest:
        return _number(total)
    parts = ([_number(total)] if total else []) + rest
    return parts[0] if len(parts) == 1 else Node("add", tuple(parts))


def _multiply(args: tuple[Node, ...], _: object) -> Node:
    flat = tuple(part for arg in args for part in (arg.args if arg.kind == "multiply" else (arg,)))
    numbers, rest = _split(flat)
    product = Fraction(1)
    for value in numbers:
        product = _number(product * value).value
    if not rest or product == 0:
        return _number(product)
    parts = ([_number(product)] if product != 1 else []) + rest
    return parts[0] if len(parts) == 1 else Node("multiply", tuple(parts))


def _divide(args: tuple[Node, ...], _: object) -> Node | None:
    top, bottom = args
    if bottom.kind != "number":
        return None
    if bottom.value == 0:
        raise Undefined("division by zero")
    if top.kind == "number":
        return _number(top.value / bottom.value)
    return top if bottom.value == 1 else None


def _power(args: tuple[Node, ...], _: object) -> Node | None:
    base, exponent = args
    if exponent.kind != "number":
        return None
    power = exponent.value
    if power == 1:
        return base
    if base.kind != "number":
        return nodes.number(1) if power == 0 else None
    if base.value == 0:
        if power <= 0:
            raise Undefined("zero to a power that is not positive")
        return nodes.number(0)
    if power.denominator == 1:
        return _integer_power(base.value, int(power))
    root = _exact_root(base.value, power.denominator)
    return None if root is None else _integer_power(root, power.numerator)


def _integer_power(base: Fraction, power: int) -> Node:
    if abs(base) == 1:
        return nodes.number(base ** (power % 2))
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size * abs(power) > MAX_BITS:
        raise Unsupported("too large a power")
    return _number(base**power)


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    """Return the real root if it is rational."""
    if value < 0:
        root = _exact_root(-value, degree) if degree % 2 else None
        return None if root is None else -root
    if degree > 64:
        return None
    top, bottom = _integer_root(value.numerator, degree), _integer_root(value.denominator, degree)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _integer_root(value: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(value)
    else:
        low, high = 0, 1 << (value.bit_length() // degree + 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
        root = low
    return root if root**degree == value else None


def _root(args: tuple[Node, ...], _: object) -> Node | None:
    values = _values(args)
    if values is None or values[1].denominator != 1 or values[1] < 1:
        return None
    if values[0] == 0:
        return nodes.number(0)
    root = _exact_root(values[0], int(values[1]))
    return None if root is None else nodes.number(root)


def _factorial(args: tuple[Node, ...], marks: int) -> Node | None:
    values = _values(args)
    if values is None:
        return None
    if marks > 2 or values[0].denominator != 1 or not 0 <= values[0] <= MAX_FACTORIAL:
        raise Unsupported("no plain factorial")
    top = int(values[0])
    return _number(math.factorial(top) if marks == 1 else math.prod(range(top, 0, -2)))


def _absolute(args: tuple[Node, ...], _: object) -> Node | None:
    return nodes.number(abs(args[0].value)) if args[0].kind == "number" else None


def _function(args: tuple[Node, ...], name: str) -> Node | None:
    values = _values(args)
    if values is None:
        return None
    if name == "floor":
        return nodes.number(math.floor(values[0]))
    if name == "ceil":
        return nodes.number(math.ceil(values[0]))
    if name == "binomial":
        return _binomial(values[0], values[1])
    if name == "log" and values[0] == 1:
        return nodes.number(0)
    if name == "log" and values[0] == 0:
        raise Undefined("the logarithm of zero")
    return None


def _binomial(top: Fraction, bottom: Fraction) -> Node:
    if top.denominator != 1 or bottom.denominator != 1 or top < 0 or bottom < 0:
        raise Unsupported("no plain binomial")
    chosen = min(bottom, max(top - bottom, Fraction(0)))
    if top > 10**6 or chosen * top.numerator.bit_length() > MAX_BITS:
        raise Unsupported("too large a binomial")
    return _number(math.comb(int(top), int(bottom)))


_RULES = {
    "add": _add,
    "multiply": _multiply,
    "divide": _divide,
    "power": _power,
    "root": _root,
    "factorial": _factorial,
    "absolute": _absolute,
    "function": _function,
}
