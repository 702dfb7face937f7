import pickle
import time

import pytest

from rewards import grading
from rewards.answer import AnswerReward
from vineenv.types import Problem


def problem(answer: str) -> Problem:
    return Problem(id="p", prompt="?", answer=answer)


def test_it_grades_by_its_style() -> None:
    assert AnswerReward(style="gsm8k")("#### 5", problem("5")).value == 1
    assert AnswerReward(style="boxed")("#### 5", problem("5")).status == "no_answer"
    with pytest.raises(ValueError, match="No style 'gsm'"):
        AnswerReward(style="gsm")


def test_many_are_graded_in_order() -> None:
    reward = AnswerReward(style="boxed")
    answers = ["5", "x+11", "x-11", "y<4", "", "12"]
    golds = ["5", "11+x", "11+x", "(-\\infty,4)", "5", "13"]
    graded = reward.grade_many(
        [rf"\boxed{{{answer}}}" for answer in answers], [problem(gold) for gold in golds]
    )
    assert [one.status for one in graded] == ["correct", "correct", "wrong", "correct", "no_answer", "wrong"]
    with pytest.raises(ValueError):
        reward.grade_many(["a"], [])
    reward.close()
    assert reward.grade_many([r"\boxed{x+12}"], [problem("12+x")])[0].value == 1


def test_submit_returns_before_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    reward = AnswerReward(style="boxed")

    def slow(*_: object) -> str:
        time.sleep(0.2)
        return "correct"

    monkeypatch.setattr(grading.shared_pool(), "judge", slow)
    start = time.monotonic()
    futures = [reward.submit(rf"\boxed{{x+{n}}}", problem(f"x+{n}+0")) for n in range(2)]
    assert time.monotonic() - start < 0.1
    assert [future.result().status for future in futures] == ["correct", "correct"]
    assert time.monotonic() - start < 0.35


def test_a_bad_reference_is_found_at_load() -> None:
    reward = AnswerReward(style="boxed")
    assert reward.check(problem("5")) is None
    assert reward.check(problem(r"x^2+1")) is None
    assert reward.check(problem(r"F_n = \sum_{k=0}^{n} F_k")) is None
    for bad in ["", r"\frac{1}{", "{" * 10**6, "nan"]:
        assert reward.check(problem(bad)) is not None


def test_it_pickles_as_its_settings() -> None:
    copy = pickle.loads(pickle.dumps(AnswerReward(style="plain")))
    assert copy("Answer: 2x+1", problem("1+2x")).value == 1
