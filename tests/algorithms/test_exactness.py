"""Estimators against exact values: unbiased where theory says so, biased as it says where not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from algorithms.algorithm import Algorithm
from algorithms.grpo import GRPO
from algorithms.ppo import PPO
from algorithms.reinforce import Reinforce
from algorithms.rloo import RLOO
from algorithms.spo import SPO
from algorithms.vineppo import VinePPO
from envs.tree import Tree
from rewards.leaf import leaf
from tests.chain import letters_tokenizer
from tests.table_engine import TableEngine
from vineenv.collector import VineCollector
from vineenv.exact import ExactValues, TablePolicy, solve
from vineenv.types import Problem

EPISODES = 1000
COMMON: dict[str, Any] = {
    "prompts": EPISODES // 4, "group_size": 4, "temperature": 1.0, "epochs": 1, "minibatch": 8,
    "microbatch": 8, "lr": 1.0, "warmup": 0, "max_grad_norm": 1.0, "clip": 0.2, "kl_coef": 0.0, "kl": "k3",
    "scale": "none", "reduction": "token",
}  # fmt: skip
VINE = {"K": 1, "every": 1, "max_states": 0, "budget": "remaining"}
# No siblings: responses to one problem share the values of equal prefixes, and so their noise.
ALONE = {**COMMON, "prompts": EPISODES, "group_size": 1}


class Same(Tree):
    """One tree under many names, so that no two problems share their vines."""

    def problem(self, split: str, index: int) -> Problem:
        return dataclasses.replace(super().problem(split, 0), id=f"{split}/{index}")


@pytest.fixture(scope="module")
def solved() -> tuple[Tree, ExactValues]:
    env = Same(letters_tokenizer("abc"), leaf, depth=3, good=0.35, decoy=0.3, train_size=10_000)
    policy = TablePolicy(env.actions, env.vocab_size, seed=3)
    return env, solve(env, env.problem("train", 0), policy)


class Sample:
    """Tokens that were sampled: state, action and advantage of each, and which episode it was in."""

    def __init__(self, env: Tree, values: ExactValues, algorithm: Algorithm, error: np.ndarray | None = None):
        collector = VineCollector(
            env, TableEngine(values), prompts=algorithm.prompts, sampling=algorithm.sampling,  # ty: ignore
            group_size=algorithm.group_size, vines=algorithm.vines, seed=7,
        )  # fmt: skip
        parts = [self._tokens(collector.collect(), values, algorithm, error) for _ in range(2)]
        self.state = np.concatenate([p[0] for p in parts])
        self.action = np.concatenate([p[1] for p in parts])
        self.advantage = np.concatenate([p[2] for p in parts])
        self.group = np.concatenate([p[3] + i * algorithm.prompts for i, p in enumerate(parts)])
        self.groups, self.size, self.values = 2 * algorithm.prompts, algorithm.group_size, values

    def _tokens(
        self, batch: TensorDict, values: ExactValues, algorithm: Algorithm, error: np.ndarray | None
    ) -> tuple[np.ndarray, ...]:
        rows, columns = batch["mask"].nonzero(as_tuple=True)
        ids = batch["input_ids"].numpy()
        state = np.array([values.place[tuple(ids[r, : c + 1])] for r, c in zip(rows, columns, strict=True)])
        if error is not None:  # a critic that is off by so much at each state
            batch["state_value"] = torch.zeros(batch["mask"].shape)
            batch["state_value"][batch["mask"]] = torch.tensor(values.v[state] + error[state]).float()
        advantage, _ = algorithm.advantages(batch)
        return (
            state,
            batch["action"][batch["mask"]].numpy(),
            advantage[batch["mask"]].double().numpy(),
            batch["group"][rows].numpy(),
        )

    def advantage_errors(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each state and action seen often: mean advantage minus the exact one, and its standard error."""
        errors, deviations = [], []
        for state in np.unique(self.state):
            for action in np.unique(self.action):
                chosen = self.advantage[(self.state == state) & (self.action == action)]
                if len(chosen) >= 30:
                    errors.append(chosen.mean() - self.values.advantage[state, action])
                    deviations.append(chosen.std(ddof=1) / np.sqrt(len(chosen)) + 1e-6)
        return np.array(errors), np.array(deviations)

    def gradient(self, groups: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """[N, V] policy gradient by the logits, a mean over groups, and its standard error."""
        count = groups or self.groups
        total, square = np.zeros((2, *self.values.policy.shape))
        for group in range(count):
            one = np.zeros(self.values.policy.shape)
            for i in np.flatnonzero(self.group == group):
                one[self.state[i]] -= self.values.policy[self.state[i]] * self.advantage[i] / self.size
                one[self.state[i], self.action[i]] += self.advantage[i] / self.size
            total, square = total + one, square + one**2
        mean = total / count
        return mean, np.sqrt(np.maximum(square / count - mean**2, 0) / count)


UNBIASED: dict[str, Callable[[], tuple[Algorithm, bool]]] = {
    "reinforce": lambda: (Reinforce(**COMMON, baseline="none"), False),
    "reinforce, running mean": lambda: (Reinforce(**COMMON, baseline="running_mean"), False),
    "rloo": lambda: (RLOO(**COMMON), False),
    "vineppo": lambda: (VinePPO(**ALONE, **VINE), True),
    "vineppo, siblings for the prompt": lambda: (VinePPO(**COMMON, **VINE, prompt="siblings"), False),
    "vineppo, adaptive": lambda: (VinePPO(**ALONE, **{**VINE, "K": 3}, pilot=1), True),
    "vineppo, intervals of two tokens": lambda: (VinePPO(**COMMON, **VINE, interval=2), False),
    "spo, the whole segment": lambda: (SPO(**ALONE, **VINE, threshold=1.0, cuts=1, masked=False), True),
    "ppo, any critic at lambda 1": lambda: (PPO(**COMMON, lam=1.0, critic_lr=1.0, value_clip=0.0), False),
}


@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_methods(solved: tuple[Tree, ExactValues], name: str) -> None:
    env, values = solved
    algorithm, by_state = UNBIASED[name]()
    wrong = np.random.default_rng(0).normal(size=len(values.v)) / 4 if isinstance(algorithm, PPO) else None
    sample = Sample(env, values, algorithm, wrong)
    if by_state:  # the advantage itself is right on the mean, not the gradient alone
        errors, deviations = sample.advantage_errors()
        assert len(errors) >= 20 and (np.abs(errors) < 4 * deviations).all()
        assert np.mean(np.abs(errors) < 3 * deviations) > 0.95
    mean, deviation = sample.gradient()
    off = np.abs(mean - values.gradient) / (deviation + 1e-9)
    seen = deviation > 1e-6
    assert (off[seen] < 4).all() and np.mean(off[seen] < 3) > 0.97
    cosines = [cosine(sample.gradient(sample.groups // part)[0], values.gradient) for part in (20, 5, 1)]
    print(f"{name}: cosine to the exact gradient, 100, 400, 2000 episodes:", *(f"{c:.3f}" for c in cosines))
    assert cosines[-1] > 0.8


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float((one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()))


def test_a_wrong_critic_biases_short_sighted_ppo_as_theory_says(solved: tuple[Tree, ExactValues]) -> None:
    env, values = solved
    error = np.zeros(len(values.v))
    praised = values.place[(*values.states[0].tokens, env.actions[0])]
    error[praised] = 0.5  # the critic thinks too well of one state
    algorithm = PPO(**COMMON, lam=0.0, critic_lr=1.0, value_clip=0.0)
    sample = Sample(env, values, algorithm, error)
    into = sample.advantage[(sample.state == 0) & (sample.action == env.actions[0])]
    # At lambda 0: A-hat = r + V-hat(s') - V-hat(s), so the way in is over-rated by 0.5, exactly.
    assert into.mean() - values.advantage[0, env.actions[0]] == pytest.approx(0.5, abs=1e-5)
    out = sample.advantage[sample.state == praised]
    exact = values.advantage[praised, sample.action[sample.state == praised]]
    assert np.mean(out - exact) == pytest.approx(-0.5, abs=1e-5)
    mean, _ = sample.gradient()
    # At the root the push towards it grows by pi (1 - pi) times the error.
    chance = values.policy[0, env.actions[0]]
    extra = mean[0, env.actions[0]] - values.gradient[0, env.actions[0]]
    assert extra == pytest.approx(0.5 * chance * (1 - chance), rel=0.3)


def test_division_by_the_spread_biases_grpo_towards_rare_successes(solved: tuple[Tree, ExactValues]) -> None:
    env, values = solved
    plain = Sample(env, values, GRPO(**COMMON, by_std=False)).gradient()[0]
    assert cosine(plain, values.gradient) > 0.9
    assert plain.sum() == pytest.approx(0, abs=1e-9)
    # Without the standard deviation GRPO is RLOO times (G - 1) / G, on the same sample.
    rloo = Sample(env, values, RLOO(**COMMON)).gradient()[0]
    assert np.allclose(plain, rloo * 3 / 4, atol=1e-6)


def test_spo_with_every_token_a_cut_point_is_token_level_vines(solved: tuple[Tree, ExactValues]) -> None:
    env, values = solved
    spo = Sample(env, values, SPO(**COMMON, **VINE, threshold=1.0, cuts=1))
    tokens = Sample(env, values, VinePPO(**COMMON, **VINE, interval=1))
    assert np.array_equal(spo.state, tokens.state) and np.allclose(spo.advantage, tokens.advantage)
