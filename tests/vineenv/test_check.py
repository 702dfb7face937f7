"""The checker, on environments that are whole and on ones broken on purpose."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from envs.arithmetic import Arithmetic
from envs.calculator import Calculator
from rewards.answer import AnswerReward
from vineenv.check import ContractError, check_env, describe, findings
from vineenv.env import ReasoningEnv, Transition
from vineenv.segment import Newline
from vineenv.types import Problem, Reward, State


class Sums(Arithmetic):
    """Short sums."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, reward: Any = None, **settings: Any) -> None:
        values = {"min_steps": 2, "max_steps": 3, "max_new_tokens": 40, "context": 96, **settings}
        super().__init__(tokenizer, reward or AnswerReward(style="gsm8k"), **values)


class Forgetful(Sums):
    def problem(self, split: str, index: int) -> Problem:
        return super().problem(split, random.randrange(100))


class Misnamed(Sums):
    def problem(self, split: str, index: int) -> Problem:
        return dataclasses.replace(super().problem(split, index), id=f"{split}/{index + 1}")


class Counting(Sums):
    calls = 0

    def transition(self, state: State, action: Sequence[int]) -> Transition:
        self.calls += 1
        state, reward, *rest = super().transition(state, action)
        return state, reward + self.calls, *rest  # ty: ignore[invalid-return-type]


class BlindToPrefix(Sums):
    def initial_state(self, problem: Problem, prefix: Sequence[int] | str = ()) -> State:
        state = super().initial_state(problem, prefix)
        return dataclasses.replace(state, budget=self.max_new_tokens)


class Amnesiac(Sums):
    def restore(self, state: State) -> dict[str, Any]:
        return self.observe(state)


class Hasty(Sums):
    def decided(self, state: State) -> bool:
        return len(state.response) >= self.max_new_tokens

    def transition(self, state: State, action: Sequence[int]) -> Transition:
        state, reward, terminated, truncated, info = super().transition(state, action)
        return state, reward, terminated, truncated or (terminated and state.budget == 0), info


class Calls(Calculator):
    """Chains with the shipped reward."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__(tokenizer, AnswerReward(style="gsm8k"))


class LastAction(Calls):
    """Appends results only where an action ends with a call."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return (self.eos_id,)

    def transition(self, state: State, action: Sequence[int]) -> Transition:
        moved, *rest = super().transition(state, action)
        return self._append(moved, () if moved.ended else tuple(self.respond(moved))), *rest  # ty: ignore


class Unmarked(Calls):
    def _append(self, state: State, ids: tuple[int, ...]) -> State:
        return dataclasses.replace(state, tokens=state.tokens + ids)


class WrongOracle(Sums):
    def oracle(self, state: State) -> tuple[bool, int]:
        right, left = super().oracle(state)
        return right, left - 1


class Reversed(AnswerReward):
    def grade_many(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Reward]:
        return super().grade_many(responses, problems)[::-1]


class Overlapping(Newline):
    def __call__(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> list[int]:
        return [*super().__call__(ids, logprobs), len(ids) + 3]


class Units(Sums):
    def problem(self, split: str, index: int) -> Problem:
        problem = super().problem(split, index)
        return dataclasses.replace(problem, answer=problem.solution or "")


class Space(Sums):
    def observe(self, state: State) -> dict[str, Any]:
        return {**super().observe(state), "length": -1}


BROKEN: dict[str, tuple[Callable[[Any], ReasoningEnv], str]] = {
    "problems drawn anew": (Forgetful, "problems"),
    "ids of other problems": (Misnamed, "problems"),
    "a counter in transition": (Counting, "purity"),
    "a prefix that costs nothing": (BlindToPrefix, "reset to a prefix"),
    "restore that only looks": (Amnesiac, "restore"),
    "both ends at once": (Hasty, "endings"),
    "results by action": (LastAction, "chunks"),
    "unmarked results": (Unmarked, "environment tokens"),
    "an oracle off by one": (WrongOracle, "oracle"),
    "grades in reverse": (lambda t: Sums(t, Reversed(style="gsm8k")), "batches"),
    "a start beyond the end": (lambda t: Sums(t, segmenter=Overlapping(t)), "step boundaries"),
    "a reference that is no answer": (Units, "reference answers"),
    "another answer style": (lambda t: Sums(t, AnswerReward(style="boxed")), "worked solutions"),
    "too small a budget": (lambda t: Sums(t, max_new_tokens=8), "worked solutions"),
    "an observation out of its space": (Space, "Gymnasium's checker"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_environments_are_found(tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    make, check = BROKEN[name]
    failed = {finding.name: finding for finding in findings(make(tokenizer), problems=4) if finding.fault}
    assert check in failed and failed[check].cause in str(failed[check])


@pytest.mark.parametrize("make", [Sums, Calls])
def test_whole_environments_pass(
    tokenizer: PreTrainedTokenizerFast, make: Callable[[Any], ReasoningEnv]
) -> None:
    check_env(make(tokenizer), problems=10)


def test_the_error_names_check_and_cause(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(
        ContractError, match=r"Amnesiac breaks its contract.\nFAILED  restore: .*\n +likely cause"
    ):
        check_env(Amnesiac(tokenizer), problems=3)


def test_the_report_counts_rows(tokenizer: PreTrainedTokenizerFast) -> None:
    class Repeating(Sums):
        def problem(self, split: str, index: int) -> Problem:
            return dataclasses.replace(super().problem("train", index // 2), answer="" if index == 3 else "1")

    report = describe(Repeating(tokenizer, train_size=10, heldout_size=6))
    assert report.rows == {"train": 10, "validation": 6, "test": 6}
    assert report.duplicates == {"train": 5, "validation": 3, "test": 3}
    assert report.empty_answers == {"train": 1, "validation": 1, "test": 1} and report.overlap == 3
    assert "questions in more than one split: 3" in str(report)
