import time

import pytest

from rewards.maths import algebra
from rewards.maths.verdict import fault, judge
from tests.rewards.pairs import DIFFERENT, SAME


@pytest.mark.parametrize("kind", SAME)
def test_equal_answers_are_accepted_both_ways(kind: str) -> None:
    missed = [
        pair for pair in SAME[kind] for answer, gold in (pair, pair[::-1]) if judge(answer, gold) != "correct"
    ]
    assert not missed


@pytest.mark.parametrize("kind", DIFFERENT)
def test_different_answers_are_refused_both_ways(kind: str) -> None:
    accepted = [
        pair
        for pair in DIFFERENT[kind]
        for answer, gold in (pair, pair[::-1])
        if judge(answer, gold) == "correct"
    ]
    assert not accepted


@pytest.mark.parametrize(
    "reference", ["", r"\frac{}{}", r"\frac{1}{", "{{{", "?", "nan", r"\frac{5}{0}", r"\infty-\infty"]
)
def test_a_bad_reference_is_reported_and_never_rewarded(reference: str) -> None:
    assert fault(reference) is not None
    assert judge(reference, reference) == "gold_error"


def test_what_cannot_be_read_equals_only_its_own_text() -> None:
    recurrence = r"F_n = \sum_{k=0}^{n-1} F_k F_{n-k-1}"
    assert judge(recurrence.replace(" ", ""), recurrence) == "correct"
    assert judge(r"F_n = \sum_{k=0}^{n-2} F_k F_{n-k-2}", recurrence) == "unparsed"


def test_text_that_only_looks_alike_is_not_equal() -> None:
    unreadable, readable = r"3 \text{not cm}", r"3 \text{notcm}"
    assert judge(readable, unreadable) == "wrong"
    assert judge(unreadable, readable) == "unparsed"
    assert judge(unreadable, unreadable) == "correct"


def test_open_arithmetic_is_no_numeral_either_way() -> None:
    assert judge("1024", "2^{10}") == "correct"
    assert judge("1024", "2^{10}", numerals_only=True) == "wrong"
    assert judge("2^{10}", "1024", numerals_only=True) == "wrong"


HOSTILE = [
    r"9^{9^{9}}", r"10^{10^{10}}", "100000000!", r"\binom{1000000000}{500000000}", r"\sin(10^{10^{10}})",
    "9!!!!!", r"-75>x+3\sqrt{-3-64}", r"\frac{x^8}{x-1}<|x|+\sqrt{x}",
    r"\sum_{k=1}^{10^{12}} 1/k", "(x+y+z+w+1)^{400}", r"e^{e^{e^{e^{9}}}}", "(" * 200 + "x" + ")" * 200,
    "x^" * 300 + "x", r"\frac{1}{" * 200 + "1" + "}" * 200, "2**9999999999", "x" * 1000, r"\pm" * 300 + "1",
    r"|x-3|\le\sqrt[3]{x^2}", "(x+1)^{19}(y+2)^{19}=1/x",
]  # fmt: skip


@pytest.mark.parametrize("answer", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_answer_is_refused_at_once(answer: str) -> None:
    algebra.warm_up()
    for reference in ("5", "y=2x"):
        start = time.perf_counter()
        assert judge(answer, reference) != "correct"
        assert time.perf_counter() - start < 0.5
