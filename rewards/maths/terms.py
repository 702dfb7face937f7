"""Sums, products and powers."""

from __future__ import annotations

from rewards.maths import atoms, nodes, units
from rewards.maths.cursor import Cursor
from rewards.maths.nodes import Malformed, Node, Unsupported
from rewards.maths.tokens import ORDINALS

_SCALES = {"C": "celsius", "F": "fahrenheit"}
_STARTERS = ("(", "{", "[", "lset", "lbar", "langle")
_CLOSING_COMMANDS = ("rfloor", "rceil")


def read_sum(cursor: Cursor) -> Node:
    """Read terms joined by `+`, `-`, `±` and `∓`."""
    sign = cursor.accept("+", "-", "pm", "mp")
    terms = [read_term(cursor)]
    if sign == "-":
        terms[0] = nodes.negate(terms[0])
    elif sign in ("pm", "mp"):
        terms[0] = Node("plusminus", (nodes.number(0), terms[0]), sign)
    while sign := cursor.accept("+", "-", "pm", "mp"):
        term = _signed_term(cursor)
        if sign in ("pm", "mp"):
            terms = [Node("plusminus", (_add(terms), term), sign)]
        else:
            terms.append(nodes.negate(term) if sign == "-" else term)
    return _add(terms)


def _signed_term(cursor: Cursor) -> Node:
    """Read a term that may carry one sign of its own, as in `3 + -4`."""
    return nodes.negate(read_term(cursor)) if cursor.accept("-") else read_term(cursor)


def _add(terms: list[Node]) -> Node:
    return terms[0] if len(terms) == 1 else Node("add", tuple(terms))


def read_term(cursor: Cursor) -> Node:
    """Read factors that are multiplied or divided, then a unit."""
    product = factor = read_factor(cursor)
    while True:
        op = cursor.accept("*", "/")
        if op:
            factor = nodes.negate(read_factor(cursor)) if cursor.accept("-") else read_factor(cursor)
            product = Node("multiply" if op == "*" else "divide", (product, factor))
        elif cursor.peek().kind == "text" or cursor.at("%", "currency"):
            return _with_unit(cursor, product)
        elif starts_factor(cursor) or (factor.kind == "power" and _starts_power(cursor)):
            factor = read_factor(cursor)
            product = Node("multiply", (product, factor))
        elif cursor.peek().kind == "number":
            raise Malformed("a number straight after a factor")
        else:
            return product


def starts_factor(cursor: Cursor, *, functions: bool = True) -> bool:
    """Whether a factor other than a number comes: what may be multiplied without a sign."""
    token = cursor.peek()
    if token.kind == "op":
        return token.text in _STARTERS or (token.text == "|" and cursor.bars == 0)
    if token.kind == "command":
        return token.text not in _CLOSING_COMMANDS and (functions or not atoms.is_function(token.text))
    return token.kind in ("symbol", "begin")


def _starts_power(cursor: Cursor) -> bool:
    """Whether a number with an exponent comes, as in `2^x 2^3`."""
    return cursor.peek().kind == "number" and cursor.peek(1).text == "^"


def _with_unit(cursor: Cursor, product: Node) -> Node:
    """Read the unit words, signs and exponents after a number."""
    if nodes.symbols(product) or nodes.mentions(product, "quantity", "text"):
        raise Unsupported("words after an expression")
    written = ""
    while True:
        token = cursor.peek()
        if token.kind == "text" or (token.kind == "symbol" and written.rstrip().endswith("/")):
            written += " " + cursor.next().text
        elif cursor.at("%", "currency"):
            written += " percent" if cursor.next().text == "%" else " dollars"
        elif written and cursor.at("^"):
            cursor.next()
            written += "^" + _unit_exponent(cursor)
        elif written and cursor.at("/", "*"):
            written += " " + cursor.next().text
        else:
            break
    found = units.read(written)
    if found is None:
        raise Unsupported(f"no unit: {written}")
    unit, factor = found
    if factor != 1:
        product = Node("multiply", (product, nodes.number(factor)))
    return Node("quantity", (product,), unit) if unit and unit not in ORDINALS else product


def _unit_exponent(cursor: Cursor) -> str:
    braced = cursor.accept("{")
    sign = cursor.accept("-") or ""
    token = cursor.next()
    if token.kind != "number":
        raise Unsupported("an exponent of a unit")
    if braced:
        cursor.expect("}")
    return sign + token.text


def read_factor(cursor: Cursor) -> Node:
    """Read an atom with its factorial marks and exponents."""
    base = atoms.read_atom(cursor)
    while True:
        if cursor.at("!"):
            marks = 0
            while cursor.accept("!"):
                marks += 1
            base = Node("factorial", (base,), marks)
        elif cursor.accept("^"):
            base = _raised(cursor, base)
        else:
            return base


def _raised(cursor: Cursor, base: Node) -> Node:
    """Read an exponent, or one of the marks that are written as exponents."""
    braced = cursor.at("{")
    token = cursor.peek(1 if braced else 0)
    if token.kind == "command" and token.text in ("circ", "degree", "prime"):
        _pass_mark(cursor)
        if token.text != "prime":
            scale = cursor.peek()
            if scale.kind == "symbol" and scale.text in _SCALES:
                return Node("quantity", (base,), _SCALES[cursor.next().text])
            return Node("degrees", (base,))
        if base.kind != "symbol":
            raise Unsupported("a prime after an expression")
        return nodes.symbol(f"{base.value}'")
    if token.kind == "text" and token.text in ORDINALS and base.kind == "number":
        _pass_mark(cursor)
        return base
    return Node("power", (base, read_exponent(cursor)))


def _pass_mark(cursor: Cursor) -> None:
    braced = cursor.accept("{")
    cursor.next()
    if braced:
        cursor.expect("}")


def read_exponent(cursor: Cursor) -> Node:
    """Read what stands raised: a group, or one signed factor, right to left."""
    sign = cursor.accept("-", "+")
    with cursor.inside(ratios=cursor.ratios):
        exponent = atoms.read_atom(cursor)
        while cursor.at("!"):
            cursor.next()
            exponent = Node("factorial", (exponent,), 1)
        if cursor.accept("^"):
            exponent = Node("power", (exponent, read_exponent(cursor)))
    return nodes.negate(exponent) if sign == "-" else exponent
