from __future__ import annotations

from collections.abc import Callable

import pytest
from transformers import PreTrainedTokenizerFast

from envs.arithmetic import Arithmetic
from vineenv.segment import Fixed, GSM8KLines, LowProbability, Newline, Segmenter
from vineenv.segment_math import MathSentences


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


SEGMENTERS: list[Callable[[PreTrainedTokenizerFast], Segmenter]] = [
    Newline, GSM8KLines, MathSentences, Fixed, LowProbability,
]  # fmt: skip
HARD = [
    "#### 20", "#### 12345678901234567890", "a\n#### 1 #### 2", "x\n#### 1\n####\n#### 2\n", "####", "\n\n\n",
    "", "a+1=2\n\n\n\nb+2=4\n\n#### 4", "a+1=2\nb+2", "   \n ", "so $x=", "A. B. C.", "\n\n#### 3",
    "\\boxed{", ",,,,", "é",
]  # fmt: skip


@pytest.mark.parametrize("make", SEGMENTERS)
@pytest.mark.parametrize("text", HARD)
def test_no_segmenter_loses_a_token_of_a_hard_text(
    tokenizer: PreTrainedTokenizerFast, make: Callable[[PreTrainedTokenizerFast], Segmenter], text: str
) -> None:
    ids = tokenizer.encode(text)
    starts = make(tokenizer)(ids, [-0.5] * len(ids))
    assert starts[0] == 0 and starts == sorted(set(starts)) and starts[-1] < max(len(ids), 1)


@pytest.mark.parametrize("make", SEGMENTERS)
def test_five_thousand_generated_solutions_come_back_whole(
    tokenizer: PreTrainedTokenizerFast, make: Callable[[PreTrainedTokenizerFast], Segmenter]
) -> None:
    env, segmenter = Arithmetic(tokenizer, lambda response, problem: 0.0), make(tokenizer)
    dropped = 0
    for index in range(5000):
        ids = env.encode(env.problem("train", index).solution or "")
        starts = segmenter(ids, [-0.2] * len(ids))
        pieces = [ids[a:b] for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]
        dropped += tuple(token for piece in pieces for token in piece) != ids or not all(pieces)
        if make is Newline:
            assert len(pieces) == len(env.problem("train", index).meta["sum"].changes) + 1
    assert dropped == 0
