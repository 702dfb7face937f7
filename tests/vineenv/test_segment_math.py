from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vineenv.assets.tokenizer import build_tokenizer
from vineenv.segment_math import MathSentences, split_solution

TOKENIZER = build_tokenizer()


def pieces(text: str) -> list[str]:
    return [text[a:b] for a, b in split_solution(text)]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (
            "We count the outcomes first. Then we divide by the total. It is done here.",
            ["We count the outcomes first. ", "Then we divide by the total. ", "It is done here."],
        ),
        ("By the lemma of St. Ives it is all done.", ["By the lemma of St. Ives it is all done."]),
        ("The first line is this\nand the second that", ["The first line is this", "\nand the second that"]),
        (
            "So the answer must be $x = 3.$ Now we check that it works.",
            ["So the answer must be $x = 3.$", " Now we check that it works."],
        ),
        ("It is $a. B$ and nothing else is it", ["It is $a. B$ and nothing else is it"]),
        ("Short.\nTiny", ["Short.\nTiny"]),
        ("42", ["42"]),
        ("", [""]),
    ],
)  # fmt: skip
def test_rules(text: str, steps: list[str]) -> None:
    assert pieces(text) == steps


def test_long_pieces_are_cut_at_the_most_central_comma_outside_maths() -> None:
    left, right = "a" * 55 + ",", " " + "b" * 60
    assert pieces(left + right) == [left, right]
    inside = "$" + "c" * 50 + "," + "d" * 60 + "$"
    assert pieces(inside) == [inside], "a comma inside maths is no place to cut"
    equation = "$" + "c" * 55 + "=" + "d" * 60 + "$"
    assert pieces(equation) == ["$" + "c" * 55 + "=", "d" * 60 + "$"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(["A", "b", ". ", "\n", "$", "$$", ", ", " and ", "=", "x^2", "\\(", "\\)", ".$"])
    )
)
def test_spans_tile_any_text_and_tokens_are_never_lost(parts: list[str]) -> None:
    text = "".join(parts) * 3
    spans = split_solution(text)
    assert spans[0][0] == 0 and spans[-1][1] == len(text)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
    ids = TOKENIZER.encode(text)
    starts = MathSentences(TOKENIZER)(ids)
    assert starts[0] == 0 and starts == sorted(set(starts)) and starts[-1] < max(len(ids), 1)
