from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from algorithms.estimators import count_segments, step_advantages
from tests.chain import Chain
from tests.conftest import make_llama
from vineenv.engines.native import NativeEngine
from vineenv.errors import UsageError
from vineenv.rollout import Sampling, rollout
from vineenv.rows import build_rows, pad_states
from vineenv.types import Completion, Request, Trajectory
from vineenv.vines import Vines, choose_starts, grow_vines, prefix_state

K = 256


class Counting(NativeEngine):
    """The real engine; keeps what it was asked."""

    def __init__(self, *args: object, **keywords: object) -> None:
        super().__init__(*args, **keywords)  # ty: ignore[invalid-argument-type]
        self.asked: list[Request] = []

    def generate(
        self, requests: Sequence[Request], *args: object, **keywords: object
    ) -> list[list[Completion]]:
        self.asked += requests
        return super().generate(requests, *args, **keywords)  # ty: ignore[invalid-argument-type]


def sample(env: Chain, engine: NativeEngine) -> list[Trajectory]:
    states = [env.initial_state(env.problem("train", i)) for i in range(4)]
    return [t for group in rollout(env, engine, states, 4, Sampling(), seed=3) for t in group]


def test_vine_means_match_known_values_and_advantages_telescope() -> None:
    env = Chain(length=6)
    engine = NativeEngine(make_llama(env.vocab_size, zero=True))
    trajectories = sample(env, engine)
    values, tokens = grow_vines(env, engine, trajectories, Vines(K=K), Sampling(), seed=1)
    checked = 0
    for trajectory, value in zip(trajectories, values, strict=True):
        for start, mean in zip(value.starts, value.means, strict=True):
            true = env.true_value(prefix_state(env, trajectory, start))
            error = np.sqrt(true * (1 - true) / K)
            assert abs(mean - true) <= 4 * error, (start, mean, true)
            checked += 0 < true < 1
    assert checked > 30 and tokens > 0

    batch = build_rows(trajectories, [v.starts for v in values], [0] * len(values))
    means = pad_states([v.means for v in values], 0.0, torch.float64)
    advantages = step_advantages(means, count_segments(batch["step_id"]), batch["reward"])
    assert torch.allclose(advantages.sum(1), batch["reward"] - means[:, 0])


def test_equal_prefixes_are_asked_once_and_with_the_budget_left() -> None:
    env = Chain(length=6)
    engine = Counting(make_llama(env.vocab_size, zero=True))
    trajectories = sample(env, engine)
    engine.asked.clear()
    grow_vines(env, engine, trajectories, Vines(K=2), Sampling(), seed=1)
    prefixes = [request.prefix for request in engine.asked]
    assert len(prefixes) == len(set(prefixes))
    assert all(r.max_new_tokens == env.max_new_tokens - (len(r.prefix) - 2) for r in engine.asked)
    engine.asked.clear()
    grow_vines(env, engine, trajectories, Vines(K=2, budget="full"), Sampling(), seed=1)
    assert {r.max_new_tokens for r in engine.asked} == {env.max_new_tokens}


def test_thinning_keeps_the_prompt_and_merges_evenly() -> None:
    starts = list(range(0, 100, 10))
    assert choose_starts(starts, Vines(K=1, every=3)) == (0, 30, 60, 90)
    assert choose_starts(starts, Vines(K=1, max_states=4)) == (0, 30, 60, 90)
    assert choose_starts([0], Vines(K=1, every=3)) == (0,)


def test_a_cap_merges_with_a_warning_and_drops_nothing() -> None:
    env = Chain(length=6)
    engine = NativeEngine(make_llama(env.vocab_size, zero=True))
    trajectories = sample(env, engine)
    longest = max(len(t.state.response) for t in trajectories)
    with pytest.warns(UserWarning, match=rf"\(up to {longest}\) than algo.max_states=2 states"):
        values, _ = grow_vines(env, engine, trajectories, Vines(K=1, max_states=2), Sampling(), seed=1)
    assert all(len(v.starts) <= 2 for v in values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grow_vines(env, engine, trajectories, Vines(K=1, max_states=longest), Sampling(), seed=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"K": 0}, "algo.K=0 must be at least 1"),
        ({"K": 1, "every": 0}, "algo.every=0"),
        ({"K": 1, "max_states": -1}, "algo.max_states=-1"),
        ({"K": 1, "budget": "remainin"}, "Did you mean 'remaining'"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Vines(**settings)  # ty: ignore[invalid-argument-type]
