"""A whole answer: lists, relations, sets, words."""

from __future__ import annotations

import re
from itertools import pairwise

from rewards.maths import terms
from rewards.maths.characters import to_latex
from rewards.maths.cursor import Cursor
from rewards.maths.nodes import Malformed, Node
from rewards.maths.numerals import bare
from rewards.maths.tokens import tokenize

MAX_CHARACTERS = 1500

_RELATIONS = ("=", "<", ">", "<=", ">=", "!=", "approx", "in", "equiv")
_LETTERS = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")
_TIME = re.compile(
    r"(\d{1,2})\s?(?:\\text\{:\}|:)\s?([0-5]\d)(?:\s*(?:\\text\{)?\s*([ap])\.?\s?m\.?\s*\}?)?", re.IGNORECASE
)
_REMAINDER = re.compile(r"(\d+)\s*(?:\\text\{\s*)?(?:R|r|rem|remainder)\.?(?:\s*\})?\s*(\d+)")
_WORDS = {
    "infinity": Node("constant", value="infinity"),
    "empty set": Node("set"),
    "all real numbers": Node("reals"),
}
_WORDS |= {
    "inf": Node("constant", value="infinity"),
    "all reals": Node("reals"),
    "the empty set": Node("set"),
}


def parse(text: str) -> Node:
    """Read a whole answer.

    Raises:
        Malformed: it is not an answer.
        Unsupported: it is too large, or of a kind that is compared only as text.
    """
    if len(text) > MAX_CHARACTERS:
        raise Malformed("too long")
    text = bare(text)
    special = _special(to_latex(text))
    if special is not None:
        return special
    cursor = Cursor(tokenize(text))
    cursor.accept("=", "approx")
    answer = read_items(cursor)
    if cursor.peek().kind != "end":
        raise Malformed(f"unexpected {cursor.peek().text!r}")
    return answer


def _special(text: str) -> Node | None:
    """Read what is no mathematical expression: words, a time of day, a quotient and remainder."""
    if _LETTERS.fullmatch(text) and _is_words(text):
        return words(text)
    time = _TIME.fullmatch(text)
    if time and int(time.group(1)) < 24:
        half = (time.group(3) or "").lower()
        return Node("time", value=(int(time.group(1)), int(time.group(2)), half))
    remainder = _REMAINDER.fullmatch(text)
    if remainder and len(text) < 60:
        return Node("remainder", value=(int(remainder.group(1)), int(remainder.group(2))))
    return None


def _is_words(text: str) -> bool:
    """Whether letters are a word: long runs, and short ones with a vowel unless in order like `abc`."""
    lower = text.lower()
    if len(text) > 3 or lower == "no":
        return True
    ascending = all(one < other for one, other in pairwise(lower))
    vowels = "aeiou" if len(text) == 3 else "ou"
    return len(text) > 1 and not ascending and bool(set(lower) & set(vowels))


def words(text: str) -> Node:
    """Return the node of an answer in words."""
    key = " ".join(re.findall(r"[^\W_]+", text.lower()))
    if not key:
        raise Malformed("no words")
    return _WORDS.get(key, Node("text", value=key))


def read_items(cursor: Cursor) -> Node:
    """Read one relation, or several joined by commas, semicolons, `and` or `or`."""
    first = read_relation(cursor)
    items, separators = [first], set()
    while separator := cursor.accept(",", ";", "and", "or"):
        if separator in (",", ";"):
            separator = cursor.accept("and", "or") or ","
        separators.add("or" if separator == "or" else "and" if separator == "and" else ",")
        items.append(read_relation(cursor))
    if not separators:
        return first
    joined = "or" if "or" in separators else "and" if separators == {"and"} else ","
    return Node("items", tuple(items), joined)


def read_relation(cursor: Cursor) -> Node:
    """Read sides joined by `=`, `<`, membership and the like."""
    sides, ops = [_union(cursor)], []
    while op := cursor.accept(*_RELATIONS):
        ops.append(op)
        sides.append(_union(cursor))
    return Node("relation", tuple(sides), tuple(ops)) if ops else sides[0]


def _union(cursor: Cursor) -> Node:
    left = _ratio(cursor)
    while op := cursor.accept("cup", "cap", "setminus"):
        kind = {"cup": "union", "cap": "intersection", "setminus": "difference"}[op]
        left = Node(kind, (left, _ratio(cursor)))
    return left


def _ratio(cursor: Cursor) -> Node:
    parts = [_side(cursor)]
    while cursor.ratios and cursor.accept(":"):
        parts.append(_side(cursor))
    return parts[0] if len(parts) == 1 else Node("ratio", tuple(parts))


def _side(cursor: Cursor) -> Node:
    """Read a sum, or a phrase of several words."""
    node = terms.read_sum(cursor)
    if node.kind != "text":
        return node
    phrase = [node.value]
    while cursor.peek().kind == "text":
        phrase.append(cursor.next().text)
    return words(" ".join(phrase))
