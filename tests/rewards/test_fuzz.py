"""No text makes the reader raise anything but its own errors, run long, or judge one-sidedly."""

import contextlib
import json
import random
import time

from hypothesis import example, given, settings
from hypothesis import strategies as st

import rewards
from rewards.extract import EXTRACTORS
from rewards.maths.answers import parse
from rewards.maths.nodes import MathsError
from rewards.maths.verdict import judge
from tests.rewards.pairs import DIFFERENT, SAME
from tests.rewards.shared_data import CASES, needs_cases

LIMIT_S = 1.5
PIECES = [piece for pairs in (*SAME.values(), *DIFFERENT.values()) for pair in pairs for piece in pair]
FRAGMENTS = [
    "x", "y", "1", "23", ".5", r"\frac", r"\sqrt", "{", "}", "(", ")", "[", "]", "^", "_", "+", "-", "*",
    "/", ",", "|",
    "=", "<", r"\le", r"\pm", r"\text{or}", r"\text{ cm}", r"\infty", r"\cup", r"\{", r"\}", "!", "%", "$",
    ":", " ",
    r"\begin{pmatrix}", r"\end{pmatrix}", "&", r"\\", r"\sin", r"\log_", "e", "i", r"\left(", r"\right|",
    "½", "²", "∞",
    "9999999", "1e99", "'", r"\overline{", r"\binom", r"\mathbb{R}", r"\in", r"\mid", "and", "million",
    r"^\circ",
]  # fmt: skip

answers = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join),
)


@settings(max_examples=400, deadline=None)
@given(answers)
@example("\\" * 900)
@example("{" * 1400)
@example("|" * 700 + "x")
@example(r"\pm" * 400 + "1")
def test_reading_fails_only_in_its_own_way_and_in_time(text: str) -> None:
    start = time.perf_counter()
    with contextlib.suppress(MathsError):
        parse(text)
    assert time.perf_counter() - start < LIMIT_S


@settings(max_examples=400, deadline=None)
@given(answers, answers)
def test_judging_is_symmetric_and_in_time(one: str, other: str) -> None:
    start = time.perf_counter()
    forward, back = judge(one, other), judge(other, one)
    assert (forward == "correct") == (back == "correct")
    assert time.perf_counter() - start < 2 * LIMIT_S


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200), answers, st.sampled_from(["boxed", "gsm8k", "plain", "paper"]))
def test_grading_never_raises(response: str, reference: str, style: str) -> None:
    start = time.perf_counter()
    for shape in (response, f"\\boxed{{{response}}}\n#### {response}\nAnswer: {response}"):
        assert rewards.grade(shape, reference, style).value in (0.0, 1.0)
    assert time.perf_counter() - start < 2 * LIMIT_S


def mutated(text: str, source: random.Random) -> str:
    """Delete, double, swap or insert a few characters."""
    characters = list(text)
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(characters) + 1)
        kind = source.randrange(4)
        if kind == 0:
            characters[at : at + source.randint(1, 4)] = []
        elif kind == 1:
            characters[at:at] = characters[at : at + source.randint(1, 8)]
        elif kind == 2:
            characters[at:at] = source.choice(FRAGMENTS)
        else:
            characters[at : at + 2] = reversed(characters[at : at + 2])
    return "".join(characters)


@needs_cases
def test_mutated_cases_are_judged_alike_from_both_sides_and_in_time() -> None:
    source = random.Random(11)
    cases = [json.loads(line) for line in CASES.read_text().strip().split("\n")]
    for case in cases * 4:
        answer = EXTRACTORS[case["style"]](case["completion"]) or ""
        one, other = mutated(answer[:1400], source), mutated(case["reference"], source)
        for left, right in ((one, other), (one, case["reference"])):
            start = time.perf_counter()
            forward, back = judge(left, right), judge(right, left)
            assert (forward == "correct") == (back == "correct"), (left, right)
            assert time.perf_counter() - start < 2 * LIMIT_S, (left, right)
