r"""Steps of MATH-style solutions: sentences, maths and long pieces (the paper's rules for MATH).

Everything works on half-open spans of characters that tile the text, so nothing can be lost:
rules only cut spans in two or merge neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from transformers import PreTrainedTokenizerBase

Span = tuple[int, int]

_MATHS = re.compile(
    r"\[asy\].*?\[/asy\]|\\begin\{(?P<env>[a-zA-Z*]+)\}.*?\\end\{(?P=env)\}|\\\(.*?\\\)|\\\[.*?\\\]"
    r"|\$\$.*?\$\$|\$.*?\$",
    re.DOTALL,
)
# A full stop ends a sentence unless the word before it is an abbreviation of one or two letters.
_SENTENCE = re.compile(r"(?<!\b[A-Za-z])(?<!\b[A-Za-z]{2})\.\s+(?=[A-Z])")
_MATHS_ENDS_SENTENCE = re.compile(r"\.(?:\$\$?|\\\)|\\\])\s*$")
_OPENERS = ("$", "$$", "\\(", "\\[")
_WORD_CUTS = (",", " and ", ":", " to ")
_MATHS_CUTS = (",$", ",\\)", ",\\]", "=", "\\equiv", "+", "\\cancelto")
_SHORT, _TINY, _LONG, _HALF, _MATHS_HALF = 20, 3, 100, 40, 20


class MathSentences:
    """Sentences, pieces of maths, and parts of what is longer than 100 characters.

    A cut falls on the first token that starts at or after it, so no token is split.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer

    def __call__(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> list[int]:
        """Return the token indices at which steps begin; the first is 0."""
        offsets, text = token_offsets(self.tokenizer, ids)
        starts = [0]
        for begin, _ in split_solution(text)[1:]:
            index = next((i for i in range(starts[-1], len(ids)) if offsets[i] >= begin), len(ids))
            if starts[-1] < index < len(ids):
                starts.append(index)
        return starts


def token_offsets(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> tuple[list[int], str]:
    """Character at which each token starts in the decoded text, and the text."""
    text = str(tokenizer.decode(list(ids)))
    pieces = [str(tokenizer.decode([i])) for i in ids]
    if "".join(pieces) == text:
        ends = [0]
        for piece in pieces:
            ends.append(ends[-1] + len(piece))
        return ends[:-1], text
    # Tokens that are parts of a character do not decode alone: take the text of every prefix.
    return [len(str(tokenizer.decode(list(ids[:i])))) for i in range(len(ids))], text


def split_solution(text: str) -> list[Span]:
    """Split a solution into spans of characters that tile it, one a step."""
    maths = [match.span() for match in _MATHS.finditer(text)]
    spans = _cut(text, [(0, len(text))], _sentence_cuts(text, maths))
    spans = _merge_forward(
        text, spans, lambda piece: len(piece) < _SHORT and not piece.rstrip().endswith(".")
    )
    spans = _cut(text, spans, [end for _, end in maths if _MATHS_ENDS_SENTENCE.search(text[:end])])
    spans = _merge_forward(text, spans, lambda piece: len(piece) < _SHORT and not _ends_sentence(piece))
    spans = _cut(text, spans, [i for a, b in maths for i in range(a, b) if text[i] == "\n"])
    spans = _merge_forward(text, spans, lambda p: p.strip() in _OPENERS or len(p.strip()) < _TINY)
    return [part for span in spans for part in _shorten(text, span, maths)] or [(0, 0)]


def _sentence_cuts(text: str, maths: Sequence[Span]) -> list[int]:
    cuts = [match.end() for match in _SENTENCE.finditer(text)] + [i for i, c in enumerate(text) if c == "\n"]
    return [cut for cut in cuts if not _inside(cut, maths)]


def _ends_sentence(piece: str) -> bool:
    return piece.rstrip().endswith(".") or bool(_MATHS_ENDS_SENTENCE.search(piece))


def _inside(position: int, maths: Sequence[Span]) -> bool:
    return any(a < position < b for a, b in maths)


def _cut(text: str, spans: Sequence[Span], cuts: Sequence[int]) -> list[Span]:
    edges = sorted({a for a, _ in spans} | {c for c in cuts if 0 < c < len(text)})
    return list(zip(edges, [*edges[1:], len(text)], strict=True))


def _merge_forward(text: str, spans: Sequence[Span], small: object) -> list[Span]:
    """Join a small span to the one after it; a small last one to the one before it."""
    assert callable(small)
    merged: list[Span] = []
    pending: int | None = None
    for begin, end in spans:
        start = begin if pending is None else pending
        if small(text[start:end]):
            pending = start
            continue
        merged.append((start, end))
        pending = None
    if pending is not None:
        if merged:
            merged[-1] = (merged[-1][0], len(text))
        else:
            merged.append((pending, len(text)))
    return merged


def _shorten(text: str, span: Span, maths: Sequence[Span]) -> Iterator[Span]:
    """Halve a long span at its most central allowed place, again and again."""
    begin, end = span
    cut = _central_cut(text, span, maths) if end - begin > _LONG else None
    if cut is None:
        yield span
        return
    yield from _shorten(text, (begin, cut), maths)
    yield from _shorten(text, (cut, end), maths)


def _central_cut(text: str, span: Span, maths: Sequence[Span]) -> int | None:
    begin, end = span
    for marks, within, least in ((_WORD_CUTS, False, _HALF), (_MATHS_CUTS, True, _MATHS_HALF)):
        # The comma comes before the other words; the marks inside maths are equals.
        for group in [[mark] for mark in marks] if not within else [marks]:
            places = [
                match.end()
                for mark in group
                for match in re.finditer(re.escape(mark), text[begin:end])
                if _inside(begin + match.start() + 1, maths) == within
            ]
            fitting = [p for p in places if p >= least and end - begin - p >= least]
            if fitting:
                return begin + min(fitting, key=lambda p: abs(p - (end - begin) / 2))
    return None
