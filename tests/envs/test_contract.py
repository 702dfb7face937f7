"""What every shipped environment must do, on 1,000 problems and 1,000 prefixes each."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from envs.arithmetic import Arithmetic
from envs.calculator import Calculator
from envs.gsm8k import GSM8K
from envs.math_problems import MathProblems
from envs.tree import Tree
from rewards.answer import AnswerReward
from rewards.leaf import leaf
from rewards.text import TextReward
from tests.conftest import ROOT
from vineenv.check import check_env
from vineenv.contract import gold_action
from vineenv.env import ReasoningEnv
from vineenv.types import Problem

COUNT = 1000
SHARED = ROOT.parent / "shared" / "data" / "gsm8k"
Make = Callable[[PreTrainedTokenizerFast, Path], ReasoningEnv]


def sums(tokenizer: PreTrainedTokenizerFast, folder: Path) -> ReasoningEnv:
    return Arithmetic(tokenizer, AnswerReward(style="gsm8k"))


def calculator(tokenizer: PreTrainedTokenizerFast, folder: Path) -> ReasoningEnv:
    return Calculator(tokenizer, AnswerReward(style="gsm8k"))


def gsm8k(tokenizer: PreTrainedTokenizerFast, folder: Path) -> ReasoningEnv:
    if not SHARED.is_dir():
        pytest.skip("needs GSM8K in ../shared/data/gsm8k")
    return GSM8K(
        tokenizer, AnswerReward(style="gsm8k"), path=str(SHARED), prompt="{problem}\n", validation_size=373,
        max_new_tokens=1500, context=3000,
    )  # fmt: skip


def math_problems(tokenizer: PreTrainedTokenizerFast, folder: Path) -> ReasoningEnv:
    rng = random.Random(0)
    for split in ("train", "test"):
        rows = []
        for _ in range(1100):
            a, b, c = rng.randint(2, 99), rng.randint(2, 99), rng.randint(2, 9)
            answer = rf"\frac{{{a}}}{{{b * c + 1}}}"
            solution = (
                f"We have ${c}x \\cdot {b} + x = {a}$. So $x = {answer}$.\n\nIt is $\\boxed{{{answer}}}$."
            )
            rows.append({"problem": f"Solve ${c}x \\cdot {b} + x = {a}$ ({split}).", "solution": solution})
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return MathProblems(
        tokenizer, AnswerReward(style="boxed"), path=str(folder), layout="math", prompt="{problem}\n",
        validation_size=50, max_new_tokens=200, context=400,
    )  # fmt: skip


def reasoning_gym(tokenizer: PreTrainedTokenizerFast, folder: Path) -> ReasoningEnv:
    pytest.importorskip("reasoning_gym", reason="needs reasoning-gym: pip install 'vineenv[gym]'")
    from envs.reasoning_gym import ReasoningGym

    return ReasoningGym(
        tokenizer, TextReward(), task="gsm_symbolic", prompt="{problem}\n", max_new_tokens=900, context=2000
    )


def tree(tokenizer: PreTrainedTokenizerFast, folder: Path) -> ReasoningEnv:
    return Tree(tokenizer, leaf, depth=6, good=0.01, train_size=2 * COUNT)


MAKERS: list[Make] = [sums, calculator, tree, gsm8k, math_problems, reasoning_gym]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda make: make.__name__)
def env(
    request: pytest.FixtureRequest,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path_factory: pytest.TempPathFactory,
) -> ReasoningEnv:
    return request.param(tokenizer, tmp_path_factory.mktemp("data"))


def actions(env: ReasoningEnv) -> list[tuple[Problem, tuple[int, ...]]]:
    """Gold solutions that the tokenizer can spell; of every other one the last digit or letter is another."""
    drawn, index = [], 0
    while len(drawn) < COUNT:
        problem = env.problem("train", index)
        action = gold_action(env, problem)
        index += 1
        assert action is not None
        if env.decode(env.encode(problem.solution or "")) == problem.solution:
            drawn.append((problem, _spoil(env, action) if len(drawn) % 2 else action))
    return drawn


def _spoil(env: ReasoningEnv, action: tuple[int, ...]) -> tuple[int, ...]:
    signs = "abc" if isinstance(env, Tree) else "0123456789"
    another = dict(zip(env.encode(signs), env.encode(signs[1:] + signs[:1]), strict=True))
    last = max(i for i, token in enumerate(action) if token in another)
    return (*action[:last], another[action[last]], *action[last + 1 :])


def test_the_whole_contract_holds(env: ReasoningEnv) -> None:
    check_env(env, problems=8)


def test_step_by_step_and_at_once_earn_the_same(env: ReasoningEnv) -> None:
    drawn, rng = actions(env), random.Random(2)
    starts = [env.initial_state(problem) for problem, _ in drawn]
    whole = env.transitions(starts, [action for _, action in drawn])
    chunks = {}
    for i, (_, action) in enumerate(drawn):
        size = rng.choice((1, 4, 16))
        chunks[i] = [action[at : at + size] for at in range(0, len(action), size)][::-1]
    states, ends = list(starts), {}
    while chunks:
        moved = env.transitions([states[i] for i in chunks], [left.pop() for left in chunks.values()])
        for i, result in zip(tuple(chunks), moved, strict=True):
            states[i] = result[0]
            if result[0].ended:
                ends[i] = result
                del chunks[i]
    assert [ends[i] for i in range(COUNT)] == whole
    rewards = [reward for _, reward, *_ in whole]
    assert rewards[::2] == [1.0] * (COUNT // 2), "gold solutions"
    assert sum(rewards[1::2]) < COUNT / 50, "another last digit"


def test_reset_to_a_prefix_equals_having_walked_there(env: ReasoningEnv) -> None:
    rng = random.Random(1)
    drawn = [(problem, action[: rng.randrange(1, len(action))], action) for problem, action in actions(env)]
    starts = [env.initial_state(problem) for problem, *_ in drawn]
    walked = [state for state, *_ in env.transitions(starts, [part for _, part, _ in drawn])]
    rest = [action[len(part) :] for _, part, action in drawn]
    later = env.transitions(walked, rest)
    for (problem, _, _), state, remaining, end in zip(drawn, walked, rest, later, strict=True):
        observation, info = env.reset(options={"problem": problem.id, "prefix": state.response})
        assert env.state == state, "ids, foreign spans and budget"
        assert info["text"] == env.decode(state.response)
        assert np.array_equal(observation["tokens"], env.observe(state)["tokens"])
        *_, reward, terminated, truncated, last = env.step(remaining)
        assert (reward, terminated, truncated, last) == end[1:], "what follows"
