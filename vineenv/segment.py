"""Where a reasoning step begins: response token ids -> indices of first tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from transformers import PreTrainedTokenizerBase


class Segmenter(Protocol):
    """Splits a response into steps; the first start is always 0 and nothing is dropped."""

    def __call__(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> list[int]:
        """Return the increasing token indices at which steps begin."""
        ...


class Newline:
    """A step is a line: it ends with the token that holds the line end.

    Blank lines stay with the line before them, so that no step is without text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._text: dict[int, str] = {}

    def __call__(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> list[int]:
        """Return the starts of lines, as token indices."""
        starts, line_ended = [0], False
        for index, token in enumerate(ids):
            text = self._piece(token)
            if line_ended and text.strip():
                starts.append(index)
                line_ended = False
            line_ended = "\n" in text or (line_ended and not text.strip())
        return starts if starts[-1] < max(len(ids), 1) else starts[:-1]

    def _piece(self, token: int) -> str:
        if token not in self._text:
            self._text[token] = str(self.tokenizer.decode([token]))
        return self._text[token]


class Fixed:
    """A step is `size` tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, size: int = 16) -> None:
        if size < 1:
            raise ValueError(f"segmenter.size={size} must be at least 1")
        self.size = size

    def __call__(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> list[int]:
        """Return every `size`-th token index."""
        return list(range(0, max(len(ids), 1), self.size))
