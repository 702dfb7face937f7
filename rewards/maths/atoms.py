"""Numbers, symbols, functions and fractions."""

from __future__ import annotations

from fractions import Fraction

from rewards.maths import brackets, nodes, terms
from rewards.maths.cursor import Cursor
from rewards.maths.nodes import Malformed, Node, Unsupported
from rewards.maths.numerals import MAX_CHARACTERS, MAX_EXPONENT
from rewards.maths.tokens import FUNCTIONS

_FRACTIONS = ("frac", "dfrac", "tfrac", "cfrac")
_BINOMIALS = ("binom", "dbinom", "tbinom")
_CONSTANTS = {"pi": "pi", "infty": "infinity", "infinity": "infinity", "imath": "i"}
_EMPTY_SETS = ("emptyset", "varnothing")
_ACCENTS = (
    "overline",
    "bar",
    "hat",
    "vec",
    "tilde",
    "overrightarrow",
    "overleftrightarrow",
    "widehat",
    "angle",
)
_ACCENTS += ("triangle", "arc", "overarc", "widetilde", "dot", "parallel")
_GREEK = frozenset(
    [
        "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta",
        "iota",
        "kappa", "lambda", "mu", "nu", "xi", "rho", "varrho", "sigma", "tau", "upsilon", "phi", "varphi",
        "chi",
        "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi",
        "Omega", "ell", "hbar", "triangle", "partial"
    ]
)  # fmt: skip
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "ln": "log"}
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_BASES |= {"twelve": 12, "sixteen": 16}


def is_function(command: str) -> bool:
    """Whether a command is the name of a function."""
    return command in FUNCTIONS


def read_atom(cursor: Cursor) -> Node:
    """Read what cannot be split by an operator."""
    token = cursor.peek()
    if token.kind == "number":
        return _number(cursor)
    if token.kind == "symbol":
        return _symbol(cursor)
    if token.kind == "command":
        return _command(cursor, cursor.next().text)
    if token.kind == "text":
        return Node("text", value=cursor.next().text)
    if token.kind == "begin":
        return brackets.read_matrix(cursor)
    if cursor.accept("currency"):
        amount = terms.read_factor(cursor)
        return Node("quantity", (amount,), "dollar")
    return brackets.read_bracket(cursor)


def _number(cursor: Cursor) -> Node:
    text = cursor.next().text
    if len(text) > MAX_CHARACTERS:
        raise Unsupported("too many digits")
    mantissa, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent)) > MAX_EXPONENT:
        raise Unsupported("too large an exponent")
    if cursor.at("_"):
        return read_base(cursor, text)
    value = Fraction(mantissa) * Fraction(10) ** int(exponent or 0)
    overline = cursor.peek()
    if (
        overline.kind == "command"
        and overline.text in ("overline", "bar", "dot")
        and text[-1:]
        and "." in text + "."
    ):
        return _repeating(cursor, text, value)
    return _mixed(cursor, int(value)) if text.isdigit() else nodes.number(value)


def _repeating(cursor: Cursor, text: str, value: Fraction) -> Node:
    cursor.next()
    cursor.expect("{")
    digits = cursor.next().text
    cursor.expect("}")
    places = len(text.partition(".")[2])
    if not digits.isdigit() or len(digits) > 100:
        raise Malformed("a bar over something other than digits")
    return nodes.number(value + Fraction(int(digits), (10 ** len(digits) - 1) * 10**places))


def read_base(cursor: Cursor, digits: str) -> Node:
    """Read the base of a numeral whose digits have been read: `_5`, `_{five}`."""
    cursor.next()
    braced = cursor.accept("{")
    token = cursor.next()
    if braced:
        cursor.expect("}")
    base = (
        int(token.text) if token.text.isdigit() and len(token.text) < 3 else _BASES.get(token.text.lower(), 0)
    )
    if not 2 <= base <= 36 or not digits.isdigit():
        raise Malformed("no base")
    if any(int(digit) >= base for digit in digits):
        raise Malformed("a digit that the base does not have")
    return Node("base", value=(digits, base))


def _mixed(cursor: Cursor, whole: int) -> Node:
    r"""Read `1\frac{1}{2}` and `1 1/2` as one and a half."""
    coming = cursor.peek()
    if coming.kind == "command" and coming.text in _FRACTIONS:
        cursor.next()
        top, bottom = _argument(cursor), _argument(cursor)
        if _is_proper(top, bottom):
            return nodes.number(whole + Fraction(top.value, bottom.value))
        return Node("multiply", (nodes.number(whole), Node("divide", (top, bottom))))
    slash, under = cursor.peek(1), cursor.peek(2)
    if coming.kind == "number" and coming.spaced and slash.text == "/" and under.kind == "number":
        if not (coming.text.isdigit() and under.text.isdigit() and 0 < int(coming.text) < int(under.text)):
            raise Malformed("two numbers side by side")
        for _ in range(3):
            cursor.next()
        return nodes.number(whole + Fraction(int(coming.text), int(under.text)))
    return nodes.number(whole)


def _is_proper(top: Node, bottom: Node) -> bool:
    if top.kind != "number" or bottom.kind != "number":
        return False
    return top.value.denominator == bottom.value.denominator == 1 and 0 < top.value < bottom.value


