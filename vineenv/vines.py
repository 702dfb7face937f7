"""Monte-Carlo values of states: the mean return of K fresh continuations (VinePPO, section 4)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vineenv.allocation import estimate
from vineenv.engines.base import Engine, Progress
from vineenv.env import ReasoningEnv
from vineenv.errors import UsageError, unknown
from vineenv.rollout import Sampling, rollout
from vineenv.segment import Segmenter
from vineenv.types import State, Trajectory

Watcher = Callable[[State, Sequence[Trajectory]], None]
BUDGETS = ("remaining", "full")
PROMPTS = ("own", "siblings")


@dataclass(frozen=True)
class Vines:
    """Which states get continuations, and how many.

    Attributes:
        K: continuations a state, on average where they are allocated adaptively.
        every: a state at the start of every `every`-th step; the steps between share one advantage.
        max_states: most states a trajectory; more steps are merged evenly. 0 sets no limit.
        budget: tokens a continuation may use: what its trajectory had left ("remaining"), or
            the whole budget of an episode ("full", as in the paper's code; it over-values
            prefixes of answers that were cut off).
        prompt: the prompt's value is the mean of continuations of its own ("own"), or of the
            returns of the other responses to the problem ("siblings"), which costs nothing.
        pilot: continuations a state gets before the rest of K times the number of states is shared
            out by their spread (see `vineenv.allocation`); 0 gives every state K.
        stop_certain: states whose pilot returns are all equal get no more.
        segmenter: where steps begin; the environment's own segmenter if None.
    """

    K: int
    every: int = 1
    max_states: int = 0
    budget: str = "remaining"
    prompt: str = "own"
    pilot: int = 0
    stop_certain: bool = False
    segmenter: Segmenter | None = None

    def __post_init__(self) -> None:
        if self.K < 1:
            raise UsageError(f"algo.K={self.K} must be at least 1: a value is the mean of K continuations.")
        if self.every < 1:
            raise UsageError(f"algo.every={self.every} must be at least 1.")
        if self.max_states < 0:
            raise UsageError(f"algo.max_states={self.max_states} must be at least 0 (0: no limit).")
        if self.budget not in BUDGETS:
            raise unknown("algo.budget", self.budget, BUDGETS)
        if self.prompt not in PROMPTS:
            raise unknown("algo.prompt", self.prompt, PROMPTS)
        if self.pilot and not 0 < self.pilot < self.K:
            raise UsageError(f"algo.pilot={self.pilot} must be 0 (off) or from 1 to K - 1 = {self.K - 1}.")
        if self.stop_certain and not self.pilot:
            raise UsageError("algo.stop_certain=true needs a pilot: set algo.pilot, below algo.K.")


@dataclass(frozen=True)
class StateValues:
    """Values at the starts of one trajectory's segments.

    Attributes:
        starts: [S] response token index at which each segment begins; the first is 0.
        means: [S] the values.
        counts: [S] continuations each is made of; 0 where it came from siblings.
    """

    starts: tuple[int, ...]
    means: NDArray[np.float64]
    counts: NDArray[np.int64]


def choose_starts(step_starts: Sequence[int], vines: Vines) -> tuple[int, ...]:
    """Thin out step starts to those whose states get a value; the first always does."""
    stride = vines.every
    if vines.max_states:
        stride = max(stride, -(-len(step_starts) // vines.max_states))
    return tuple(step_starts[::stride])


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
    progress: Progress | None = None,
    watch: Watcher | None = None,
) -> tuple[list[StateValues], int]:
    """Value the segment starts of trajectories by `vines.K` continuations each.

    Equal prefixes are asked once: siblings share the value of their prompt, and of whatever
    else they have in common. `watch` is shown every state with its continuations.

    Returns:
        The values of each trajectory, and how many tokens the continuations decoded.
    """
    steps = [env.step_starts(t.state, t.logprobs, vines.segmenter) for t in trajectories]
    _warn_of_merging(steps, vines)
    starts = [choose_starts(row, vines) for row in steps]
    asked = [row[1:] if vines.prompt == "siblings" else row for row in starts]
    states, places = _distinct(env, trajectories, asked, vines.budget)
    tokens = 0

    def play(which: Sequence[int], counts: Sequence[int], stage: int) -> list[NDArray[np.float64]]:
        nonlocal tokens
        begun = [states[i] for i in which]
        played = rollout(env, engine, begun, counts, sampling, seed + stage, progress)
        for state, row in zip(begun, played, strict=True):
            if watch is not None:
                watch(state, row)
            tokens += sum(len(t.state.written) - len(state.written) for t in row)
        return [np.array([t.reward.value for t in row], dtype=np.float64) for row in played]

    means, counts = estimate(play, len(states), vines.K, vines.pilot, vines.stop_certain)
    values = [
        StateValues(row, means[place], counts[place]) for row, place in zip(starts, places, strict=True)
    ]
    if vines.prompt == "siblings":
        values = _with_siblings(trajectories, values)
    return values, tokens


def _distinct(
    env: ReasoningEnv, trajectories: Sequence[Trajectory], asked: Sequence[Sequence[int]], budget: str
) -> tuple[list[State], list[list[int]]]:
    """The different states among those asked for, and which of them each one is."""
    index: dict[tuple[str, tuple[int, ...], int], int] = {}
    states: list[State] = []
    places = []
    for trajectory, row in zip(trajectories, asked, strict=True):
        place = []
        for start in row:
            state = prefix_state(env, trajectory, start, budget)
            key = (state.problem.id, state.tokens, state.budget)
            if key not in index:
                index[key] = len(states)
                states.append(state)
            place.append(index[key])
        places.append(place)
    return states, places


def _with_siblings(trajectories: Sequence[Trajectory], values: list[StateValues]) -> list[StateValues]:
    """Put the mean return of the other responses to the problem before each trajectory's values."""
    returns: dict[str, list[float]] = {}
    for trajectory in trajectories:
        returns.setdefault(trajectory.state.problem.id, []).append(trajectory.reward.value)
    out = []
    for trajectory, value in zip(trajectories, values, strict=True):
        group = returns[trajectory.state.problem.id]
        if len(group) < 2:
            raise UsageError("algo.prompt=siblings needs at least two responses to a problem.")
        others = (sum(group) - trajectory.reward.value) / (len(group) - 1)
        means = np.concatenate([[others], value.means])
        out.append(StateValues(value.starts, means, np.concatenate([[0], value.counts])))
    return out


def _warn_of_merging(steps: Sequence[Sequence[int]], vines: Vines) -> None:
    longer = [len(row) for row in steps if vines.max_states and len(row) > vines.max_states * vines.every]
    if longer:
        warnings.warn(
            f"{len(longer)} of {len(steps)} trajectories have more steps (up to {max(longer)}) than "
            f"algo.max_states={vines.max_states} states: neighbouring steps share one advantage.",
            stacklevel=3,
        )
