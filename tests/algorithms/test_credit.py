"""What an iteration's line says of rewards and advantages."""

from __future__ import annotations

import pytest
import torch

from algorithms.credit import describe_credit, equal_groups
from tests.algorithms.batches import ragged_batch


def test_what_is_said_of_advantages() -> None:
    batch = ragged_batch()
    batch["truncated"] = torch.tensor([True, False, False, False, False, False])
    tokens = int(batch["mask"].sum())
    values = torch.zeros(tokens)
    values[: tokens // 4] = 0.5  # below 1, and most are 0
    batch["raw_advantage"] = torch.full(batch["mask"].shape, 9.0)  # off the response nothing counts
    batch["raw_advantage"][batch["mask"]] = values
    said = describe_credit(batch)
    share = (tokens // 4) / tokens
    assert said["advantage_nonzero"] == pytest.approx(share)
    assert said["advantage_rms"] == pytest.approx(0.5 * share**0.5)
    assert (said["advantage_p05"], said["advantage_p50"], said["advantage_p95"]) == (0.0, 0.0, 0.5)
    assert said["response_tokens"] == pytest.approx(tokens / 6)
    assert said["truncated"] == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("rewards", "share"), [([1, 1, 1, 0, 0, 1], 0.5), ([1, 1, 1, 0, 0, 0], 1.0), ([1, 0, 1, 0, 0, 1], 0.0)]
)
def test_groups_whose_rewards_are_all_equal(rewards: list[float], share: float) -> None:
    batch = ragged_batch()
    assert batch["group"].tolist() == [0, 0, 0, 1, 1, 1]
    batch["reward"] = torch.tensor(rewards, dtype=torch.float32)
    assert equal_groups(batch) == share
    assert equal_groups(batch[:1]) == 0.0
