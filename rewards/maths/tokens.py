"""An answer's text cut into tokens. Linear in its length; nothing is skipped that could carry meaning."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from rewards.maths import numerals, units
from rewards.maths.characters import to_latex
from rewards.maths.nodes import Malformed, Unsupported

MAX_TOKENS = 600

FUNCTIONS = frozenset(
    [
        "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "arcsin", "arccos",
        "arctan", "asin", "acos", "atan", "exp", "log", "ln", "lg", "abs", "factorial", "floor", "ceil",
    ]
)  # fmt: skip
_WORD_COMMANDS = {
    "pi": "pi",
    "infinity": "infty",
    "inf": "infty",
    "infty": "infty",
    "sqrt": "sqrt",
    "theta": "theta",
}
_TEXT_COMMANDS = frozenset(
    [
        "text", "textbf", "textit", "textrm", "textsf", "texttt", "mathrm", "mathbf", "mathit", "mathsf",
        "mbox", "operatorname", "bm", "boldsymbol", "rm", "bf", "textnormal", "emph", "mathcal",
    ]
)  # fmt: skip
_DROPPED = frozenset(
    [
        "left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr",
        "quad", "qquad", "displaystyle", "textstyle", "limits", "nolimits", "thinspace", "hspace", "vspace",
        ",", ";", ":", "!", " ", ">", "/",
    ]
)  # fmt: skip
_RENAMED = {
    "{": "lset", "lbrace": "lset", "}": "rset", "rbrace": "rset", "lbrack": "[", "rbrack": "]",
    "lvert": "lbar", "rvert": "rbar", "vert": "|", "mid": "mid", "langle": "langle", "rangle": "rangle",
    "%": "%", "$": "currency", "#": "#", "&": "&", "_": "_",
    "\\": "newline", "newline": "newline", "cr": "newline",
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "colon": ":", "pm": "pm", "mp": "mp",
    "leq": "<=", "le": "<=", "leqslant": "<=", "geq": ">=", "ge": ">=", "geqslant": ">=",
    "lt": "<", "gt": ">",
    "neq": "!=", "ne": "!=", "approx": "approx", "simeq": "approx", "doteq": "approx", "equiv": "equiv",
    "in": "in", "cup": "cup", "cap": "cap", "setminus": "setminus", "smallsetminus": "setminus",
    "backslash": "setminus", "lor": "or", "vee": "or", "land": "and", "wedge": "and",
}  # fmt: skip
_SEPARATED = re.compile(
    r"(?<![0-9.,])[1-9][0-9]{0,2}"
    r"(\{,\}|,\\!|\\,|\\ |[\u00a0\u2007\u2009\u202f ])[0-9]{3}(?:\1[0-9]{3})*(?![0-9/])"
)
_NUMBER = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+(?![0-9A-Za-z]))?"
_LEXEME = re.compile(
    rf"""(?P<blank>[ \t\r\n~]+)|(?P<number>[0-9]+\.(?![0-9.])|{_NUMBER})
    |(?P<word>[^\W\d_]+)|\\(?P<command>[A-Za-z]+|.)
    |(?P<op>\*\*|<=|>=|!=|=|<|>|\+|-|\*|/|\^|_|\(|\)|\[|\]|\{{|\}}|\||,|;|:(?!=)|!|%|\$|&|'|\.\.\.)""",
    re.VERBOSE | re.DOTALL,
)
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?(?![0-9]|,[0-9])")
_ENVIRONMENT = re.compile(r"\s*\{([a-z]+)(\*?)\}(?:\s*\{[|lcr ]*\})?")
_NUMBER_STARTS = tuple("0123456789-$")
_WORDY = re.compile(r"[^\W\d_]{2}")
ORDINALS = ("th", "st", "nd", "rd")
_SEPARATORS = {"or": "or", "and": "and", ", and": "and", ", or": "or", ",": ",", ";": ";"}


class Token(NamedTuple):
    """One token: kind is number, symbol, text, command, op, begin, finish or end."""

    kind: str
    text: str
    spaced: bool = False


