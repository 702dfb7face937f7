"""The value of an expression at a point, to any precision, and the range of sizes of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from mpmath import mp

from rewards.maths.nodes import Node, Undefined, Unsupported

MAX_EXPONENT = 100_000
MAX_ARGUMENT_BITS = 1000
MAX_GAMMA = 10_000


class NonReal(Undefined):
    """It has no real value here."""


class Evaluator:
    """Evaluates trees at one point and one precision.

    Attributes:
        high, low: binary magnitude of the largest and of the smallest non-zero value met on the way. Their
        distance says how many digits two different values of this size may share.
    """

    def __init__(self, point: Mapping[str, Fraction], *, real: bool) -> None:
        self.point = point
        self.real = real
        self.high = self.low = 0
        self._radians = False

    def value(self, node: Node) -> Any:
        """Return the value of `node`, an mpmath number.

        Raises:
            Undefined: a pole; NonReal: not real, where only real values are wanted.
            Unsupported: too large, or not an expression.
        """
        try:
            value = self._value(node)
        except (ZeroDivisionError, ValueError, OverflowError) as error:
            if isinstance(error, (Undefined, Unsupported)):
                raise
            raise Undefined(str(error)) from error
        if not mp.isfinite(value):
            raise Undefined("no finite value")
        if value != 0:
            magnitude = int(mp.mag(value))
            self.high, self.low = max(self.high, magnitude), min(self.low, magnitude)
        return value

    def _value(self, node: Node) -> Any:
        if node.kind == "number":
            # A written number of many digits may come this close to another value without being it.
            self.low = min(self.low, -node.value.denominator.bit_length())
            self.high = max(self.high, node.value.numerator.bit_length())
            return mp.mpf(node.value.numerator) / node.value.denominator
        if node.kind == "symbol":
            return mp.mpf(self.point[node.value].numerator) / self.point[node.value].denominator
        if node.kind == "constant":
            return self._constant(node.value)
        rule = _RULES.get(node.kind)
        if rule is None:
            raise Unsupported(f"no value of a {node.kind}")
        return rule(self, node)

    def _constant(self, name: str) -> Any:
        if name == "i":
            if self.real:
                raise NonReal("i")
            return mp.mpc(0, 1)
        if name == "infinity":
            raise Undefined("infinity")
        return +mp.pi if name == "pi" else mp.e + 0

    def _power(self, node: Node) -> Any:
        base, exponent = self.value(node.args[0]), self.value(node.args[1])
        if base == 0:
            if mp.re(exponent) <= 0:
                raise Undefined("zero to a power that is not positive")
            return mp.mpf(0)
        if abs(exponent) * (abs(mp.mag(base)) + 1) > MAX_EXPONENT:
            raise Unsupported("too large a power")
        if self.real and base < 0 and not mp.isint(exponent):
            fraction = _fraction(node.args[1])
            if fraction is None or fraction.denominator % 2 == 0:
                raise NonReal("a power of a negative number")
            return (-1) ** fraction.numerator * mp.power(-base, exponent)
        return mp.power(base, exponent)

    def _root(self, node: Node) -> Any:
        base, degree = self.value(node.args[0]), node.args[1]
        if degree.kind != "number":
            return self._power(
                Node("power", (node.args[0], Node("divide", (Node("number", value=Fraction(1)), degree))))
            )
        order = degree.value
        if order.denominator != 1 or not 1 <= order <= MAX_GAMMA:
            raise Unsupported("a root of this degree")
        if self.real and base < 0:
            if order % 2 == 0:
                raise NonReal("a root of a negative number")
            return -mp.root(-base, int(order))
        return mp.root(base, int(order))

    def _function(self, node: Node) -> Any:
        if node.value == "binomial":
            top, bottom = (self.value(arg) for arg in node.args)
            if max(abs(top), abs(bottom)) > MAX_GAMMA:
                raise Unsupported("too large a binomial")
            return mp.binomial(top, bottom)
        outer, self._radians = self._radians, True
        argument = self.value(node.args[0])
        self._radians = outer
        if argument != 0 and mp.mag(argument) > (17 if node.value.endswith("h") else MAX_ARGUMENT_BITS):
            raise Unsupported("too large an argument")
        result = _FUNCTIONS[node.value](argument)
        if self.real and isinstance(result, mp.mpc):
            raise NonReal(node.value)
        return result

    def _factorial(self, node: Node) -> Any:
        value = self.value(node.args[0])
        if abs(value) > MAX_GAMMA or node.value > 2:
            raise Unsupported("too large a factorial")
        return mp.gamma(value + 1) if node.value == 1 else mp.fac2(value)

    def _degrees(self, node: Node) -> Any:
        value = self.value(node.args[0])
        return value * mp.pi / 180 if self._radians else value

    def _product(self, node: Node) -> Any:
        result = mp.mpf(1)
        for arg in node.args:
            result *= self.value(arg)
        return result


def _fraction(node: Node) -> Fraction | None:
    if node.kind == "number":
        return node.value
    inner = _fraction(node.args[0]) if node.kind == "negate" else None
    return None if inner is None else -inner


_RULES: dict[str, Callable[[Evaluator, Node], Any]] = {
    "add": lambda at, node: mp.fsum(at.value(arg) for arg in node.args),
    "negate": lambda at, node: -at.value(node.args[0]),
    "multiply": Evaluator._product,
    "divide": lambda at, node: at.value(node.args[0]) / at.value(node.args[1]),
    "power": Evaluator._power,
    "root": Evaluator._root,
    "function": Evaluator._function,
    "factorial": Evaluator._factorial,
    "degrees": Evaluator._degrees,
    "absolute": lambda at, node: abs(at.value(node.args[0])),
}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": mp.cot, "sec": mp.sec, "csc": mp.csc,
    "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "coth": mp.coth,
    "arcsin": mp.asin, "arccos": mp.acos, "arctan": mp.atan, "log": mp.log, "floor": mp.floor,
    "ceil": mp.ceil,
}  # fmt: skip
