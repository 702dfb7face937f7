"""What each method adds to the common loop: by hand, or against another implementation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from algorithms.dpo_positive import DPOPositive, PairLoss, choose_pairs
from algorithms.estimators import (
    batch_normalised,
    group_normalised,
    prefix_values,
    smooth_values,
    tempo_advantages,
)
from algorithms.grpo import GRPO
from algorithms.learner import Learner, pack
from algorithms.losses import PolicyLoss
from algorithms.models import ActionLogProbs
from algorithms.ppo import PPO
from algorithms.reinforce import Reinforce
from algorithms.restem import RestEM
from algorithms.spo import SPO
from algorithms.vineppo import VinePPO
from tests.algorithms.batches import COMMON, CRITIC, ragged_batch
from tests.conftest import make_llama
from vineenv.errors import UsageError
from vineenv.ledger import Ledger

VOCAB = 20
NLL: dict[str, Any] = {**COMMON, "objective": "nll"}
VINE: dict[str, Any] = {**COMMON, "K": 1, "every": 1, "max_states": 0, "budget": "full"}


def grpo(**changes: object) -> GRPO:
    return GRPO(**{**COMMON, **changes})


def loss_of(algorithm: GRPO, batch: TensorDict) -> tuple[TensorDict, torch.Tensor]:
    model = make_llama(VOCAB)
    out = PolicyLoss(ActionLogProbs(model), algorithm)(batch)
    out["loss_policy"].backward()
    return out, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def by_hand(batch: TensorDict, per_row: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A loss written row by row: `per_row(logprob, old, advantage)` of one response's tokens."""
    model = make_llama(VOCAB)
    actor, rows = ActionLogProbs(model), []
    for b in range(len(batch)):
        one, mask = batch[b : b + 1], batch["mask"][b : b + 1]
        logprob, _ = actor(one["input_ids"], one["action"], mask)
        rows.append(per_row(logprob, one["sample_log_prob"][mask], one["advantage"][mask]))
    loss = sum(rows)
    loss.backward()
    return loss, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def near(batch: TensorDict) -> TensorDict:
    """Old log-probabilities around the model's own, so that some ratios are clipped and some are not."""
    with torch.no_grad():
        logp, _ = ActionLogProbs(make_llama(VOCAB))(batch["input_ids"], batch["action"], batch["mask"])
    noise = torch.randn(len(logp), generator=torch.Generator().manual_seed(1)) / 3
    batch["sample_log_prob"][batch["mask"]] = logp + noise
    return batch


def assert_equals(algorithm: GRPO, per_row: Any) -> TensorDict:
    batch = near(ragged_batch())
    out, ours = loss_of(algorithm, batch)
    loss, theirs = by_hand(batch, per_row)
    assert out["loss_policy"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert torch.allclose(ours, theirs, atol=1e-6)
    return out


def test_one_ratio_a_response_is_the_geometric_mean_of_its_tokens() -> None:
    def per_row(logprob: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
        ratio = (logprob - old).mean().exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.1) * advantage)
        return -gain.mean() / 6

    out = assert_equals(grpo(ratio="sequence", reduction="sequence", clip=0.1), per_row)
    assert 0 < out["clip_fraction"] < 1


def test_the_upper_clip_may_be_another() -> None:
    count = float(ragged_batch()["mask"].sum())

    def per_row(logprob: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
        ratio = (logprob - old).exp()
        return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.5) * advantage).sum() / count

    assert_equals(grpo(clip_high=0.5), per_row)


