from __future__ import annotations

import math

import pytest
import torch
from tensordict import TensorDict
from torchrl.objectives.value import TD0Estimator

from algorithms.estimators import (
    count_segments,
    gae,
    geometric_values,
    group_normalised,
    leave_one_out,
    scale_advantages,
    spread_to_tokens,
    step_advantages,
    step_success_rate,
)
from tests.algorithms.batches import ragged_batch

VALUES = torch.tensor([[0.5, 0.25, 0.75, 9.0], [0.1, 9.0, 9.0, 9.0]])
SEGMENTS = torch.tensor([3, 1])
RETURNS = torch.tensor([1.0, 0.0])


def test_step_advantages_by_hand() -> None:
    expected = torch.tensor([[-0.25, 0.5, 0.25, 0.0], [-0.1, 0.0, 0.0, 0.0]])
    assert torch.allclose(step_advantages(VALUES, SEGMENTS, RETURNS), expected)


def test_step_advantages_add_up_to_return_minus_first_value() -> None:
    values, segments = torch.rand(50, 9), torch.randint(1, 10, (50,))
    returns = torch.rand(50)
    total = step_advantages(values, segments, returns).sum(1)
    assert torch.allclose(total, returns - values[:, 0], atol=1e-6)


def test_one_segment_for_the_whole_response_is_return_minus_value() -> None:
    values, returns = torch.rand(5, 1), torch.rand(5)
    advantage = step_advantages(values, torch.ones(5, dtype=torch.int64), returns)
    assert torch.allclose(advantage[:, 0], returns - values[:, 0])


def test_step_advantages_equal_torchrls_td0() -> None:
    steps = 7
    values, reward = torch.rand(4, steps), torch.zeros(4, steps)
    reward[:, -1] = torch.tensor([1.0, 0.0, 1.0, 0.0])
    done = torch.zeros(4, steps, 1, dtype=torch.bool)
    done[:, -1] = True
    following = torch.cat([values[:, 1:], torch.zeros(4, 1)], 1)[..., None]
    batch = TensorDict(
        {
            "state_value": values[..., None],
            "next": {"state_value": following, "reward": reward[..., None], "done": done, "terminated": done},
        },
        batch_size=[4, steps],
    )
    TD0Estimator(gamma=1.0, value_network=None)(batch)
    ours = step_advantages(values, torch.full((4,), steps), reward[:, -1])
    assert torch.allclose(ours, batch["advantage"].squeeze(-1), atol=1e-6)


def test_spreading_and_counting() -> None:
    step_id = torch.tensor([[-1, 0, 0, 1, 2, -1], [-1, -1, 0, 0, 0, 0]])
    assert count_segments(step_id).tolist() == [3, 1]
    spread = spread_to_tokens(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), step_id)
    assert spread.tolist() == [[0, 1, 1, 2, 3, 0], [0, 0, 4, 4, 4, 4]]


def test_rloo_equals_its_definition_whatever_the_order() -> None:
    returns = torch.tensor([1.0, 0.0, 0.0, 5.0, 1.0])
    groups = torch.tensor([7, 3, 7, 3, 7])
    # Group 7 holds 1, 0, 1 and group 3 holds 0, 5.
    assert torch.allclose(leave_one_out(returns, groups), torch.tensor([0.5, -5.0, -1.0, 5.0, 0.5]))


def test_grpo_by_hand_and_its_factor_to_rloo() -> None:
    returns, groups = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.int64)
    std = math.sqrt(3) / 4
    expected = torch.tensor([0.75, -0.25, -0.25, -0.25]) / std
    assert torch.allclose(group_normalised(returns, groups), expected, atol=1e-4)
    mean_only = group_normalised(returns, groups, by_std=False)
    assert torch.allclose(mean_only, leave_one_out(returns, groups) * 3 / 4)
    assert group_normalised(torch.ones(4), groups).tolist() == [0, 0, 0, 0]


def test_geometric_values_and_their_success_rate() -> None:
    on_track = torch.tensor([[True, True, False], [True, True, True]])
    left = torch.tensor([[3, 2, 1], [3, 2, 1]])
    assert torch.allclose(
        geometric_values(on_track, left, 0.5), torch.tensor([[0.125, 0.25, 0], [0.125, 0.25, 0.5]])
    )
    # Row 0: right, wrong. Row 1: right, right, and the last by its return: right. 4 of 5.
    rate = step_success_rate(on_track, torch.tensor([3, 3]), torch.tensor([0.0, 1.0]))
    assert rate.item() == pytest.approx(0.8)


@pytest.mark.parametrize("lam", [1.0, 0.9, 0.0])
def test_gae_equals_the_recursion_over_policy_tokens(lam: float) -> None:
    batch = ragged_batch()
    batch["mask"][0, 3] = False  # an environment token amid the response
    advantage = gae(batch["state_value"], batch["mask"], batch["reward"], lam)
    for b in range(len(batch)):
        places = batch["mask"][b].nonzero().flatten().tolist()
        following, running = 0.0, 0.0
        for i, t in enumerate(reversed(places)):
            value = float(batch["state_value"][b, t])
            delta = (float(batch["reward"][b]) if i == 0 else following) - value
            running = delta + (0.0 if i == 0 else lam * running)
            assert float(advantage[b, t]) == pytest.approx(running, abs=1e-5)
            following = value
    assert not advantage[~batch["mask"]].any()


def test_gae_with_lambda_one_is_return_minus_value() -> None:
    batch = ragged_batch()
    advantage = gae(batch["state_value"], batch["mask"], batch["reward"], 1.0)
    expected = (batch["reward"][:, None] - batch["state_value"])[batch["mask"]]
    assert torch.allclose(advantage[batch["mask"]], expected, atol=1e-5)


def test_scaling() -> None:
    mask = torch.tensor([[True, True, True, False]])
    advantage = torch.tensor([[3.0, 0.0, -4.0, 100.0]])
    assert scale_advantages(advantage, mask, "none").tolist() == [[3, 0, -4, 0]]
    rms = scale_advantages(advantage, mask, "rms")
    assert rms[0, 1] == 0 and rms[mask].square().mean().item() == pytest.approx(1)
    white = scale_advantages(advantage, mask, "whiten")[mask]
    assert white.mean().item() == pytest.approx(0, abs=1e-6) and white.std().item() == pytest.approx(1)
    two = scale_advantages(torch.tensor([[1.0, 3.0]]), torch.tensor([[True, True]]), "whiten")
    assert two.tolist() == [[pytest.approx(-(2**-0.5)), pytest.approx(2**-0.5)]]
