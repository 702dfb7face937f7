from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from algorithms import run as training
from algorithms.diagnose import run
from algorithms.value_quality import by_position, quality, ranking
from tests.algorithms.test_run import SMALL
from vineenv.errors import UsageError


def test_a_perfect_prediction_has_the_floor_for_error_and_no_more() -> None:
    rng = np.random.default_rng(0)
    value = rng.uniform(0, 1, 20_000)
    truth = rng.binomial(256, value) / 256
    perfect = quality(value, truth, 256)
    assert abs(perfect["mse"]) < 2e-5 and perfect["floor"] == pytest.approx(1 / 6 / 256, rel=0.05)
    assert abs(perfect["bias"]) < 1e-3 and perfect["correlation"] > 0.99
    for row in perfect["calibration"]:
        assert row["predicted"] == pytest.approx(row["truth"], abs=0.01)
    off = quality(np.clip(value + 0.1, 0, 2), truth, 256)
    assert off["bias"] == pytest.approx(0.1, abs=1e-3) and off["mse"] == pytest.approx(0.01, abs=5e-4)
    assert off["within"] < 0.1 < perfect["within"]


@pytest.mark.parametrize("K", [1, 3, 9])
def test_monte_carlo_error_is_what_theory_says(K: int) -> None:
    rng = np.random.default_rng(1)
    value = rng.uniform(0, 1, 50_000)
    predicted, truth = rng.binomial(K, value) / K, rng.binomial(256, value) / 256
    assert quality(predicted, truth, 256)["mse"] == pytest.approx(1 / 6 / K, rel=0.03)


def test_a_constant_has_no_correlation() -> None:
    assert quality(np.full(4, 0.5), np.array([0, 0.5, 1, 1.0]), 10)["correlation"] is None


def test_errors_by_position() -> None:
    rows = by_position(np.array([0.1, 0.5, 0.9]), np.array([0.0, 0.5, 0.5]), np.array([0, 2, 0]))
    assert rows == [
        {"position": 0, "mae": pytest.approx(0.25), "count": 2},
        {"position": 2, "mae": 0.0, "count": 1},
    ]


def test_ranking_counts_ties_fairly_and_tells_chance() -> None:
    truth = [np.array([0.9, 0.1]), np.array([0.5, 0.5, 0.1]), np.array([0.3])]
    out = ranking([np.array([1.0, 0.0]), np.array([0.0, 1.0, 1.0]), np.array([1.0])], truth)
    assert out["states"] == 2 and out["top1"] == pytest.approx((1 + 0.5) / 2)
    assert out["chance"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert out["by_candidates"][3] == {"top1": 0.5, "chance": pytest.approx(2 / 3), "states": 1}
    assert ranking([], [])["top1"] is None


def test_random_predictions_rank_at_chance() -> None:
    rng = np.random.default_rng(2)
    truth, guess = rng.uniform(size=(4000, 5)), rng.uniform(size=(4000, 5))
    out = ranking(list(guess), list(truth))
    assert out["chance"] == pytest.approx(0.2) and out["top1"] == pytest.approx(0.2, abs=0.02)


def test_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert training.run(["algo=ppo", f"run_dir={folder}", *SMALL, "iterations=1"]) == 0
    small = ["problems=4", "states=10", "truth=8", "ks=[1,2]", "candidates=3", "threads=1"]
    small += ["credit_problems=3", "group=2", "K=2"]
    assert run([f"run={folder}", *small]) == 0
    found = json.loads((folder / "diagnosis.json").read_text())
    assert set(found["values"]) == {"constant", "group mean", "MC K=1", "MC K=2", "critic"}
    assert set(found["ranking"]) == {"MC K=1", "MC K=2", "critic"}
    assert set(found["credit"]) == {"vineppo", "grpo", "rloo", "oracle", "ppo"}
    assert found["credit"]["vineppo"]["tokens"] > found["credit"]["grpo"]["tokens"]
    assert found["states"] == 10 and (folder / "diagnosis.png").is_file()
    with pytest.raises(UsageError, match=r"has no config\.yaml"):
        run([f"run={tmp_path / 'nothing'}"])
    with pytest.raises(UsageError, match="candidates is 0 or from 2 on"):
        run([f"run={folder}", "candidates=1"])