def test_cispo_weighs_log_probabilities_by_a_constant() -> None:
    count = float(ragged_batch()["mask"].sum())

    def per_row(logprob: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
        weight = (logprob - old).exp().clamp(0.8, 1.28).detach()
        return -(weight * advantage * logprob).sum() / count

    assert_equals(grpo(objective="cispo", clip_high=0.28), per_row)


def test_nll_with_advantage_one_is_the_cross_entropy_of_responses() -> None:
    batch = ragged_batch()
    batch["advantage"] = batch["mask"].float()
    out, _ = loss_of(grpo(objective="nll", reduction="sequence"), batch)
    loss, _ = by_hand(batch, lambda logprob, old, advantage: -logprob.mean() / 6)
    assert out["loss_policy"].item() == pytest.approx(loss.item(), rel=1e-5)


def test_a_fixed_length_divides_every_response_alike() -> None:
    def per_row(logprob: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
        ratio = (logprob - old).exp()
        return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).sum() / (6 * 96)

    assert_equals(grpo(reduction="fixed", fixed_length=96), per_row)


def test_truncated_responses_can_be_left_out_of_the_loss() -> None:
    batch = ragged_batch()
    batch["truncated"] = torch.tensor([True, False, False, True, False, False])
    kept = grpo(truncated="mask").units(batch)
    assert len(kept) == 4 and torch.equal(kept["input_ids"], batch["input_ids"][~batch["truncated"]])
    assert len(grpo().units(batch)) == 6


def test_prefix_values_are_means_over_the_responses_that_share_it() -> None:
    tokens = torch.tensor([[5, 1, 2, 9], [5, 1, 3, 0], [5, 4, 2, 9], [5, 1, 2, 9]])
    length, groups = torch.tensor([4, 3, 4, 4]), torch.tensor([0, 0, 0, 8])
    returns = torch.tensor([1.0, 0.0, 0.5, 7.0])
    values = prefix_values(tokens, length, groups, returns)
    expected = [[0.5, 0.5, 1, 1], [0.5, 0.5, 0, 0], [0.5, 0.5, 0.5, 0.5], [7, 7, 7, 7]]
    assert torch.allclose(values, torch.tensor(expected))


def test_tempo_is_grpo_plus_differences_that_add_up() -> None:
    batch = ragged_batch()
    tokens = torch.cat([batch["input_ids"][:, :1], batch["action"]], dim=1)
    for b in (1, 2):  # the first group shares prompt and first tokens
        tokens[b, :5] = tokens[0, :5]
        batch["mask"][b] = (torch.arange(12) >= 1) & (torch.arange(12) < batch["length"][b])
    batch["mask"][0] = (torch.arange(12) >= 1) & (torch.arange(12) < batch["length"][0])
    returns, groups, mask = torch.tensor([1.0, 0, 0, 1, 1, 0]), batch["group"], batch["mask"]
    values = prefix_values(tokens, batch["length"] + 1, groups, returns)
    advantage = tempo_advantages(values, mask, returns, groups)
    flat = group_normalised(returns, groups)
    std = math.sqrt(2) / 3
    assert torch.allclose(advantage[0, 1:4], flat[0].expand(3), atol=1e-4), "no branch before the fifth token"
    assert advantage[0, 4].item() == pytest.approx(flat[0].item() + (1 - 1 / 3) / std, abs=1e-4)
    spare = advantage - flat[:, None] * mask
    assert spare[0].sum().item() == pytest.approx((1 - 1 / 3) / std, abs=1e-4)
    equal = tempo_advantages(values * 0, mask, torch.ones(6), groups)
    assert not equal.any()


def test_batch_normalised() -> None:
    out = batch_normalised(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    assert torch.allclose(out, torch.tensor([0.75, -0.25, -0.25, -0.25]) / (math.sqrt(3) / 4))


def test_smoothing_leaves_straight_lines_and_has_its_stated_bias() -> None:
    line = torch.tensor([[0.0, 0.1, 0.2, 0.3, 0.4], [0.3, 0.2, 9.0, 9.0, 9.0]])
    assert torch.allclose(smooth_values(line, torch.tensor([5, 2]), 0.5), line)
    jump = torch.tensor([[0.2, 0.2, 0.8, 0.8]])
    out = smooth_values(jump, torch.tensor([4]), 0.5)
    assert torch.allclose(out, torch.tensor([[0.2, 0.2 + 0.25 * 0.6, 0.8 - 0.25 * 0.6, 0.8]]))
    assert torch.equal(smooth_values(jump, torch.tensor([4]), 0.0), jump)


def test_the_running_mean_is_of_earlier_iterations_alone() -> None:
    algorithm, batch = Reinforce(**COMMON, baseline="running_mean", decay=0.5), ragged_batch()
    means = []
    for returns in ([1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 1, 0]):
        batch["reward"] = torch.tensor(returns, dtype=torch.float32)
        advantage, _ = algorithm.advantages(batch)
        means.append(float((batch["reward"][:, None] - advantage)[batch["mask"]].unique().item()))
    assert means == [0.0, 1.0, 0.5]
    other = Reinforce(**COMMON, baseline="running_mean", decay=0.5)
    other.load_state_dict(algorithm.state_dict())
    assert torch.equal(other.advantages(batch)[0], algorithm.advantages(batch)[0])


def test_restem_takes_the_first_correct_responses_of_each_problem() -> None:
    batch = ragged_batch()
    batch["reward"] = torch.tensor([1.0, 1, 1, 0, 1, 0])
    algorithm = RestEM(**NLL, most=2)
    assert algorithm.select(batch).tolist() == [True, True, False, False, True, False]


def test_restem_fits_the_start_policy_anew() -> None:
    model, batch = make_llama(VOCAB), ragged_batch()
    batch["truncated"], batch["reward"] = torch.zeros(6, dtype=torch.bool), torch.ones(6)
    learner = Learner(model, RestEM(**NLL), 4, 0, Ledger())
    ends = []
    for _ in range(2):
        learner.schedule.last_epoch = 0
        learner.learn(batch.clone())
        ends.append(torch.cat([p.detach().flatten().clone() for p in model.parameters()]))
    assert torch.allclose(ends[0], ends[1], atol=1e-6), "the same data from the same start"
    on = Learner(make_llama(VOCAB), RestEM(**NLL, from_start=False), 4, 0, Ledger())
    assert on.start is None


def test_nothing_correct_leaves_the_policy_as_it_is() -> None:
    model, batch = make_llama(VOCAB), ragged_batch()
    batch["truncated"], batch["reward"] = torch.zeros(6, dtype=torch.bool), torch.zeros(6)
    before = [p.detach().clone() for p in model.parameters()]
    metrics = Learner(model, RestEM(**NLL), 4, 0, Ledger()).learn(batch)
    assert metrics["learned_share"] == 0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_pairs_are_of_one_problem_and_bounded() -> None:
    returns, groups = torch.tensor([1.0, 0, 1, 0, 0, 0, 1, 1]), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
    right, wrong = choose_pairs(returns, groups, 3)
    assert len(right) == 3 and set(right.tolist()) <= {0, 2} and set(wrong.tolist()) <= {1, 3}
    assert len({*zip(right.tolist(), wrong.tolist(), strict=True)}) == 3
    assert all(len(chosen) == 0 for chosen in choose_pairs(torch.zeros(8), groups, 3))


def test_pair_loss_by_hand_and_training_raises_the_right_response() -> None:
    batch = near(ragged_batch())
    batch["truncated"], batch["reward"] = torch.zeros(6, dtype=torch.bool), torch.tensor([1.0, 0, 0, 1, 1, 0])
    algorithm = DPOPositive(**{**COMMON, "minibatch": 64}, beta=0.3, positive=5.0, most_pairs=8)
    pairs = algorithm.units(batch)
    assert pairs.shape == (4, 2)
    flat = pairs.reshape(-1)
    flat["weight"] = algorithm.weights(pairs["mask"]).reshape(8, -1)
    flat["share"] = flat["weight"]
    model = make_llama(VOCAB)
    actor = ActionLogProbs(model)
    loss = PairLoss(actor, 0.3, 5.0)(flat)["loss_policy"]
    expected = 0.0
    for right, wrong in zip(flat[0::2], flat[1::2], strict=True):
        moved = []
        for row in (right, wrong):
            mask = row["mask"][None]
            logp, _ = actor(row["input_ids"][None], row["action"][None], mask)
            moved.append((logp - row["ref_log_prob"][None][mask]).sum())
        margin = 0.3 * (moved[0] - moved[1] - 5 * max(0.0, -moved[0].item()))
        expected += -math.log(1 / (1 + math.exp(-margin.item()))) / 4
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    learner = Learner(model, algorithm, 50, 0, Ledger())
    first = learner.learn(batch.clone())
    assert first["loss_policy"] == pytest.approx(math.log(2), abs=1e-5), "at the start nothing has moved"
    assert first["first_ratio_error"] < 1e-4
    for _ in range(10):
        last = learner.learn(batch.clone())
    assert last["pair_accuracy"] == 1 and last["loss_policy"] < 0.6


def test_packing_keeps_every_row_once_within_both_bounds() -> None:
    lengths = torch.randint(5, 100, (200,), generator=torch.Generator().manual_seed(0))
    order = torch.argsort(lengths)
    for most_rows, most_tokens in ((64, 0), (64, 1000), (7, 0), (1, 50)):
        parts = list(pack(order, lengths, most_rows, most_tokens))
        assert torch.equal(torch.cat(parts), order)
        for part in parts:
            assert len(part) <= most_rows
            assert not most_tokens or len(part) == 1 or len(part) * int(lengths[part].max()) <= most_tokens
            assert 1 - int(lengths[part].sum()) / (len(part) * int(lengths[part].max())) <= 0.05


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: grpo(objective="clp"), "Did you mean 'clip'"),
        (lambda: grpo(ratio="tokens"), "Did you mean 'token'"),
        (lambda: grpo(truncated="drop"), "algo.truncated"),
        (lambda: grpo(reduction="fixed"), "needs algo.fixed_length"),
        (lambda: grpo(clip_high=-0.1), "algo.clip_high=-0.1 must not be negative"),
        (lambda: Reinforce(**COMMON, baseline="mean"), "Did you mean 'running_mean'"),
        (lambda: Reinforce(**{**COMMON, "group_size": 1}, baseline="leave_one_out"), "at least 2"),
        (lambda: RestEM(**COMMON, most=0), "algo.most=0"),
        (lambda: DPOPositive(**COMMON, beta=0.0, positive=1.0, most_pairs=1), "algo.beta=0.0"),
        (lambda: DPOPositive(**COMMON, beta=0.1, positive=-0.1, most_pairs=1), "algo.positive=-0.1"),
        (lambda: DPOPositive(**COMMON, beta=0.1, positive=1.0, most_pairs=0), "algo.most_pairs=0"),
        (lambda: PPO(**CRITIC, lam_critic=2.0), "algo.lam_critic=2.0"),
        (lambda: PPO(**CRITIC, shared=True, critic_warmup=1), "move the policy"),
        (lambda: VinePPO(**VINE, smooth=2.0), "algo.smooth=2.0"),
        (lambda: SPO(**VINE, threshold=0.0, cuts=1), "threshold=0.0"),
    ],
)  # fmt: skip
def test_impossible_settings(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_the_entropy_bonus_is_its_weight_times_the_mean_entropy() -> None:
    batch = near(ragged_batch())
    out = PolicyLoss(ActionLogProbs(make_llama(VOCAB)), grpo(entropy_coef=0.3))(batch)
    assert out["loss_entropy"].item() == pytest.approx(-0.3 * out["entropy"].item(), rel=1e-5)


def test_pairs_show_what_a_response_earned() -> None:
    batch = ragged_batch()
    advantage, target = DPOPositive(**COMMON, beta=0.1, positive=0.0, most_pairs=1).advantages(batch)
    mask, returns = batch["mask"], batch["reward"][:, None].expand(batch["mask"].shape)
    assert torch.equal(advantage[mask], returns[mask] - 0.5) and torch.equal(target[mask], returns[mask])
    assert not advantage[~mask].any()
