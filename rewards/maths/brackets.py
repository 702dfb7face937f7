"""What stands between brackets, bars and `\\begin … \\end`."""

from __future__ import annotations

from rewards.maths import answers, atoms, terms
from rewards.maths.cursor import Cursor
from rewards.maths.nodes import Malformed, Node, Unsupported

_MATRICES = ("matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array")


def read_bracket(cursor: Cursor) -> Node:
    """Read a group, tuple, interval, list, set or absolute value."""
    if cursor.accept("("):
        return _round_or_square(cursor, "(")
    if cursor.accept("["):
        return _round_or_square(cursor, "[")
    if cursor.accept("lset"):
        return _set(cursor, "rset")
    if cursor.accept("{"):
        return _braces(cursor)
    if cursor.accept("langle"):
        with cursor.inside():
            content = answers.read_items(cursor)
        cursor.expect("rangle")
        return _tuple(content)
    if cursor.at("|", "lbar"):
        return _absolute(cursor)
    token = cursor.peek()
    raise Malformed(f"{token.text!r} where a value should be" if token.text else "a value is missing")


def _round_or_square(cursor: Cursor, opening: str) -> Node:
    with cursor.inside():
        content = answers.read_items(cursor)
    closing = cursor.expect(")", "]")
    if opening + closing == "()" and content.kind == "number" and cursor.at("_"):
        return atoms.read_base(cursor, str(content.value))
    if opening + closing == "()":
        return _tuple(content) if content.kind == "items" else content
    members = content.args if content.kind == "items" else (content,)
    if content.kind == "items" and content.value != ",":
        raise Unsupported("alternatives inside brackets")
    if opening + closing == "[]":
        return Node("list", members)
    if len(members) != 2:
        raise Malformed("an interval has two ends")
    return Node("interval", members, opening + closing)


def _tuple(content: Node) -> Node:
    if content.kind != "items":
        return Node("tuple", (content,))
    if content.value != ",":
        raise Unsupported("alternatives inside brackets")
    return Node("tuple", content.args)


def _braces(cursor: Cursor) -> Node:
    """Read a TeX group, which is its content; one that holds a list is a set written without backslashes."""
    with cursor.inside():
        content = answers.read_items(cursor)
    cursor.expect("}")
    return Node("set", content.args) if content.kind == "items" and content.value == "," else content


def _set(cursor: Cursor, closing: str) -> Node:
    if cursor.accept(closing):
        return Node("set")
    with cursor.inside(ratios=False):
        cursor.bars = 1
        content = answers.read_items(cursor)
        if cursor.accept("|", "mid", ":"):
            content = answers.read_items(cursor)
            cursor.expect(closing)
            return content
    cursor.expect(closing)
    return Node("set", content.args if content.kind == "items" else (content,))


def _absolute(cursor: Cursor) -> Node:
    sided = cursor.next().text == "lbar"
    with cursor.inside():
        cursor.bars = 0 if sided else 1
        content = terms.read_sum(cursor)
    cursor.expect("rbar" if sided else "|", "rbar")
    return Node("absolute", (content,))


def read_rounded(cursor: Cursor, name: str) -> Node:
    r"""Read what follows `\lfloor` or `\lceil`."""
    closing = {"lfloor": "rfloor", "lceil": "rceil"}[name]
    with cursor.inside():
        content = terms.read_sum(cursor)
    if cursor.next().text != closing:
        raise Malformed(f"\\{name} without \\{closing}")
    return Node("function", (content,), "floor" if name == "lfloor" else "ceil")


def read_matrix(cursor: Cursor) -> Node:
    r"""Read `\begin{pmatrix} … \end{pmatrix}`, with or without a last `\\`."""
    name = cursor.next().text
    if name not in _MATRICES:
        raise Unsupported(f"\\begin{{{name}}}")
    rows: list[tuple[Node, ...]] = []
    with cursor.inside():
        while cursor.peek().kind != "finish":
            row = [terms.read_sum(cursor)]
            while cursor.accept("&"):
                row.append(terms.read_sum(cursor))
            rows.append(tuple(row))
            if not cursor.accept("newline"):
                break
    if cursor.next().kind != "finish" or not rows or len({len(row) for row in rows}) > 1:
        raise Malformed("a ragged or unclosed matrix")
    return Node("matrix", tuple(entry for row in rows for entry in row), len(rows))
