from __future__ import annotations

import random
import re

import pytest
from sympy import Integer
from transformers import PreTrainedTokenizerFast

from envs.arithmetic import Arithmetic, Slips, demonstrate, split_of
from rewards.answer import AnswerReward
from vineenv.errors import UsageError


@pytest.fixture(scope="module")
def env(tokenizer: PreTrainedTokenizerFast) -> Arithmetic:
    """The default problems."""
    return Arithmetic(tokenizer, AnswerReward(style="gsm8k"), slip_total=0.17, slip_repeat=0.03)


def read_prompt(prompt: str) -> tuple[int, dict[str, int]]:
    """Start and named numbers, read off the text that the model is shown."""
    start, *items = prompt.removesuffix("=?\n").split(" ")
    return int(start), {item[0].lower(): int(item[2:]) for item in items}


def test_answers_are_right_and_solutions_earn_the_reward(env: Arithmetic) -> None:
    for split in ("train", "validation", "test"):
        for index in range(300):
            problem = env.problem(split, index)
            start, addends = read_prompt(problem.prompt)
            assert Integer(problem.answer) == sum(map(Integer, addends.values()), Integer(start))
            assert 10 <= len(addends) <= 12 and int(problem.answer) <= 99
            state = env.initial_state(problem)
            assert problem.solution is not None
            _, reward, *_ = env.transition(state, (*env.encode(problem.solution), env.eos_id))
            assert reward == 1


def test_the_reward_refuses_another_number(env: Arithmetic) -> None:
    problem = env.problem("test", 0)
    wrong = f"#### {int(problem.answer) + 1}"
    _, reward, *_ = env.transition(env.initial_state(problem), (*env.encode(wrong), env.eos_id))
    assert reward == 0


def test_splits_are_disjoint_by_construction_and_problems_repeatable(env: Arithmetic) -> None:
    seen: dict[str, set[str]] = {}
    for split in ("train", "validation", "test"):
        problems = [env.problem(split, i) for i in range(400)]
        assert problems == [env.problem(split, i) for i in range(400)]
        keys = {str((p.meta["start"], sorted(p.meta["addends"].items()))) for p in problems}
        assert len(keys) == 400
        assert all(split_of(p.meta["start"], dict(p.meta["addends"])) == split for p in problems)
        seen[split] = keys
    assert not seen["train"] & seen["test"] and not seen["train"] & seen["validation"]
    for index in range(200):
        problem, _ = env.demonstration(index)
        assert split_of(problem.meta["start"], dict(problem.meta["addends"])) == "train"


def test_split_does_not_depend_on_the_order_of_the_numbers() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        items = [(name, rng.randint(1, 9)) for name in "abcdef"]
        first = split_of(10, dict(items))
        rng.shuffle(items)
        assert split_of(10, dict(items)) == first


def test_oracle_follows_the_lines(env: Arithmetic) -> None:
    problem = env.problem("train", 0)
    start, addends = read_prompt(problem.prompt)
    names, total, text = list(addends), start, ""
    for done, name in enumerate(names):
        assert env.oracle(env.initial_state(problem, text)) == (True, len(names) - done + 1)
        total += addends[name]
        text += f"{name}+{addends[name]}={total}\n"
    assert env.oracle(env.initial_state(problem, text)) == (True, 1)
    first = f"{names[0]}+{addends[names[0]]}={start + addends[names[0]]}\n"
    assert env.oracle(env.initial_state(problem, first + first))[0] is False, "a number used twice"
    wrong = f"{names[0]}+{addends[names[0]]}={start + addends[names[0]] + 1}\n"
    assert env.oracle(env.initial_state(problem, wrong))[0] is False, "a wrong total"
    copied = f"{names[0]}+{addends[names[0]] + 1}={start + addends[names[0]] + 1}\n"
    assert env.oracle(env.initial_state(problem, copied))[0] is False, "a number miscopied"
    assert env.oracle(env.initial_state(problem, "nonsense\n"))[0] is False
    assert env.oracle(env.initial_state(problem, first + "unfinish"))[0] is True, "not judged before its end"


def test_slips_come_at_their_rates_and_carry_on() -> None:
    rng = random.Random(0)
    addends = {name: 1 + i % 9 for i, name in enumerate("abcdefghij")}
    wrong = lines = repeats = 0
    for _ in range(2000):
        total, used = 20, set()
        for line in demonstrate(20, addends, rng, Slips(0.2, 0.1), 999).split("\n")[:-1]:
            name, addend, result = re.split(r"[+=]", line)
            wrong += int(result) != total + int(addend)
            repeats += name in used
            total = int(result)
            used.add(name)
            lines += 1
    assert wrong / lines == pytest.approx(0.2, abs=0.02)
    assert repeats / lines == pytest.approx(0.1 * 0.9, abs=0.01), "the first line cannot repeat"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_steps": 5, "max_steps": 4}, "min_steps <= max_steps"),
        ({"slip_total": 0.9}, "env.slip_total=0.9"),
        ({"heldout_size": 0}, "env.heldout_size=0"),
        ({"max_total": 15}, "stays below env.max_total=15"),
        ({"split": "tset"}, "Did you mean 'test'"),
    ],
)
def test_bad_settings(tokenizer: PreTrainedTokenizerFast, settings: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Arithmetic(tokenizer, AnswerReward(style="gsm8k"), **settings)  # ty: ignore[invalid-argument-type]
