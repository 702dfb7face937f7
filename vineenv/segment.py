"""Where a reasoning step begins: response token ids -> indices of first tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from vineenv.errors import UsageError


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


class GSM8KLines(Newline):
    """Lines, with the final `#### answer` as part of the last step (the paper's rule for GSM8K)."""

    def __call__(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> list[int]:
        """Return the starts of lines, as token indices; the answer's line joins the one before."""
        starts = super().__call__(ids, logprobs)
        last = "".join(self._piece(token) for token in ids[starts[-1] :])
        return starts[:-1] if len(starts) > 1 and last.lstrip().startswith("####") else starts


class LowProbability:
    """A step ends after a token that was improbable when it was sampled (SPO, arXiv 2505.23564).

    Args:
        threshold: a token below this probability is a cut point.
        every: cut points a step; the last step may have fewer.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase | None, *, threshold: float = 0.9, every: int = 1
    ) -> None:
        if not 0 < threshold <= 1 or every < 1:
            raise UsageError(f"A step at improbable tokens needs 0 < {threshold=} <= 1 and {every=} >= 1.")
        self.cut, self.every = math.log(threshold), every

    def __call__(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> list[int]:
        """Return the indices after improbable tokens; one step where no probabilities are known."""
        if logprobs is None:
            return [0]
        cuts = [i + 1 for i, logprob in enumerate(logprobs[:-1]) if logprob < self.cut]
        return [0, *cuts[self.every - 1 :: self.every]]


class Fixed:
    """A step is `size` tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None, *, size: int = 16) -> None:
        if size < 1:
            raise UsageError(f"segmenter.size={size} must be at least 1.")
        self.size = size

    def __call__(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> list[int]:
        """Return every `size`-th token index."""
        return list(range(0, max(len(ids), 1), self.size))
