"""What a run has spent."""

from __future__ import annotations

import pytest

from vineenv.engines.base import EngineStats
from vineenv.ledger import Ledger


def test_prefix_tokens_are_booked_under_their_purpose() -> None:
    stats, ledger = EngineStats(prompt_tokens=50, prefill_tokens=50), Ledger()
    with ledger.timed("policy", stats):
        stats.prompt_tokens += 100
        stats.prefill_tokens += 40
    with pytest.raises(KeyError), ledger.timed("vines", stats):
        stats.prompt_tokens += 200
        stats.prefill_tokens += 2
        raise KeyError
    with ledger.timed("vines", stats), ledger.timed("training"):
        stats.prompt_tokens += 200
        stats.prefill_tokens += 6
    assert ledger.hit_rates == {"policy": pytest.approx(0.6), "vines": pytest.approx(0.98)}


def test_operations_are_two_a_weight_read_and_six_a_weight_trained_and_cached_tokens_are_free() -> None:
    stats, ledger = EngineStats(), Ledger()
    with ledger.timed("vines", stats):
        stats.prompt_tokens, stats.prefill_tokens = 1000, 30
    ledger.add_tokens("vines", 70)
    ledger.add_tokens("training", 10)
    assert ledger.flops(5) == {"vines": 2 * 5 * (70 + 30), "training": 6 * 5 * 10}


def test_a_ledger_goes_on_from_what_was_saved() -> None:
    stats, ledger = EngineStats(), Ledger()
    with ledger.timed("vines", stats):
        stats.prompt_tokens, stats.prefill_tokens = 10, 3
    ledger.add_tokens("vines", 7)
    other = Ledger()
    other.load_state_dict(ledger.state_dict())
    assert other.state_dict() == ledger.state_dict()
    assert other.hit_rates == {"vines": pytest.approx(0.7)}
    other.load_state_dict({"tokens": {"vines": 1}, "seconds": {}})
    assert other.hit_rates == {}
