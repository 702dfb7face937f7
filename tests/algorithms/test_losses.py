from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import ClipPPOLoss
from transformers import LlamaForCausalLM

from algorithms.algorithm import Algorithm
from algorithms.learner import Learner
from algorithms.losses import PolicyLoss, kl_per_token, token_weights
from algorithms.models import ActionLogProbs
from algorithms.rloo import RLOO
from tests.algorithms.batches import ragged_batch
from tests.conftest import make_llama
from vineenv.ledger import Ledger

VOCAB = 20


def settings(**changes: object) -> Algorithm:
    values: dict[str, object] = {
        "prompts": 2, "group_size": 3, "temperature": 1.0, "epochs": 1, "minibatch": 6, "microbatch": 6,
        "lr": 1e-3, "warmup": 0, "max_grad_norm": 1e9, "clip": 0.2, "kl_coef": 0.0, "kl": "k3",
        "scale": "none", "reduction": "token",
    }  # fmt: skip
    return RLOO(**{**values, **changes})  # ty: ignore[invalid-argument-type]


def gradient(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def backward(
    model: LlamaForCausalLM, batch: TensorDict, algorithm: Algorithm
) -> tuple[TensorDict, torch.Tensor]:
    model.zero_grad()
    out = PolicyLoss(ActionLogProbs(model, algorithm.temperature), algorithm)(batch)
    sum(v for k, v in out.items() if k.startswith("loss_")).backward()
    return out, gradient(model)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_equal_hugging_faces(temperature: float) -> None:
    model, batch = make_llama(VOCAB), ragged_batch()
    with torch.no_grad():
        ours, entropy = ActionLogProbs(model, temperature)(batch["input_ids"], batch["action"], batch["mask"])
        for b in range(len(batch)):
            n = int(batch["length"][b])
            logits = model(input_ids=batch["input_ids"][b : b + 1, :n]).logits[0] / temperature
            logp = logits.log_softmax(-1)
            kept = batch["mask"][b, :n]
            rows = slice(int(batch["mask"][:b].sum()), int(batch["mask"][: b + 1].sum()))
            theirs = logp.gather(-1, batch["action"][b, :n, None]).squeeze(-1)[kept]
            assert torch.allclose(ours[rows], theirs, atol=1e-4)
            assert torch.allclose(entropy[rows], -(logp.exp() * logp).sum(-1)[kept], atol=1e-4)


class _Logits(nn.Module):
    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids).logits


def test_policy_loss_and_gradient_equal_torchrls_clip_ppo() -> None:
    model, batch = make_llama(VOCAB), ragged_batch()
    with torch.no_grad():
        logp, _ = ActionLogProbs(model)(batch["input_ids"], batch["action"], batch["mask"])
    noise = torch.randn(len(logp), generator=torch.Generator().manual_seed(1)) / 2
    batch["sample_log_prob"][batch["mask"]] = logp + noise  # ratios on both sides of both clips
    out, ours = backward(model, batch, settings())
    assert 0.1 < out["clip_fraction"] < 0.9
    actor = ProbabilisticActor(
        TensorDictModule(_Logits(model), in_keys=["input_ids"], out_keys=["logits"]),
        in_keys=["logits"], out_keys=["action"], distribution_class=torch.distributions.Categorical,
    )  # fmt: skip
    theirs = ClipPPOLoss(actor, None, clip_epsilon=0.2, entropy_bonus=False, reduction="none")
    theirs.set_keys(sample_log_prob="sample_log_prob")
    flat = TensorDict(
        {
            "input_ids": batch["input_ids"],
            "action": batch["action"],
            "sample_log_prob": batch["sample_log_prob"],
            "advantage": batch["advantage"][..., None],
        },
        batch_size=list(batch["mask"].shape),
    )
    model.zero_grad()
    per_token = theirs(flat)["loss_objective"].reshape(batch["mask"].shape)
    loss = per_token[batch["mask"]].mean()
    theirs_by_name = {
        name.rpartition("model.")[2]: p for name, p in theirs.actor_network_params.flatten_keys(".").items()
    }
    names = [name.rpartition("model.")[2] for name, p in model.named_parameters()]
    grads = torch.autograd.grad(loss, [theirs_by_name[name] for name in names])
    reference = torch.cat([g.flatten() for g in grads])
    assert out["loss_policy"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert torch.allclose(ours, reference, atol=1e-6, rtol=1e-4)


def test_at_ratio_one_it_is_the_plain_policy_gradient() -> None:
    model, batch = make_llama(VOCAB), ragged_batch()
    actor = ActionLogProbs(model)
    with torch.no_grad():
        logp, _ = actor(batch["input_ids"], batch["action"], batch["mask"])
    batch["sample_log_prob"][batch["mask"]] = logp
    out, ours = backward(model, batch, settings())
    assert out["ratio_error"].item() < 1e-5 and out["clip_fraction"].item() == 0
    model.zero_grad()
    logp, _ = actor(batch["input_ids"], batch["action"], batch["mask"])
    (-(batch["advantage"][batch["mask"]] * logp).mean()).backward()
    assert torch.allclose(ours, gradient(model), atol=1e-6)


@pytest.mark.parametrize("reduction", ["token", "sequence"])
def test_gradient_does_not_depend_on_microbatch_order_or_padding(reduction: str) -> None:
    whole = ragged_batch()
    wide = torch.stack([*whole.unbind(0)][::-1])
    for key, value in list(wide.items()):
        if value.ndim == 2:
            wide[key] = torch.nn.functional.pad(value, (0, 5), value=-1 if key == "step_id" else 0)
    gradients = []
    for batch, size in ((whole, 6), (whole, 1), (wide, 4)):
        model = make_llama(VOCAB).double()
        learner = Learner(model, settings(microbatch=size, reduction=reduction), 1, 0, Ledger())
        learner.optimizer.step = learner.optimizer.zero_grad = lambda *_: None  # ty: ignore[invalid-assignment]
        learner.schedule.step = lambda *_: None  # ty: ignore[invalid-assignment]
        learner._step(batch.clone())
        gradients.append(gradient(model))
    scale = torch.linalg.vector_norm(gradients[0])
    for other in gradients[1:]:
        assert torch.linalg.vector_norm(other - gradients[0]) / scale < 1e-6


def test_token_weights() -> None:
    mask = torch.tensor([[True, True, True], [True, False, False]])
    assert token_weights(mask, "token").tolist() == [[0.25] * 3, [0.25, 0, 0]]
    assert torch.allclose(token_weights(mask, "sequence"), torch.tensor([[1 / 6] * 3, [0.5, 0, 0]]))


def test_kl_estimators_average_to_the_exact_kl() -> None:
    torch.manual_seed(0)
    policy, reference = (torch.randn(2, 5) / 2).log_softmax(1)  # mild: nothing is clamped
    exact = (policy.exp() * (policy - reference)).sum()
    for kind in ("k1", "k3"):
        assert torch.allclose((policy.exp() * kl_per_token(policy, reference, kind)).sum(), exact, atol=1e-6)
    assert (kl_per_token(policy, reference, "k2") >= 0).all()
    assert kl_per_token(torch.tensor([-30.0]), torch.tensor([0.0]), "k3").item() == 10
