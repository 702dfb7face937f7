from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerFast

from envs.reasoning_gym import ReasoningGym
from rewards.text import TextReward
from vineenv.check import check_env, describe
from vineenv.errors import UsageError
from vineenv.types import Problem

pytest.importorskip("reasoning_gym", reason="needs reasoning-gym: pip install 'vineenv[gym]'")


def make(tokenizer: PreTrainedTokenizerFast, task: str, **settings: object) -> ReasoningGym:
    values = {"prompt": "{problem}\n", "heldout_size": 50, "max_new_tokens": 700, "context": 2000, **settings}
    return ReasoningGym(tokenizer, TextReward(), task=task, **values)  # ty: ignore[invalid-argument-type]


@pytest.mark.parametrize("task", ["chain_sum", "gsm_symbolic", "calendar_arithmetic"])
def test_tasks_pass_the_check(tokenizer: PreTrainedTokenizerFast, task: str) -> None:
    check_env(make(tokenizer, task), problems=5)


def test_worked_solutions_come_with_gsm_symbolic(tokenizer: PreTrainedTokenizerFast) -> None:
    problem = make(tokenizer, "gsm_symbolic").problem("train", 3)
    assert problem.solution is not None and problem.solution.count("\n") > 1
    assert problem.solution.endswith(f"#### {problem.answer}")


def test_splits_of_a_small_task_share_no_question(tokenizer: PreTrainedTokenizerFast) -> None:
    env = make(
        tokenizer,
        "prime_factorization",
        settings={"min_value": 2, "max_value": 120},
        heldout_size=20,
        train_size=300,
    )
    report = describe(env)
    assert report.overlap == 0 and report.duplicates["train"] > 100
    with pytest.raises(UsageError, match="too few questions to keep 400 of them out of the validation split"):
        tiny = {"min_value": 2, "max_value": 30}
        make(tokenizer, "prime_factorization", settings=tiny, heldout_size=400).problem("validation", 0)


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("chain_sums", {}, "Unknown env.task 'chain_sums'. Did you mean 'chain_sum'"),
        ("chain_sum", {"foo": 1}, "unexpected keyword argument 'foo'"),
        ("chain_sum", {"min_terms": 0}, "min_terms must be positive"),
    ],
)
def test_bad_tasks(
    tokenizer: PreTrainedTokenizerFast, task: str, settings: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make(tokenizer, task, settings=settings)


@pytest.mark.parametrize(
    ("response", "answer", "value", "status"),
    [
        ("so\n#### -4", "-4", 1, "correct"),
        ("#### The answer is -4", "-4", 0, "wrong"),
        ("#### -5", "5", 0, "wrong"),
        ("#### 1,200", "1,200", 1, "correct"),
        ("#### 1", "1,200", 0, "wrong"),
        ("#### 3\n#### 2  x  2", "2 x 2", 1, "correct"),
        ("-4", "-4", 0, "no_answer"),
        ("#### friday", "Friday", 0, "wrong"),
        ("#### \n", "x", 0, "no_answer"),
        ("#### x", " ", 0, "gold_error"),
    ],
)
def test_text_is_compared_whole(response: str, answer: str, value: int, status: str) -> None:
    reward = TextReward()(response, Problem("p", "q", answer))
    assert (reward.value, reward.status) == (value, status)
