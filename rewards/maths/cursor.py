"""A place in a list of tokens."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rewards.maths.nodes import Malformed, Unsupported
from rewards.maths.tokens import Token

MAX_DEPTH = 40
_END = Token("end", "")


class Cursor:
    """Reads tokens one by one; counts open brackets so that depth is bounded.

    Attributes:
        bars: how many `|` are open inside the innermost bracket; the next one then closes.
        ratios: whether `:` means a ratio here (not inside braces, where it means "such that").
    """

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0
        self.bars = 0
        self.ratios = True

    def peek(self, ahead: int = 0) -> Token:
        """Return a coming token without passing it."""
        at = self._position + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    def next(self) -> Token:
        """Pass one token and return it."""
        token = self.peek()
        self._position += 1
        return token

    def at(self, *ops: str) -> bool:
        """Whether the coming token is one of these operators."""
        token = self.peek()
        return token.kind == "op" and token.text in ops

    def accept(self, *ops: str) -> str | None:
        """Pass one of these operators if it comes, and return it."""
        return self.next().text if self.at(*ops) else None

    def expect(self, *ops: str) -> str:
        """Pass one of these operators, or fail."""
        found = self.accept(*ops)
        if found is None:
            raise Malformed(f"{self.peek().text!r} where {' or '.join(ops)} should be")
        return found

    def split_digit(self) -> str | None:
        r"""Pass only the first digit of a number, as in `\frac12`, and return it."""
        token = self.peek()
        if token.kind != "number" or not token.text.isdigit():
            return None
        if len(token.text) == 1:
            self._position += 1
        else:
            self._tokens[self._position] = Token("number", token.text[1:])
        return token.text[0]

    @contextmanager
    def inside(self, *, ratios: bool = True) -> Generator[None]:
        """Read inside a bracket."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unsupported("too deep")
        saved = self.bars, self.ratios
        self.bars, self.ratios = 0, ratios
        yield
        self.bars, self.ratios = saved
        self._depth -= 1
