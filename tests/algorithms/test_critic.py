"""The critic: GAE, what it learns, and how good its values are."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torchrl.objectives.value import GAE

from algorithms.algorithm import CriticSettings
from algorithms.credit import calibration_error, explained_variance
from algorithms.estimators import (
    gae,
    length_adaptive_lambda,
)
from algorithms.learner import Learner
from algorithms.losses import CriticLoss
from algorithms.models import Critic
from algorithms.ppo import PPO
from tests.algorithms.batches import COMMON, CRITIC, ragged_batch
from tests.conftest import make_llama
from vineenv.ledger import Ledger

VOCAB = 20


@pytest.mark.parametrize("lam", [0.0, 0.7, 0.95, 1.0])
def test_gae_equals_torchrls(lam: float) -> None:
    steps = 9
    values, mask = torch.rand(4, steps), torch.ones(4, steps, dtype=torch.bool)
    returns = torch.tensor([1.0, 0.0, 0.5, 1.0])
    reward, done = torch.zeros(4, steps), torch.zeros(4, steps, 1, dtype=torch.bool)
    reward[:, -1], done[:, -1] = returns, True
    following = torch.cat([values[:, 1:], torch.zeros(4, 1)], 1)[..., None]
    batch = TensorDict(
        {
            "state_value": values[..., None],
            "next": {"state_value": following, "reward": reward[..., None], "done": done, "terminated": done},
        },
        batch_size=[4, steps],
    )
    GAE(gamma=1.0, lmbda=lam, value_network=None, vectorized=False)(batch)
    ours = gae(values, mask, returns, lam)
    assert torch.allclose(ours, batch["advantage"].squeeze(-1), atol=1e-5)
    assert torch.allclose(ours + values, batch["value_target"].squeeze(-1), atol=1e-5)


def test_lambda_may_differ_from_response_to_response_and_from_the_critics() -> None:
    batch = ragged_batch()
    values, mask, returns = batch["state_value"], batch["mask"], batch["reward"]
    lam = torch.tensor([0.0, 0.3, 0.5, 0.7, 0.9, 1.0])
    together = gae(values, mask, returns, lam)
    for b in range(6):
        alone = gae(values[b : b + 1], mask[b : b + 1], returns[b : b + 1], float(lam[b]))
        assert torch.allclose(together[b], alone[0])
    critic = {"critic_lr": 1e-3, "value_clip": 0.0}
    advantage, target = PPO(**COMMON, **critic, lam=0.5, lam_critic=1.0).advantages(batch)
    assert torch.allclose(target[mask], returns[:, None].expand(mask.shape)[mask], atol=1e-5)
    assert torch.allclose(advantage, gae(values, mask, returns, 0.5))
    lengths = mask.sum(1)
    adaptive, _ = PPO(**COMMON, **critic, lam=0.5, adaptive=0.5).advantages(batch)
    assert torch.allclose(adaptive, gae(values, mask, returns, (1 - 2 / lengths).clamp(min=0)))
    assert length_adaptive_lambda(torch.ones(1, 100, dtype=torch.bool), 0.05).item() == pytest.approx(0.8)


def test_only_the_critic_learns_while_it_warms_up() -> None:
    model, batch = make_llama(VOCAB), ragged_batch()
    batch["truncated"] = torch.zeros(6, dtype=torch.bool)
    algorithm = PPO(**CRITIC, critic_warmup=2)
    learner = Learner(model, algorithm, 10, 0, Ledger())
    before = [p.detach().clone() for p in model.parameters()]
    errors = [learner.learn(batch.clone())["loss_critic"] for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert errors[1] < errors[0]
    learner.learn(batch.clone())
    assert not all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_shared_critic_has_a_head_of_its_own_and_no_parameter_twice() -> None:
    model, batch = make_llama(VOCAB), ragged_batch()
    batch["truncated"] = torch.zeros(6, dtype=torch.bool)
    algorithm = PPO(**CRITIC, shared=True, critic_coef=0.5)
    learner = Learner(model, algorithm, 20, 0, Ledger())
    owned = [id(p) for group in learner.optimizer.param_groups for p in group["params"]]
    assert len(owned) == len(set(owned)) == len(list(model.parameters())) + 2
    losses = [learner.learn(batch.clone())["loss_critic"] for _ in range(8)]
    assert losses[-1] < losses[0]


def test_how_good_values_are() -> None:
    returns = torch.tensor([1.0, 0, 1, 0])
    assert explained_variance(returns, returns) == 1 and explained_variance(returns * 0 + 0.5, returns) == 0
    assert calibration_error(torch.tensor([0.75, 0.75, 0.75, 0.75]), torch.tensor([1.0, 1, 1, 0])) == 0
    assert calibration_error(torch.tensor([0.9, 0.9, 0.1, 0.1]), returns) == pytest.approx(0.4)


@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_the_critics_loss_by_hand(clip: float) -> None:
    batch, model = ragged_batch(), make_llama(VOCAB)
    critic = Critic(model.base_model, 32)
    torch.nn.init.normal_(critic.head.weight)
    loss = CriticLoss(critic, CriticSettings(lr=1.0, value_clip=clip, coef=0.7))(batch)["loss_critic"].item()
    values, expected, count = critic(batch["input_ids"]).detach(), 0.0, 0
    for b, t in batch["mask"].nonzero().tolist():
        value, old, target = (float(x[b, t]) for x in (values, batch["state_value"], batch["value_target"]))
        error = (value - target) ** 2
        if clip:
            error = max(error, (old + min(max(value - old, -clip), clip) - target) ** 2)
        expected, count = expected + 0.7 * error / 2, count + 1
    assert loss == pytest.approx(expected / count, rel=1e-4)


def test_values_of_one_are_calibrated_in_the_last_bin() -> None:
    values = torch.tensor([1.0, 0.95, 0.85, 0.85])
    assert calibration_error(values, torch.tensor([1.0, 1, 1, 0])) == pytest.approx((0.05 + 0.7) / 4)
