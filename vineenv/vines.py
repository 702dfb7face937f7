"""Monte-Carlo values of states: the mean return of K fresh continuations (VinePPO, section 4)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vineenv.engines.base import Engine
from vineenv.env import ReasoningEnv
from vineenv.errors import UsageError, unknown
from vineenv.rollout import Sampling, rollout
from vineenv.types import State, Trajectory

BUDGETS = ("remaining", "full")


@dataclass(frozen=True)
class Vines:
    """Which states get continuations, and how many.

    Attributes:
        K: continuations a state.
        every: a state at the start of every `every`-th step; the steps between share one advantage.
        max_states: most states a trajectory; more steps are merged evenly. 0 sets no limit.
        budget: tokens a continuation may use: what its trajectory had left ("remaining"), or
            the whole budget of an episode ("full", as in the paper's code; it over-values
            prefixes of answers that were cut off).
    """

    K: int
    every: int = 1
    max_states: int = 0
    budget: str = "remaining"

    def __post_init__(self) -> None:
        if self.K < 1:
            raise UsageError(f"algo.K={self.K} must be at least 1: a value is the mean of K continuations.")
        if self.every < 1:
            raise UsageError(f"algo.every={self.every} must be at least 1.")
        if self.max_states < 0:
            raise UsageError(f"algo.max_states={self.max_states} must be at least 0 (0: no limit).")
        if self.budget not in BUDGETS:
            raise unknown("algo.budget", self.budget, BUDGETS)


@dataclass(frozen=True)
class StateValues:
    """Values at the starts of one trajectory's segments.

    Attributes:
        starts: [S] response token index at which each segment begins; the first is 0.
        returns: [S, K] return of each continuation.
    """

    starts: tuple[int, ...]
    returns: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """[S] the Monte-Carlo values."""
        return self.returns.mean(axis=1)


def choose_starts(step_starts: Sequence[int], vines: Vines) -> tuple[int, ...]:
    """Thin out step starts to those whose states get a value; the first always does."""
    stride = vines.every
    if vines.max_states:
        stride = max(stride, -(-len(step_starts) // vines.max_states))
    return tuple(step_starts[::stride])


def _warn_of_merging(steps: Sequence[Sequence[int]], vines: Vines) -> None:
    longer = [len(row) for row in steps if vines.max_states and len(row) > vines.max_states * vines.every]
    if longer:
        warnings.warn(
            f"{len(longer)} of {len(steps)} trajectories have more steps (up to {max(longer)}) than "
            f"algo.max_states={vines.max_states} states: neighbouring steps share one advantage.",
            stacklevel=3,
        )


def prefix_state(env: ReasoningEnv, trajectory: Trajectory, start: int, budget: str = "remaining") -> State:
    """Return the state of a trajectory before response token `start`."""
    last = trajectory.state
    end = last.prompt_length + start
    foreign = tuple((a, min(b, end)) for a, b in last.foreign if a < end)
    written = end - last.prompt_length - sum(b - a for a, b in foreign)
    room = env.max_new_tokens if budget == "full" else env.max_new_tokens - written
    return replace(
        last, tokens=last.tokens[:end], foreign=foreign, budget=min(room, env.context - end), ended=False
    )


def grow_vines(
    env: ReasoningEnv,
    engine: Engine,
    trajectories: Sequence[Trajectory],
    vines: Vines,
    sampling: Sampling,
    seed: int,
) -> tuple[list[StateValues], int]:
    """Value the segment starts of trajectories by `vines.K` continuations each.

    Equal prefixes are asked once: siblings share the value of their prompt, and of whatever
    else they have in common.

    Returns:
        The values of each trajectory, and how many tokens the continuations decoded.
    """
    steps = [env.step_starts(t.state, t.logprobs) for t in trajectories]
    _warn_of_merging(steps, vines)
    starts = [choose_starts(row, vines) for row in steps]
    asked: dict[tuple[str, tuple[int, ...], int], int] = {}
    states: list[State] = []
    places: list[list[int]] = []
    for trajectory, row in zip(trajectories, starts, strict=True):
        place = []
        for start in row:
            state = prefix_state(env, trajectory, start, vines.budget)
            key = (state.problem.id, state.tokens, state.budget)
            if key not in asked:
                asked[key] = len(states)
                states.append(state)
            place.append(asked[key])
        places.append(place)
    played = rollout(env, engine, states, vines.K, sampling, seed)
    returns = np.array([[t.reward.value for t in row] for row in played], dtype=np.float64).reshape(
        -1, vines.K
    )
    tokens = sum(
        len(t.state.written) - len(state.written)
        for state, row in zip(states, played, strict=True)
        for t in row
    )
    values = [StateValues(row, returns[place]) for row, place in zip(starts, places, strict=True)]
    return values, tokens
