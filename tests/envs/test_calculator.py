from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import pytest
import sympy
from transformers import PreTrainedTokenizerFast

from algorithms.sft import IGNORED, batches
from envs.calculator import Calculator, calculate
from envs.generated import split_of
from rewards.answer import AnswerReward
from vineenv.errors import UsageError
from vineenv.rollout import Sampling, rollout
from vineenv.rows import build_rows
from vineenv.types import Completion, Problem, Request
from vineenv.vines import Vines, grow_vines, prefix_state


@pytest.fixture
def calculator(tokenizer: PreTrainedTokenizerFast) -> Calculator:
    return Calculator(tokenizer, AnswerReward(style="gsm8k"))


def test_the_environment_appends_the_result(calculator: Calculator) -> None:
    problem = calculator.problem("train", 0)
    calculator.reset(options={"problem": problem.id})
    calculator.step("[27*6=")
    state = calculator.state
    assert calculator.decode(state.response) == "[27*6=162]"
    assert calculator.decode(state.written) == "[27*6="
    assert state.budget == calculator.max_new_tokens - 6
    calculator.step("a=b\n[2/0=")
    assert calculator.decode(calculator.state.response) == "[27*6=162]a=b\n[2/0=error]"
    assert len(calculator.state.foreign) == 2


def test_gold_solutions_are_right_and_oracle_agrees(calculator: Calculator) -> None:
    for index in range(200):
        problem = calculator.problem("test", index)
        start, *changes = problem.prompt.removesuffix("=?\n").split(" ")
        expected = sympy.Integer(start)
        for change in changes:
            expected = sympy.sympify(f"({expected}){change}")
        assert problem.answer == str(expected) and split_of(problem.prompt) == "test"
        state = calculator.initial_state(problem, problem.solution or "")
        assert calculator.oracle(state) == (True, 1)
        end, reward, terminated, _, _ = calculator.transition(
            calculator.initial_state(problem), (*state.written, calculator.eos_id)
        )
        assert (reward, terminated, end.tokens[:-1]) == (1.0, True, state.tokens)
    wrong = calculator.initial_state(problem, "[1+1=2]\n")
    assert calculator.oracle(wrong)[0] is False


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("27*6", "162"), ("7/3", "7/3"), ("(2-5)*4", "-12"), (" 12 + 3 ", "15"), ("--4", "4"), ("6/3", "2"),
        ("1/0", "error"), ("2**9", "error"), ("9//2", "error"), ("", "error"), ("__import__('os')", "error"),
        ("1e9", "error"), ("2+", "error"), ("007", "error"), ("9" * 65, "error"), ("9" * 16, "error"),
        ("99999999*99999999*9", "error"), ("(" * 40 + "1" + ")" * 20, "error"), ("1 2", "error"),
        ("()", "error"), ("1.5", "error"), ("1,2", "error"),
    ],
)  # fmt: skip
def test_the_grammar_is_bounded(expression: str, result: str) -> None:
    assert calculate(expression) == result


def test_random_expressions_equal_exact_arithmetic() -> None:
    rng = random.Random(0)
    for _ in range(300):
        a, b, c = (rng.randint(1, 999) for _ in range(3))
        assert calculate(f"{a}-{b}*({c}+{a})/{b}") == str(Fraction(a) - Fraction(b * (c + a), b))
        assert calculate(f"{a}/{b}-{c}") == str(Fraction(a, b) - c)


class Reciting:
    """An engine that writes the gold solution, up to the next call or the end."""

    def __init__(self, env: Calculator, problems: Sequence[Problem]) -> None:
        self.env = env
        self.golds = [(*env.initial_state(p, p.solution or "").tokens, env.eos_id) for p in problems]

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        return [[self._go_on(request)] * request.n for request in requests]

    def _go_on(self, request: Request) -> Completion:
        gold = next(g for g in self.golds if g[: len(request.prefix)] == request.prefix)
        rest = gold[len(request.prefix) :]
        ids = rest[: next(i + 1 for i, token in enumerate(rest) if token in request.stop_ids)]
        return Completion(ids, (-0.5,) * len(ids), "stop")