class _Lexer:
    """Cuts one text; a class only to carry the position and the bracket depth."""

    def __init__(self, text: str) -> None:
        self.text = _SEPARATED.sub(_without_separator, text)
        self.position = 0
        self.brackets = 0
        self.spaced = False
        self.tokens: list[Token] = []

    def add(self, kind: str, text: str) -> None:
        if len(self.tokens) >= MAX_TOKENS:
            raise Unsupported("too long")
        self.tokens.append(Token(kind, text, self.spaced))
        self.spaced = False

    def run(self) -> list[Token]:
        while self.position < len(self.text):
            in_list = self.brackets > 0 or self.text[self.position - 1 : self.position] == ","
            grouped = None if in_list else _GROUPED.match(self.text, self.position)
            if grouped is not None:
                self.position = grouped.end()
                self.add("number", grouped.group().replace(",", ""))
                continue
            lexeme = _LEXEME.match(self.text, self.position)
            if lexeme is None:
                raise Malformed(f"unexpected {self.text[self.position]!r}")
            self.position = lexeme.end()
            self.dispatch(str(lexeme.lastgroup), lexeme.group(str(lexeme.lastgroup)))
        return self.tokens

    def dispatch(self, kind: str, text: str) -> None:
        if kind == "blank":
            self.spaced = True
        elif kind == "number":
            self.add("number", text.rstrip(".") if text[0] != "." else text)
        elif kind == "word":
            self.word(text)
        elif kind == "command":
            self.command(text)
        else:
            self.operator(text)

    def operator(self, text: str) -> None:
        if text == "...":
            raise Unsupported("an ellipsis")
        self.brackets += (text in "([") - (text in ")]")
        self.add("op", {"**": "^", "$": "currency"}.get(text, text))

    def word(self, word: str) -> None:
        if word in FUNCTIONS or word in _WORD_COMMANDS:
            self.add("command", _WORD_COMMANDS.get(word, word))
        elif word in ("or", "and") and self.tokens:
            self.add("op", word)
        elif is_word(word) or (
            len(word) > 1 and self.after_number() and (units.named(word) or word in ORDINALS)
        ):
            self.add("text", word)
        else:
            for letter in word:
                self.add("symbol", letter)

    def after_number(self) -> bool:
        return bool(self.tokens) and (self.tokens[-1].kind == "number" or self.tokens[-1].text in "})")

    def command(self, name: str) -> None:
        if name in _TEXT_COMMANDS:
            self.text_group()
        elif name in ("left", "right"):
            self.delimiter(name)
        elif name in _DROPPED:
            self.spaced = True
        elif name in _RENAMED:
            renamed = _RENAMED[name]
            self.brackets += (renamed in ("lset", "[")) - (renamed in ("rset", "]"))
            self.add("op", renamed)
        elif name in ("begin", "end"):
            self.environment(name)
        else:
            self.add("command", name)

    def delimiter(self, side: str) -> None:
        r"""Read what follows `\left` or `\right`: an invisible stop, a bar of a known side, or a bracket."""
        while self.text[self.position : self.position + 1] == " ":
            self.position += 1
        following = self.text[self.position : self.position + 1]
        if following == ".":
            self.position += 1
        elif following == "|":
            self.position += 1
            self.add("op", "lbar" if side == "left" else "rbar")

    def environment(self, name: str) -> None:
        found = _ENVIRONMENT.match(self.text, self.position)
        if found is None:
            raise Malformed(f"\\{name} without a name")
        self.position = found.end()
        self.add("begin" if name == "begin" else "finish", found.group(1))

    def text_group(self) -> None:
        content = self.group()
        stripped = " ".join(content.split())
        if stripped in _SEPARATORS:
            self.add("op", _SEPARATORS[stripped])
        elif stripped[:1] in _NUMBER_STARTS and "\\" not in content:
            self.splice(content)
        elif stripped not in FUNCTIONS and (_WORDY.search(stripped) or self.is_unit(stripped)):
            self.add("text", stripped)
        elif "\\" in content or "{" in content:
            raise Unsupported("commands inside text")
        else:
            self.splice(content)

    def splice(self, content: str) -> None:
        for token in _Lexer(content).run():
            self.add(token.kind, token.text)

    def is_unit(self, content: str) -> bool:
        return self.after_number() and bool(units.read(content))

    def group(self) -> str:
        while self.text[self.position : self.position + 1] == " ":
            self.position += 1
        if self.text[self.position : self.position + 1] != "{":
            return ""
        end = self.text.find("}", self.position)
        if end < 0:
            raise Malformed("an unclosed group")
        content = self.text[self.position + 1 : end]
        if "{" in content:
            raise Unsupported("groups inside text")
        self.position = end + 1
        return content


def _without_separator(match: re.Match[str]) -> str:
    return match.group().replace(match.group(1), "")


def _is_suffix(word: str) -> bool:
    """Whether a short word after a number is a unit or the end of an ordinal."""
    return word in ORDINALS or units.named(word) is not None


def is_word(run: str) -> bool:
    """Whether a run of letters is a word rather than a product of variables such as `abcd` or `xyz`."""
    return len(run) > 3 and not all(one < other for one, other in pairwise(run))


def tokenize(text: str) -> list[Token]:
    """Return the tokens of `text`.

    Raises:
        Malformed: a character or group that no answer has.
        Unsupported: too long, or with an ellipsis.
    """
    return _Lexer(numerals.bare(to_latex(text))).run()
