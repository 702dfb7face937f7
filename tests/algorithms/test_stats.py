from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from algorithms.evaluate import run
from algorithms.stats import (
    Share,
    area_under,
    first_reaching,
    majority_at_k,
    mean_of,
    mean_share,
    paired_difference,
    pass_at_k,
    probability_of_improvement,
)
from vineenv.errors import UsageError


def coverage(low: np.ndarray, high: np.ndarray, truth: float) -> float:
    return float(np.mean((low <= truth) & (truth <= high)))


def test_intervals_of_seeds_cover_as_they_say_and_a_percentile_bootstrap_does_not() -> None:
    rng = np.random.default_rng(0)
    samples = 0.4 + 0.03 * rng.standard_normal((1000, 5))
    ours = [mean_of(row) for row in samples]
    assert 0.93 <= coverage(np.array([m.low for m in ours]), np.array([m.high for m in ours]), 0.4) <= 0.97
    draws = samples[:, rng.integers(0, 5, (500, 5))].mean(axis=2)
    low, high = np.percentile(draws, [2.5, 97.5], axis=1)
    assert 0.78 < coverage(low, high, 0.4) < 0.88


def test_paired_intervals_cover_and_are_narrower_where_seeds_move_together() -> None:
    rng = np.random.default_rng(1)
    shared = 0.05 * rng.standard_normal((1000, 5))
    first = 0.45 + shared + 0.01 * rng.standard_normal((1000, 5))
    second = 0.40 + shared + 0.01 * rng.standard_normal((1000, 5))
    paired = [paired_difference(a, b) for a, b in zip(first, second, strict=True)]
    assert (
        0.93 <= coverage(np.array([m.low for m in paired]), np.array([m.high for m in paired]), 0.05) <= 0.97
    )
    assert paired[0].high - paired[0].low < 0.5 * (mean_of(first[0]).high - mean_of(first[0]).low)


@pytest.mark.parametrize(("p", "n"), [(0.5, 200), (0.1, 400), (0.9, 300)])
def test_shares_cover(p: float, n: int) -> None:
    drawn = np.random.default_rng(2).binomial(n, p, 1000)
    low, high = np.array([Share(int(k), n).interval for k in drawn]).T
    assert 0.93 <= coverage(low, high, p) <= 0.97


def test_scores_that_are_all_right_are_not_called_certain() -> None:
    assert mean_share([1.0] * 100).low == Share(100, 100).interval[0] < 0.97
    assert mean_share([0.0] * 100).high == Share(0, 100).interval[1] > 0.03
    assert mean_share([0.0, 1.0]).low == 0.0 and mean_share([0.4, 0.6]).value == 0.5


def test_a_single_value_has_no_interval() -> None:
    assert mean_of([0.4]).low == -math.inf and mean_of([0.4, 0.4]).low == 0.4


def test_probability_of_improvement_is_mann_whitneys() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.normal(0.1, 1, 8), rng.normal(0, 1, 7)
    statistic = scipy_stats.mannwhitneyu(first, second).statistic
    assert probability_of_improvement(first, second) == pytest.approx(statistic / 56)
    assert probability_of_improvement([1, 2], [1, 2]) == 0.5


def test_curves() -> None:
    assert area_under([0, 5, 20], [0.0, 0.2, 0.2]) == pytest.approx((0.5 + 3.0) / 20)
    assert first_reaching([0, 5, 10], [0.1, 0.3, 0.5], 0.4) == pytest.approx(7.5)
    assert first_reaching([0, 5], [0.1, 0.3], 0.1) == 0 and first_reaching([0, 5], [0.1, 0.3], 0.4) is None


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (6, 0, 2), (6, 6, 2), (7, 3, 7)])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(n: int, c: int, k: int) -> None:
    subsets = list(itertools.combinations(range(n), k))
    share = sum(any(i < c for i in subset) for subset in subsets) / len(subsets)
    assert pass_at_k(n, c, k) == pytest.approx(share)


def test_majority_counts_ties_by_their_share() -> None:
    rng = np.random.default_rng(0)
    answers, right = ["3", "3", "4", None], [True, True, False, False]
    assert majority_at_k(answers, right, 4, rng) == 1.0
    assert majority_at_k(["3", "4"], [True, False], 2, rng) == 0.5
    assert majority_at_k([None, None], [False, False], 2, rng) == 0.0
    # Of three out of "3", "3", "4" and nothing, two hold both threes; the others tie.
    expected = (2 * 1.0 + 2 * 0.5) / 4
    assert majority_at_k(answers, right, 3, rng, draws=4000) == pytest.approx(expected, abs=0.02)


def test_the_command_measures_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.json"
    small = ["problems=30", "samples=4", "ks=[1,4]", "threads=1", "env=sums_short"]
    assert run([*small, f"out={out}"]) == 0
    found = json.loads(out.read_text())
    every = found["all"]
    assert (
        every["avg@4"]["value"] == pytest.approx(every["pass@1"]["value"]) and every["avg@4"]["count"] == 30
    )
    assert every["pass@4"]["value"] >= every["maj@4"]["value"] >= 0
    assert {"level 3", "level 4"} <= found.keys() and sum(found["statuses"].values()) == 120
    assert "pass@4" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"ks has \[9\]: each k must lie between 1 and samples=4"):
        run([*small, "ks=[9]"])
    with pytest.raises(UsageError, match="Did you mean 'test'"):
        run([*small, "split=tset"])