def test_environment_tokens_get_no_credit_and_vines_go_on_across_calls(calculator: Calculator) -> None:
    problems = [calculator.problem("train", i) for i in range(3)]
    engine = Reciting(calculator, problems)
    starts = [calculator.initial_state(problem) for problem in problems]
    trajectories = [t for row in rollout(calculator, engine, starts, 1, Sampling(), 0) for t in row]  # ty: ignore
    rows = build_rows(trajectories, [calculator.step_starts(t.state) for t in trajectories], [0, 1, 2])
    values, tokens = grow_vines(calculator, engine, trajectories, Vines(K=2), Sampling(), 0)  # ty: ignore
    decoded = 0
    for b, (trajectory, value) in enumerate(zip(trajectories, values, strict=True)):
        state = trajectory.state
        assert trajectory.reward.value == 1 and len(state.foreign) == len(state.problem.meta["calls"])
        trained = rows["action"][b][rows["mask"][b]].tolist()
        assert tuple(trained) == state.written
        assert "]" not in calculator.decode(trained)
        assert set(trajectory.logprobs) == {0.0, -0.5} and trajectory.logprobs.count(0.0) == sum(
            right - left for left, right in state.foreign
        )
        assert (value.means == 1).all() and (value.counts == 2).all()
        assert len(value.starts) == len(state.problem.meta["calls"]) + 1
        for start in value.starts:
            branch = prefix_state(calculator, trajectory, start)
            assert branch == calculator.initial_state(state.problem, branch.response)
            decoded += 2 * (len(state.written) - len(branch.written))
    assert tokens == decoded


def test_a_prefix_with_a_wrong_result_is_refused(calculator: Calculator) -> None:
    with pytest.raises(UsageError, match=r"after '\[2\*3=' the environment appends '6\]'.*has '7\]'"):
        calculator.reset(options={"problem": "test/0", "prefix": "[2*3=7]\n"})


def test_results_shorten_the_budget_where_the_context_is_short(tokenizer: PreTrainedTokenizerFast) -> None:
    env = Calculator(tokenizer, AnswerReward(style="gsm8k"), max_new_tokens=30, context=60)
    state, *_ = env.transition(env.initial_state(Problem("p", "x" * 40, "1")), env.encode("[9*9="))
    assert len(state.tokens) == 48 and state.budget == 12


def test_supervised_training_reads_results_and_does_not_learn_them(calculator: Calculator) -> None:
    ids, labels = next(batches(calculator, 4, 0))
    for row, label in zip(ids, labels, strict=True):
        learned = calculator.decode(row[label != IGNORED].tolist())
        assert "]" not in learned and "=" in learned and learned.count("[") == learned.count("=")
        assert calculator.decode(row.tolist()).count("]") == learned.count("[")


def test_a_result_that_no_longer_fits_the_context_ends_the_episode(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    env = Calculator(tokenizer, AnswerReward(style="gsm8k"), max_new_tokens=30, context=60)
    problem = Problem("p", "x" * 40, "1")
    state, _, terminated, truncated, _ = env.transition(
        env.initial_state(problem), env.encode("a" * 13 + "[9*9=")
    )
    assert (terminated, truncated, len(state.tokens)) == (False, True, 58)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_steps": 0}, "1 <= min_steps <= max_steps"),
        ({"digits": 0}, "env.digits=0 must lie between 1 and 9"),
        ({"operations": "+^"}, "made of the signs"),
        ({"heldout_size": 0}, "at least 1"),
    ],
)
def test_bad_settings(tokenizer: PreTrainedTokenizerFast, settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Calculator(tokenizer, AnswerReward(style="gsm8k"), **settings)  # ty: ignore[invalid-argument-type]
