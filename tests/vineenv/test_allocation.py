from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tests.chain import Chain
from tests.conftest import make_llama
from vineenv.allocation import estimate, share_out
from vineenv.engines.native import NativeEngine
from vineenv.errors import UsageError
from vineenv.rollout import Sampling, rollout
from vineenv.vines import Vines, grow_vines, prefix_state


def expected_values(chances: Sequence[float], K: int, pilot: int, stop_certain: bool) -> np.ndarray:
    """The mean of `estimate` over every outcome of the pilot; of the second stage the mean will do."""
    total = np.zeros(len(chances))
    for outcome in itertools.product((0.0, 1.0), repeat=pilot * len(chances)):
        first = np.array(outcome).reshape(len(chances), pilot)
        weight = np.prod(np.where(first == 1, np.array(chances)[:, None], 1 - np.array(chances)[:, None]))

        def play(
            which: Sequence[int], counts: Sequence[int], stage: int, first: np.ndarray = first
        ) -> list[np.ndarray]:
            if stage == 0:
                return list(first)
            return [np.full(n, chances[i]) for i, n in zip(which, counts, strict=True)]

        means, counts = estimate(play, len(chances), K, pilot, stop_certain)
        assert stop_certain or counts.sum() == K * len(chances)
        total += weight * means
    return total


@pytest.mark.parametrize(("K", "pilot"), [(3, 1), (5, 2), (9, 3)])
def test_adaptive_values_have_the_mean_they_should(K: int, pilot: int) -> None:
    chances = [0.1, 0.5, 0.9]
    assert expected_values(chances, K, pilot, False) == pytest.approx(chances, abs=1e-12)


def test_stopping_where_it_looks_certain_has_the_bias_that_is_stated() -> None:
    chances, K, n = [0.1, 0.3, 0.5, 0.8], 9, 3
    share = n / K
    bias = [(1 - share) * (p**n * (1 - p) - (1 - p) ** n * p) for p in chances]
    found = expected_values(chances, K, n, True) - chances
    assert found == pytest.approx(bias, abs=1e-12) and found[0] < 0 < found[3] and abs(found[2]) < 1e-12


def test_no_states_need_no_rollouts() -> None:
    means, counts = estimate(lambda *_: [], 0, 3)
    assert len(means) == len(counts) == 0


def test_more_goes_where_the_spread_is() -> None:
    pilot = np.array([[0, 0, 0], [0, 1, 0], [1, 1, 1], [1, 0, 1]], dtype=float)
    counts = share_out(pilot, 40)
    assert counts.sum() == 40 and counts.min() >= 1
    assert counts[1] == counts[3] > counts[0] == counts[2]
    assert share_out(pilot, 2).tolist() == [1, 1, 1, 1], "never none: the value would be the pilot's alone"


def test_on_the_chain_means_stay_within_their_errors_and_the_total_is_the_same() -> None:
    env = Chain(length=4)
    engine = NativeEngine(make_llama(env.vocab_size, zero=True))
    starts = [env.initial_state(env.problem("train", i % 4)) for i in range(8)]
    played = [row[0] for row in rollout(env, engine, starts, 1, Sampling(), seed=0)]
    vines = Vines(K=60, pilot=20)
    values, _ = grow_vines(env, engine, played, vines, Sampling(), seed=1)
    states: dict[tuple[int, ...], tuple[float, float, int]] = {}
    for trajectory, value in zip(played, values, strict=True):
        for start, mean, count in zip(value.starts, value.means, value.counts, strict=True):
            state = prefix_state(env, trajectory, start)
            states[state.tokens] = (mean, env.true_value(state), count)
    assert sum(count for *_, count in states.values()) == 60 * len(states)
    for mean, true, count in states.values():
        spread = np.sqrt(true * (1 - true) * (1 / 20 / 9 + 4 / 9 / max(count - 20, 1)))
        assert abs(mean - true) <= 4 * spread + 1e-12


def test_siblings_value_the_prompt_for_nothing() -> None:
    env = Chain(length=3)
    engine = NativeEngine(make_llama(env.vocab_size, zero=True))
    starts = [env.initial_state(env.problem("train", i)) for i in range(4)]
    groups = rollout(env, engine, starts, 6, Sampling(), seed=2)
    played = [t for group in groups for t in group]
    own, _ = grow_vines(env, engine, played, Vines(K=2), Sampling(), seed=1)
    free, _ = grow_vines(env, engine, played, Vines(K=2, prompt="siblings"), Sampling(), seed=1)
    for i, (value, other) in enumerate(zip(free, own, strict=True)):
        returns = [t.reward.value for t in groups[i // 6]]
        assert value.means[0] == pytest.approx((sum(returns) - returns[i % 6]) / 5)
        assert value.counts[0] == 0 and value.starts == other.starts and (value.counts[1:] == 2).all()
    with pytest.raises(UsageError, match="at least two responses"):
        grow_vines(env, engine, groups[0][:1], Vines(K=2, prompt="siblings"), Sampling(), seed=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"K": 3, "pilot": 3}, r"algo.pilot=3 must be 0 \(off\) or from 1 to K - 1 = 2"),
        ({"K": 3, "stop_certain": True}, "needs a pilot"),
        ({"K": 3, "prompt": "sibling"}, "Did you mean 'siblings'"),
    ],
)
def test_impossible_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Vines(**settings)  # ty: ignore[invalid-argument-type]
