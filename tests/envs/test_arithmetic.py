from __future__ import annotations

import random
import re

import pytest
from sympy import Integer, sympify
from transformers import PreTrainedTokenizerFast

from envs.arithmetic import Arithmetic
from envs.sums import Slips, Sum, demonstrate
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


STORY = re.compile(r"([A-Z])[a-z]+ (adds|takes) ([0-9]+)(?: bags of ([0-9]+))?\.")


@pytest.mark.parametrize("wording", ["symbols", "words"])
def test_answers_with_every_knob_are_what_the_text_says(
    tokenizer: PreTrainedTokenizerFast, wording: str
) -> None:
    env = Arithmetic(
        tokenizer, AnswerReward(style="gsm8k"), operations="+-*", distractors=3, max_total=999,
        wording=wording, max_new_tokens=200, context=800,
    )  # fmt: skip
    for index in range(300):
        problem = env.problem("test", index)
        if wording == "words":
            assert problem.prompt.count(" hats.") == 3
            found = STORY.findall(problem.prompt)
            start = re.search(r"[0-9]+", problem.prompt)
            assert start is not None
            told = start[0] + "".join(
                f"{'+' if verb == 'adds' else '-'}{n}*{times or 1}" for _, verb, n, times in found
            )
            assert 10 <= len(found) <= 12
        else:
            start, *items = problem.prompt.removesuffix("=?\n").split(" ")
            assert sum(item[1] == ":" for item in items) == 3
            told = start + "".join(item[1:] for item in items if item[1] != ":")
        assert sympify(told) == Integer(problem.answer) >= 0
        assert problem.solution is not None and problem.meta["sum"].split == "test"
        state = env.initial_state(problem, problem.solution)
        assert env.oracle(state) == (True, 1)
        _, reward, *_ = env.transition(state, [env.eos_id])
        assert reward == 1
    line = f"b+{problem.meta['sum'].start}=1\n"
    assert env.oracle(env.initial_state(problem, line))[0] is False


def test_free_order_sets_how_often_the_listed_order_is_left() -> None:
    problem = Sum(20, dict.fromkeys("abcdefghij", "+1"))
    for free_order in (0.0, 0.5, 1.0):
        rng, listed, lines = random.Random(1), 0, 0
        for _ in range(500):
            unused = list("abcdefghij")
            for line in demonstrate(problem, rng, Slips(), 99, free_order).split("\n")[:-1]:
                if len(unused) > 1:
                    listed += line[0] == unused[0]
                    lines += 1
                unused.remove(line[0])
        chance = sum(1 / n for n in range(2, 11)) / 9
        expected = (1 - free_order) + free_order * chance
        assert listed / lines == pytest.approx(expected, abs=0.02)


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
        keys = {str((p.meta["sum"].start, sorted(p.meta["sum"].changes.items()))) for p in problems}
        assert len(keys) == 400
        assert all(p.meta["sum"].split == split for p in problems)
        seen[split] = keys
    assert not seen["train"] & seen["test"] and not seen["train"] & seen["validation"]
    for index in range(200):
        problem, _ = env.demonstration(index)
        assert problem.meta["sum"].split == "train"


def test_split_does_not_depend_on_the_order_of_the_numbers() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        items = [(name, f"{rng.choice('+-')}{rng.randint(1, 9)}") for name in "abcdef"]
        first = Sum(10, dict(items)).split
        rng.shuffle(items)
        assert Sum(10, dict(items)).split == first


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
    problem = Sum(20, {name: f"+{1 + i % 9}" for i, name in enumerate("abcdefghij")})
    wrong = lines = repeats = 0
    for _ in range(2000):
        total, used = 20, set()
        for line in demonstrate(problem, rng, Slips(0.2, 0.1), 999).split("\n")[:-1]:
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
        ({"operations": "+/"}, "made of the signs"),
        ({"wording": "wrods"}, "Did you mean 'words'"),
        ({"distractors": 20}, "max_steps \\+ distractors <= 26"),
        ({"free_order": 1.5}, "env.free_order=1.5 must lie between 0 and 1"),
        ({"split": "tset"}, "Did you mean 'test'"),
    ],
)
def test_bad_settings(tokenizer: PreTrainedTokenizerFast, settings: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Arithmetic(tokenizer, AnswerReward(style="gsm8k"), **settings)  # ty: ignore[invalid-argument-type]
