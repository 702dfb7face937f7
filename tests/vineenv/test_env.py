from __future__ import annotations

import random

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from envs.arithmetic import Arithmetic
from tests.chain import Chain
from vineenv.env import ReasoningEnv, as_reward
from vineenv.errors import UsageError
from vineenv.types import Problem, State


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_passes_gymnasiums_checker(sums: Arithmetic) -> None:
    check_env(sums)
    assert isinstance(sums, gymnasium.Env)


def test_reset_to_any_prefix_equals_having_walked_there(sums: Arithmetic) -> None:
    rng = random.Random(0)
    for index in range(50):
        problem = sums.problem("train", index)
        assert problem.solution is not None
        ids = sums.encode(problem.solution)
        cut = rng.randrange(1, len(ids))
        sums.reset(options={"problem": problem.id})
        for token in ids[:cut]:
            walked, *_ = sums.step([token])
        walked_state = sums.state
        jumped, _ = sums.reset(options={"problem": problem.id, "prefix": ids[:cut]})
        assert sums.state == walked_state
        assert np.array_equal(walked["tokens"], jumped["tokens"]) and walked["length"] == jumped["length"]


def test_prefix_may_be_text(sums: Arithmetic) -> None:
    sums.reset(options={"problem": "test/3", "prefix": "a+1=11\n"})
    assert sums.decode(sums.state.response) == "a+1=11\n"
    assert sums.state.response == sums.encode("a+1=11\n")


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_gold_solution_earns_one_in_any_chunking(sums: Arithmetic, chunk: int) -> None:
    problem = sums.problem("train", 7)
    assert problem.solution is not None
    ids = (*sums.encode(problem.solution), sums.eos_id)
    state, total = sums.initial_state(problem), 0.0
    for start in range(0, len(ids), chunk):
        state, reward, terminated, truncated, info = sums.transition(state, ids[start : start + chunk])
        total += reward
    assert (total, terminated, truncated, info["reward"].status) == (1.0, True, False, "correct")


def test_transition_is_pure(sums: Arithmetic) -> None:
    state = sums.initial_state(sums.problem("train", 0))
    before = State(**vars(state))
    first = sums.transition(state, sums.encode("a+1=9\n"))
    second = sums.transition(state, sums.encode("a+1=9\n"))
    assert state == before and first[0] == second[0] and first[0] != state


def test_budget_truncates_without_inventing_an_end(sums: Arithmetic) -> None:
    state = sums.initial_state(sums.problem("train", 0))
    state, reward, terminated, truncated, info = sums.transition(state, [5] * 1000)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert len(state.response) == sums.max_new_tokens and sums.eos_id not in state.tokens
    assert info["reward"].status == "no_answer"


def test_end_exactly_at_the_budget_is_termination(sums: Arithmetic) -> None:
    state = sums.initial_state(sums.problem("train", 0), [5] * (sums.max_new_tokens - 1))
    _, _, terminated, truncated, _ = sums.transition(state, [sums.eos_id])
    assert terminated and not truncated


def test_restore_comes_back(sums: Arithmetic) -> None:
    first, _ = sums.reset(seed=1)
    kept = sums.state
    sums.step("a+1=9\n")
    again = sums.restore(kept)
    assert sums.state is kept and np.array_equal(first["tokens"], again["tokens"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"problem": "train/999999999"}, "No problem 'train/999999999': split 'train' has 100000"),
        ({"problem": "trian/1"}, "Unknown problem 'trian/1'"),
        ({"prefx": [1]}, "Did you mean 'prefix'"),
        ({"problem": "test/1", "prefix": [99999]}, "Token id 99999 in the prefix is outside the vocabulary"),
        ({"problem": "test/1", "prefix": [1]}, "end-of-sequence"),
        ({"problem": "test/1", "prefix": [5] * 40}, "at most 39 leave room"),
        ({"problem": "1 2 " * 200}, "its prompt has"),
    ],
)
def test_bad_resets_say_what_is_wrong(sums: Arithmetic, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sums.reset(options=options)


def test_no_action_after_the_end(sums: Arithmetic) -> None:
    sums.reset(seed=0)
    sums.step([sums.eos_id])
    with pytest.raises(UsageError, match="has ended"):
        sums.step([5])


class Echo(Chain):
    """Answers every second token with a foreign one."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return tuple(range(self.vocab_size))

    def respond(self, state: State) -> list[int]:
        own = len(state.response) - sum(b - a for a, b in state.foreign)
        return [7] if own % 2 == 0 else []


def test_environment_tokens_are_marked_and_cost_no_budget() -> None:
    env: ReasoningEnv = Echo(length=9)
    state = env.initial_state(env.problem("train", 0))
    for _ in range(4):
        state, *_ = env.transition(state, [2])
    assert state.response == (2, 2, 7, 2, 2, 7)
    assert state.foreign == ((4, 5), (7, 8))
    assert state.budget == env.max_new_tokens - 4


def test_a_walk_does_not_depend_on_its_chunks() -> None:
    env: ReasoningEnv = Echo(length=9)
    start = env.initial_state(env.problem("train", 0))
    whole, *_ = env.transition(start, [2, 3, 4, 5, 6])
    state = start
    for token in [2, 3, 4, 5, 6]:
        state, *_ = env.transition(state, [token])
    assert state == whole
    assert whole.response == (2, 3, 7, 4, 5, 7, 6)


def test_a_prefix_is_recognised_with_what_the_environment_appended() -> None:
    env: ReasoningEnv = Echo(length=9)
    problem = env.problem("train", 0)
    walked, *_ = env.transition(env.initial_state(problem), [2, 3, 4, 5, 6])
    assert env.initial_state(problem, walked.response) == walked
    after_call, *_ = env.transition(env.initial_state(problem), [2, 3])
    assert env.initial_state(problem, (2, 3)) == after_call == env.initial_state(problem, (2, 3, 7))
    with pytest.raises(UsageError, match=r"No walk leads to this prefix.*appends 'f'.*has 'e'"):
        env.initial_state(problem, (2, 3, 6, 4))
    with pytest.raises(UsageError, match="decides the task"):
        env.initial_state(problem, (*walked.response, 2, 7, 2))


def test_no_step_begins_in_what_the_environment_appended() -> None:
    env: ReasoningEnv = Echo(length=9)
    state, *_ = env.transition(env.initial_state(env.problem("train", 0)), [2, 3, 4, 5])
    assert state.response == (2, 3, 7, 4, 5, 7)
    assert env.step_starts(state) == [0, 1, 3, 4]


def test_rewards_may_be_plain_numbers() -> None:
    assert as_reward(1).status == "correct" and as_reward(0.0).status == "wrong"
    with pytest.raises(TypeError, match="must return a number or a Reward, not str"):
        as_reward("1")  # ty: ignore[invalid-argument-type]


def test_a_question_given_as_text_is_explored_but_not_rewarded(sums: Arithmetic) -> None:
    sums.reset(options={"problem": "10 A+1 B+2=?\n"})
    assert sums.state.problem == Problem("10 A+1 B+2=?\n", "10 A+1 B+2=?\n", "")
    *_, info = sums.step("#### 13<eos>")
    assert info["reward"].value == 0 and info["reward"].status == "gold_error"
