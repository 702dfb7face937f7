"""Playing episodes from any state to their end, many at once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from vineenv.engines.base import Engine, Progress
from vineenv.env import ReasoningEnv
from vineenv.types import Completion, Request, State, Trajectory


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        temperature: 0 is greedy.
        top_p: nucleus; 1 keeps every token.
    """

    temperature: float = 1.0
    top_p: float = 1.0


@dataclass
class _Walk:
    origin: int
    state: State
    logprobs: tuple[float, ...]


def derive_seed(*parts: int | str) -> int:
    """Return a 63-bit seed that depends on all parts and on nothing else."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def rollout(
    env: ReasoningEnv,
    engine: Engine,
    states: Sequence[State],
    n: int | Sequence[int],
    sampling: Sampling,
    seed: int,
    progress: Progress | None = None,
) -> list[list[Trajectory]]:
    """Play `n` independent episodes from each state to the end; `n` may differ from state to state.

    Every turn of every episode goes to the engine in one call. Environment tokens appended
    between turns have log-probability 0 in the result, as have response tokens that were
    already in the start state.

    Returns:
        For each state in order, its `n` trajectories.
    """
    walks = [_Walk(i, state, (0.0,) * len(state.response)) for i, state in enumerate(states)]
    finished: list[list[Trajectory]] = [[] for _ in states]
    counts = [n] * len(states) if isinstance(n, int) else n
    turn = 0
    while walks:
        requests = [
            _request(env, walk.state, 1 if turn else counts[i], sampling, derive_seed(seed, turn, i))
            for i, walk in enumerate(walks)
        ]
        answered = engine.generate(requests, progress) if progress else engine.generate(requests)
        played = [
            (walk, completion)
            for walk, completions in zip(walks, answered, strict=True)
            for completion in completions
        ]
        walks = _apply(env, played, finished)
        turn += 1
    return finished


def _request(env: ReasoningEnv, state: State, n: int, sampling: Sampling, seed: int) -> Request:
    return Request(
        prefix=state.tokens,
        n=n,
        max_new_tokens=state.budget,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        stop_ids=env.stop_ids,
        seed=seed,
    )


def _apply(
    env: ReasoningEnv, played: Sequence[tuple[_Walk, Completion]], finished: list[list[Trajectory]]
) -> list[_Walk]:
    moves = env.transitions([walk.state for walk, _ in played], [completion.ids for _, completion in played])
    going: list[_Walk] = []
    for (walk, completion), (state, _, terminated, truncated, info) in zip(played, moves, strict=True):
        kept = completion.logprobs[: len(state.tokens) - len(walk.state.tokens)]
        logprobs = walk.logprobs + tuple(kept)
        logprobs += (0.0,) * (len(state.response) - len(logprobs))
        if state.ended:
            finished[walk.origin].append(Trajectory(state, logprobs, info["reward"], terminated, truncated))
        else:
            going.append(_Walk(walk.origin, state, logprobs))
    return going
