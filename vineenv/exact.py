"""Exact values of a policy on an environment small enough to be enumerated.

    V(s) = sum_a pi(a|s) Q(s, a)        Q(s, a) = r(s, a) + V(s')        A(s, a) = Q(s, a) - V(s)

without discount, as everywhere here. Every state that the policy can reach is visited by the
environment's own `transition`, so nothing is assumed about it but that there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from vineenv.env import ReasoningEnv
from vineenv.errors import UsageError
from vineenv.rollout import derive_seed
from vineenv.types import Problem, State

Floats = NDArray[np.float64]
# States of equal length -> [N, V] probabilities of the next token.
Policy = Callable[[Sequence[State]], Floats]


@dataclass(frozen=True)
class ExactValues:
    """All decision states of a problem, in order of their length, and what they are worth.

    Attributes:
        states: N states, the prompt first.
        place: where a state is, by its tokens.
        policy: [N, V] probabilities of the next token.
        q: [N, V] value of each token; 0 where its probability is 0.
        v: [N] value of each state.
        square: [N] mean of the squared return, for standard errors.
        visits: [N] probability that an episode passes through the state.
    """

    states: tuple[State, ...]
    place: dict[tuple[int, ...], int]
    policy: Floats
    q: Floats
    v: Floats
    square: Floats
    visits: Floats

    @property
    def advantage(self) -> Floats:
        """[N, V] Q - V, 0 where the probability is 0."""
        return np.where(self.policy > 0, self.q - self.v[:, None], 0.0)

    @property
    def gradient(self) -> Floats:
        """[N, V] derivative of the expected return by the policy's logits.

        d J / d logit(s, a) = visits(s) pi(a|s) A(s, a): the policy gradient theorem for a softmax.
        """
        return self.visits[:, None] * self.policy * self.advantage

    @property
    def deviation(self) -> Floats:
        """[N] standard deviation of the return from each state."""
        return np.sqrt(np.maximum(self.square - self.v**2, 0.0))

    def value(self, state: State) -> float:
        """V of a state."""
        return float(self.v[self.place[state.tokens]])


def solve(env: ReasoningEnv, problem: Problem, policy: Policy, max_states: int = 20_000) -> ExactValues:
    """Enumerate a problem and work out the values of a policy by backward induction.

    Args:
        env: any environment; its states must be few.
        problem: where to begin.
        policy: states -> probabilities of the next token.
        max_states: more decision states than this are refused.

    Raises:
        UsageError: too many states, or probabilities that are none.
    """
    levels: list[list[State]] = [[env.initial_state(problem)]]
    probabilities: list[Floats] = []
    edges: list[tuple[int, int, float, float, int]] = []  # state, token, probability, reward, next or -1
    count = 1
    while levels[-1]:
        level = levels[-1]
        probabilities.append(_checked(policy(level), (len(level), env.vocab_size)))
        first, following = count - len(level), []
        rows, tokens = np.nonzero(probabilities[-1])
        moves = env.transitions([level[i] for i in rows], [[int(token)] for token in tokens])
        for row, token, (state, reward, *_) in zip(rows, tokens, moves, strict=True):
            target = -1 if state.ended else count + len(following)
            chance = float(probabilities[-1][row, token])
            edges.append((first + int(row), int(token), chance, reward, target))
            if not state.ended:
                following.append(state)
        count += len(following)
        if count > max_states:
            raise UsageError(
                f"Problem {problem.id!r} has more than {max_states:,} states: too many to enumerate."
            )
        levels.append(following)
    return _induce([state for level in levels for state in level], np.concatenate(probabilities), edges)


def _induce(
    states: list[State], policy: Floats, edges: list[tuple[int, int, float, float, int]]
) -> ExactValues:
    q, v, square, visits = np.zeros_like(policy), *np.zeros((3, len(states)))
    for state, token, chance, reward, target in reversed(edges):
        after, spread = (v[target], square[target]) if target >= 0 else (0.0, 0.0)
        q[state, token] = reward + after
        v[state] += chance * q[state, token]
        square[state] += chance * (reward**2 + 2 * reward * after + spread)
    visits[0] = 1.0
    for state, _, chance, _, target in edges:
        if target >= 0:
            visits[target] += visits[state] * chance
    place = {state.tokens: i for i, state in enumerate(states)}
    return ExactValues(tuple(states), place, policy, q, v, square, visits)


def bellman_residual(env: ReasoningEnv, values: ExactValues) -> float:
    """Largest |V(s) - sum_a pi(a|s) (r + V(s'))|, each transition asked of the environment anew.

    NaN if a value is none, so that no bound on it holds.
    """
    residuals = []
    for state, v, row in zip(values.states, values.v, values.policy, strict=True):
        total = 0.0
        for token in np.flatnonzero(row):
            after, reward, *_ = env.transition(state, [int(token)])
            total += row[token] * (reward + (0.0 if after.ended else values.value(after)))
        residuals.append(abs(v - total))
    return float(np.max(residuals))


def _checked(probabilities: Floats, shape: tuple[int, int]) -> Floats:
    if probabilities.shape != shape:
        raise UsageError(f"A policy returns probabilities {list(shape)}, got {list(probabilities.shape)}.")
    if not np.isfinite(probabilities).all() or (probabilities < 0).any():
        raise UsageError("A policy's probabilities must be finite and at least 0.")
    if np.abs(probabilities.sum(axis=1) - 1).max() > 1e-6:
        raise UsageError("A policy's probabilities must sum to 1 in every state.")
    return probabilities


class TablePolicy:
    """A softmax over random logits, drawn for each state by its tokens.

    Args:
        actions: the tokens that have probability.
        vocab_size: V.
        seed: of the logits.
        scale: their standard deviation; 0 is the uniform policy.
    """

    def __init__(self, actions: Sequence[int], vocab_size: int, seed: int = 0, scale: float = 1.0) -> None:
        self.actions, self.vocab_size, self.seed, self.scale = list(actions), vocab_size, seed, scale

    def __call__(self, states: Sequence[State]) -> Floats:
        """[N, V] probabilities."""
        out = np.zeros((len(states), self.vocab_size))
        for row, state in zip(out, states, strict=True):
            logits = self.logits(state)
            weights = np.exp(logits - logits.max())
            row[self.actions] = weights / weights.sum()
        return out

    def logits(self, state: State) -> Floats:
        """[A] the logits of a state."""
        rng = np.random.default_rng(derive_seed(self.seed, *state.tokens))
        return self.scale * rng.standard_normal(len(self.actions))


class ModelPolicy:
    """A causal language model at a temperature, over its whole vocabulary.

    Args:
        model: the model.
        temperature: of the softmax, above 0.
        batch: states a forward pass.
    """

    def __init__(self, model: PreTrainedModel, temperature: float = 1.0, batch: int = 256) -> None:
        self.model, self.temperature, self.batch = model, temperature, batch

    @torch.no_grad()
    def __call__(self, states: Sequence[State]) -> Floats:
        """[N, V] probabilities; states of one call may differ in length."""
        out = []
        for start in range(0, len(states), self.batch):
            tokens = [state.tokens for state in states[start : start + self.batch]]
            longest = max(map(len, tokens))
            ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in tokens])
            logits = self.model(input_ids=ids.to(self.model.device), use_cache=False).logits
            last = logits[torch.arange(len(tokens)), torch.tensor([len(row) - 1 for row in tokens])]
            out.append(torch.softmax(last.double() / self.temperature, dim=-1).cpu().numpy())
        return np.concatenate(out)
