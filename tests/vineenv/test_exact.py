from __future__ import annotations

import itertools

import numpy as np
import pytest

from envs.calculator import Calculator
from envs.tree import Tree
from rewards.answer import AnswerReward
from rewards.leaf import leaf
from tests.chain import Chain, letters_tokenizer
from tests.conftest import make_llama
from vineenv.assets.tokenizer import build_tokenizer
from vineenv.engines.native import NativeEngine
from vineenv.errors import UsageError
from vineenv.exact import ExactValues, ModelPolicy, Policy, TablePolicy, bellman_residual, solve
from vineenv.rollout import Sampling, rollout


def tree(**settings: object) -> Tree:
    return Tree(letters_tokenizer("abc"), leaf, **settings)  # ty: ignore[invalid-argument-type]


def table(env: Tree, seed: int = 0) -> TablePolicy:
    return TablePolicy(env.actions, env.vocab_size, seed)


@pytest.fixture(params=["table", "model"])
def solved(request: pytest.FixtureRequest) -> tuple[Tree, Policy, ExactValues]:
    """A tree of 121 states, under a random table or a random language model of 5 tokens."""
    env = tree(depth=5, good=0.3)
    policy = table(env) if request.param == "table" else ModelPolicy(make_llama(env.vocab_size))
    return env, policy, solve(env, env.problem("train", 0), policy)


def test_values_recurse(solved: tuple[Tree, Policy, ExactValues]) -> None:
    env, _, values = solved
    assert len(values.states) == 1 + 3 + 9 + 27 + 81
    assert bellman_residual(env, values) < 1e-6
    assert np.abs((values.policy * values.advantage).sum(axis=1)).max() < 1e-12
    assert values.visits[0] == 1 and 0 < values.v[0] < 1


def test_values_are_sums_over_whole_words(solved: tuple[Tree, Policy, ExactValues]) -> None:
    env, policy, values = solved
    problem, rows = env.problem("train", 0), {}
    for state in values.states[::10]:
        begun, total, square = env.decode(state.response), 0.0, 0.0
        for ending in itertools.product(env.letters, repeat=env.depth - len(begun)):
            word, chance = begun + "".join(ending), 1.0
            for end in range(len(begun), env.depth):
                if word[:end] not in rows:
                    rows[word[:end]] = policy([env.initial_state(problem, word[:end])])[0]
                chance *= rows[word[:end]][env.encode(word[end])[0]]
            total += chance * problem.meta["pays"][word]
            square += chance * problem.meta["pays"][word] ** 2
        assert values.value(state) == pytest.approx(total, abs=1e-6)
        assert values.square[values.place[state.tokens]] == pytest.approx(square, abs=1e-6)


def test_chance_of_passing_through(solved: tuple[Tree, Policy, ExactValues]) -> None:
    env, policy, values = solved
    state = values.states[60]
    chance = 1.0
    for end, token in enumerate(state.response):
        chance *= policy([env.initial_state(state.problem, state.response[:end])])[0][token]
    assert values.visits[60] == pytest.approx(chance, rel=1e-5)


def test_monte_carlo_means_agree_for_a_model() -> None:
    env = tree(depth=5, good=0.3)
    model = make_llama(env.vocab_size)
    checked, K = 0, 200
    for index in range(2):
        values = solve(env, env.problem("train", index), ModelPolicy(model))
        played = rollout(env, NativeEngine(model), values.states, K, Sampling(), seed=index)
        checked += _compare(values, [[t.reward.value for t in row] for row in played])
    assert checked >= 200


def test_monte_carlo_means_agree_for_a_table() -> None:
    env, checked = tree(depth=5, good=0.3, decoy=0.35), 0
    for index in range(2):
        policy, rng = table(env, seed=index), np.random.default_rng(index)
        values = solve(env, env.problem("train", index), policy)
        checked += _compare(
            values, [_play(env, values, start, 200, rng) for start in range(len(values.states))]
        )
    assert checked >= 200


def _play(env: Tree, values: ExactValues, start: int, count: int, rng: np.random.Generator) -> list[float]:
    returns = []
    for _ in range(count):
        state, reward, ended = values.states[start], 0.0, False
        while not ended:
            row = values.policy[values.place[state.tokens]]
            state, reward, terminated, truncated, _ = env.transition(
                state, [int(rng.choice(len(row), p=row))]
            )
            ended = terminated or truncated
        returns.append(reward)
    return returns


def _compare(values: ExactValues, returns: list[list[float]]) -> int:
    """All means within 4 standard errors (of the exact spread) of the value; how many there are."""
    means = np.array([np.mean(row) for row in returns])
    error, random = values.deviation / np.sqrt(len(returns[0])), values.deviation > 1e-9
    assert (np.abs(means - values.v) <= 4 * error + 1e-12).all()
    within = np.abs(means - values.v)[random] <= error[random]
    assert np.mean(within) == pytest.approx(0.68, abs=0.15), "errors of the right size"
    return len(means)


def test_gradient_is_the_derivative_of_the_expected_return() -> None:
    env = tree(depth=3, good=0.3)
    problem, base = env.problem("train", 1), table(env)
    values = solve(env, problem, base)
    step, rng = 1e-5, np.random.default_rng(0)
    for place in rng.choice(len(values.states), 6, replace=False):
        for action, token in enumerate(env.actions):
            ends = []
            for sign in (1, -1):
                nudged = TablePolicy(env.actions, env.vocab_size)
                target, move = values.states[place].tokens, sign * step * np.eye(3)[action]
                nudged.logits = lambda state, target=target, move=move: (  # ty: ignore[invalid-assignment]
                    base.logits(state) + (move if state.tokens == target else 0)
                )
                ends.append(solve(env, problem, nudged).v[0])
            assert values.gradient[place, token] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)