def _argument(cursor: Cursor) -> Node:
    r"""Read an argument of a command: a group, one digit, or one atom."""
    digit = cursor.split_digit()
    if digit is not None:
        return nodes.number(int(digit))
    if cursor.at("{"):
        return read_group(cursor)
    with cursor.inside():
        return read_atom(cursor)


def read_group(cursor: Cursor) -> Node:
    """Read one expression in braces."""
    cursor.expect("{")
    with cursor.inside():
        content = terms.read_sum(cursor)
    cursor.expect("}")
    return content


def _symbol(cursor: Cursor) -> Node:
    name = cursor.next().text
    name += _subscript(cursor)
    while cursor.accept("'"):
        name += "'"
    return Node("constant", value=name) if name in ("e", "i") else nodes.symbol(name)


def _subscript(cursor: Cursor) -> str:
    """Read `_n` or `_{...}` as part of a name."""
    if not cursor.accept("_"):
        return ""
    if not cursor.accept("{"):
        return "_" + cursor.next().text
    parts = []
    while not cursor.at("}"):
        token = cursor.next()
        if token.kind == "end" or token.text == "{":
            raise Malformed("an unclosed subscript")
        parts.append(token.text)
    cursor.next()
    return "_" + "".join(parts)


def _command(cursor: Cursor, name: str) -> Node:
    if name in _FRACTIONS:
        return Node("divide", (_argument(cursor), _argument(cursor)))
    if name == "sqrt":
        return _root(cursor)
    if name in _BINOMIALS:
        return Node("function", (_argument(cursor), _argument(cursor)), "binomial")
    if name in FUNCTIONS:
        return _function(cursor, _ALIASES.get(name, name))
    if name in _CONSTANTS:
        return Node("constant", value=_CONSTANTS[name])
    if name in _EMPTY_SETS:
        return Node("set")
    if name in _ACCENTS:
        return _accented(cursor, name)
    if name in _GREEK:
        return nodes.symbol(f"\\{name}{_subscript(cursor)}")
    if name in ("mathbb", "Bbb", "R", "reals"):
        return _number_field(cursor, name)
    if name in ("lfloor", "lceil"):
        return brackets.read_rounded(cursor, name)
    raise Unsupported(f"\\{name}")


def _number_field(cursor: Cursor, name: str) -> Node:
    letter = "R" if name in ("R", "reals") else "".join(_letters(cursor))
    return Node("reals") if letter == "R" else Node("text", value=f"field {letter}")


def _accented(cursor: Cursor, accent: str) -> Node:
    """Read a segment, vector or angle as one name."""
    letters = _letters(cursor)
    while not cursor.at("{") and cursor.peek().kind == "symbol" and accent in ("angle", "triangle"):
        letters += _letters(cursor)
    return nodes.symbol(f"\\{accent}({''.join(letters)})")


def _letters(cursor: Cursor) -> list[str]:
    if not cursor.accept("{"):
        return [cursor.next().text]
    letters = []
    while not cursor.at("}"):
        token = cursor.next()
        if token.kind not in ("symbol", "text", "number", "command"):
            raise Malformed("no name")
        letters.append(token.text)
    cursor.next()
    return letters


def _root(cursor: Cursor) -> Node:
    degree = nodes.number(2)
    if cursor.accept("["):
        with cursor.inside():
            degree = terms.read_sum(cursor)
        cursor.expect("]")
    if cursor.at("{"):
        return Node("root", (read_group(cursor), degree))
    with cursor.inside():
        return Node("root", (read_atom(cursor), degree))


def _function(cursor: Cursor, name: str) -> Node:
    r"""Read `\sin x`, `\sin^2(x)`, `\sin^{-1} x`, `\log_2 8`."""
    base = None
    exponent = None
    for _ in range(2):
        if cursor.accept("_"):
            base = _argument(cursor)
        elif cursor.accept("^"):
            exponent = terms.read_exponent(cursor)
    if exponent == nodes.number(-1) and name in _INVERSES:
        name, exponent = _INVERSES[name], None
    with cursor.inside():
        argument = _function_argument(cursor)
    applied = _applied(name, argument, base)
    return applied if exponent is None else Node("power", (applied, exponent))


def _function_argument(cursor: Cursor) -> Node:
    if cursor.at("(", "{", "[", "lbar", "|"):
        return read_atom(cursor)
    argument = nodes.negate(terms.read_factor(cursor)) if cursor.accept("-") else terms.read_factor(cursor)
    while terms.starts_factor(cursor, functions=False) and not cursor.at("("):
        argument = Node("multiply", (argument, terms.read_factor(cursor)))
    return argument


def _applied(name: str, argument: Node, base: Node | None) -> Node:
    if argument.kind in ("tuple", "items", "list", "set", "interval"):
        raise Unsupported(f"{name} of several arguments")
    if base is not None:
        if name != "log":
            raise Malformed(f"{name} with a base")
        logs = (Node("function", (argument,), "log"), Node("function", (base,), "log"))
        return Node("divide", logs)
    if name == "lg":
        return _applied("log", argument, nodes.number(10))
    if name == "exp":
        return Node("power", (Node("constant", value="e"), argument))
    if name == "abs":
        return Node("absolute", (argument,))
    return Node("factorial", (argument,), 1) if name == "factorial" else Node("function", (argument,), name)
