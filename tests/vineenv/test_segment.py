from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerFast

from vineenv.segment import Fixed, Newline


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a+1=2\nb+3=5\n#### 5", ["a+1=2\n", "b+3=5\n", "#### 5"]),
        ("one line", ["one line"]),
        ("", [""]),
        ("a\n\n\nb", ["a\n\n\n", "b"]),
        ("a\n", ["a\n"]),
        ("\n\na\nb", ["\n\n", "a\n", "b"]),
        ("x\n#### 1\n#### 2", ["x\n", "#### 1\n", "#### 2"]),
    ],
)
def test_lines_are_steps_and_nothing_is_dropped(
    tokenizer: PreTrainedTokenizerFast, text: str, steps: list[str]
) -> None:
    ids = tokenizer.encode(text)
    starts = Newline(tokenizer)(ids)
    assert starts[0] == 0 and starts == sorted(set(starts))
    pieces = [ids[a:b] for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]
    assert [tokenizer.decode(piece) for piece in pieces] == steps
    assert [token for piece in pieces for token in piece] == ids


def test_fixed_steps(tokenizer: PreTrainedTokenizerFast) -> None:
    assert Fixed(tokenizer, size=3)(range(8)) == [0, 3, 6]
    assert Fixed(tokenizer, size=3)([]) == [0]