def test_the_chain_has_its_closed_form() -> None:
    env = Chain(length=4)
    uniform = TablePolicy(range(env.vocab_size), env.vocab_size, scale=0.0)
    values = solve(env, env.problem("train", 0), uniform)
    assert all(values.value(s) == pytest.approx(env.true_value(s), abs=1e-12) for s in values.states)


def test_a_decoy_misleads_the_first_step() -> None:
    env = tree(depth=4, good=0.1, decoy=0.5)
    uniform = TablePolicy(env.actions, env.vocab_size, scale=0.0)
    for index in range(20):
        problem = env.problem("test", index)
        values = solve(env, problem, uniform)
        looks_best = int(values.q[0].argmax())
        under = [pay for word, pay in problem.meta["pays"].items() if env.encode(word[0])[0] == looks_best]
        assert set(under) == {0.5} and max(problem.meta["pays"].values()) == 1
        assert env.oracle(env.initial_state(problem, (looks_best,)))[0] is False
        assert env.oracle(env.initial_state(problem, problem.answer[:3])) == (True, 1)


@pytest.mark.parametrize("where", ["anywhere", "first", "last"])
def test_some_word_pays_whatever_is_drawn(where: str) -> None:
    env = tree(depth=2, good=0.001, decoy=0.5, where=where)
    for index in range(40):
        assert max(env.problem("test", index).meta["pays"].values()) == 1


def test_temperature_divides_the_logits() -> None:
    env = tree(depth=2)
    state = [env.initial_state(env.problem("test", 0))]
    model = make_llama(env.vocab_size)
    hot, cold = ModelPolicy(model, 2.0)(state)[0], ModelPolicy(model)(state)[0]
    expected = cold**0.5 / (cold**0.5).sum()
    assert hot == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("where", "position"), [("first", 0), ("last", -1)])
def test_where_the_reward_lies(where: str, position: int) -> None:
    env = tree(depth=3, good=0.4, where=where)
    for index in range(20):
        pays = env.problem("train", index).meta["pays"]
        by_letter = {
            letter: {pay for word, pay in pays.items() if word[position] == letter} for letter in "abc"
        }
        assert all(len(found) == 1 for found in by_letter.values()) and max(pays.values()) == 1


def test_share_of_good_words() -> None:
    env = tree(depth=5, good=0.2)
    pays = [pay for i in range(20) for pay in env.problem("train", i).meta["pays"].values()]
    assert np.mean(pays) == pytest.approx(0.2, abs=0.02)


def test_too_many_states_and_bad_policies_are_refused() -> None:
    env = Calculator(build_tokenizer(), AnswerReward(style="gsm8k"))
    uniform = TablePolicy(range(env.vocab_size), env.vocab_size, scale=0.0)
    with pytest.raises(UsageError, match="more than 500 states"):
        solve(env, env.problem("train", 0), uniform, max_states=500)
    small = tree(depth=2)
    with pytest.raises(UsageError, match="must sum to 1"):
        solve(small, small.problem("train", 0), lambda states: np.full((len(states), small.vocab_size), 0.5))
    for shape in [(1, 2), (5,), (2, 5)]:
        with pytest.raises(UsageError, match=r"probabilities \[1, 5\]"):
            solve(small, small.problem("train", 0), lambda _, shape=shape: np.full(shape, 0.2))
    with pytest.raises(UsageError, match="finite"):
        solve(small, small.problem("train", 0), lambda states: np.full((len(states), 5), np.nan))


def test_a_value_that_is_no_number_has_no_small_residual() -> None:
    env = Tree(letters_tokenizer("abc"), lambda text, _: float("nan") if text == "aa" else 1.0, depth=2)
    assert not bellman_residual(env, solve(env, env.problem("train", 0), table(env))) < 1e-6


def test_a_token_of_two_letters_pays_nothing() -> None:
    env = Tree(letters_tokenizer(["a", "b", "ab"]), leaf, branching=2, depth=2, good=1.0)
    start = env.initial_state(env.problem("train", 0))
    a, b, ab = env.tokenizer.convert_tokens_to_ids(["a", "b", "ab"])
    assert env.transition(start, [a, b])[1:3] == (1.0, True)
    assert env.transition(start, [ab])[1:3] == (0.0, True), "it ends the episode"
    moves = env.transitions([start] * 3, [[ab], [a, b], [a, ab]])
    assert [reward for _, reward, *_ in moves] == [0.0, 1.0, 0.0]


def test_a_reward_for_other_answers_is_refused() -> None:
    with pytest.raises(UsageError, match="reward=leaf"):
        Tree(letters_tokenizer("abc"), AnswerReward(style="gsm8k"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 0}, "depth >= 1"),
        ({"branching": 3, "depth": 11}, "at most 100,000 words"),
        ({"branching": 4}, "env.branching=4: d are not single tokens"),
        ({"where": "frist"}, "Did you mean 'first'"),
        ({"good": 0.0}, "0 < good <= 1"),
        ({"decoy": 1.0}, "0 <= decoy < 1"),
        ({"heldout_size": 0}, "at least 1"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tree(**settings)
