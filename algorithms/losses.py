"""One policy loss for all algorithms, and the critic's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tensordict import TensorDict
from torch import Tensor
from torchrl.objectives import LossModule

from algorithms.models import ActionLogProbs, Critic

if TYPE_CHECKING:
    from algorithms.algorithm import Algorithm, CriticSettings

_MAX_LOG_RATIO = 20.0
_MAX_KL = 10.0  # the paper's clamp of a token's KL


def token_weights(mask: Tensor, reduction: str, fixed_length: int = 0) -> Tensor:
    """Weight of each token in the mean of a minibatch; they add up to 1, but for "fixed".

    Computed before a minibatch is cut into microbatches, so that the cut changes nothing.

    Args:
        mask: [B, T] bool.
        reduction: "token" gives every token the same weight, "sequence" every response, "fixed"
            every token 1 / (B `fixed_length`).
        fixed_length: see there.

    Returns:
        [B, T] float32, 0 off the mask.
    """
    counted = mask.float()
    if reduction == "token":
        return counted / counted.sum().clamp(min=1)
    lengths = counted.sum(dim=1, keepdim=True)
    responses = (lengths > 0).sum().clamp(min=1)
    return counted / (lengths.clamp(min=1) if reduction == "sequence" else fixed_length) / responses


def sequence_mean(per_token: Tensor, mask: Tensor) -> Tensor:
    """Replace each token's number [N] by the mean of its row; `mask` [B, T] says whose they are."""
    rows = mask.nonzero()[:, 0]
    total = per_token.new_zeros(len(mask)).index_add(0, rows, per_token)
    return (total / mask.sum(1).clamp(min=1))[rows]


def kl_per_token(logprob: Tensor, reference: Tensor, kind: str) -> Tensor:
    """Estimate KL(policy || reference) at sampled tokens; with r = log reference - log policy,

    k1 = -r (unbiased, may be negative; as a loss its expected gradient is zero),
    k2 = r^2 / 2 (biased value, unbiased gradient), k3 = exp(r) - r - 1 (unbiased, never
    negative; clamped to [0, 10] as in the paper's code). All tensors [N].
    """
    r = reference - logprob
    if kind == "k1":
        return -r
    if kind == "k2":
        return r.square() / 2
    return (r.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp() - r - 1).clamp(0, _MAX_KL)


class PolicyLoss(LossModule):
    """PPO's clipped surrogate and its kin, with KL to the start policy and entropy as options.

    L = -mean min(w A, clip(w, 1 - eps, 1 + eps) A) + c_kl KL - c_H H with w the ratio of
    the action's probability to the one it was sampled with (Schulman et al. 2017, equation 7).
    What may be changed of it, and whose idea that is: `algorithms.algorithm.Algorithm`.

    Reads `input_ids, action, mask, sample_log_prob, advantage` [B, T], `ref_log_prob` [B, T]
    where there is a KL term, `weight` [B, T] (see `token_weights`) and `share` [B, T], of each token
    in the means of the metrics; both are computed if absent.
    """

    def __init__(self, actor: ActionLogProbs, algorithm: Algorithm) -> None:
        super().__init__()
        self.actor = actor
        self.algorithm = algorithm

    def forward(self, tensordict: TensorDict) -> TensorDict:
        """Return `loss_policy`, `loss_kl`, `loss_entropy`, and detached metrics, means over tokens."""
        algorithm, mask = self.algorithm, tensordict["mask"]
        weight = tensordict["weight"] if "weight" in tensordict else algorithm.weights(mask)
        logprob, entropy = self.actor(tensordict["input_ids"], tensordict["action"], mask)
        share = tensordict["share"] if "share" in tensordict else token_weights(mask, "token")
        weight, share, advantage = weight[mask], share[mask], tensordict["advantage"][mask]
        log_ratio = (logprob - tensordict["sample_log_prob"][mask]).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
        if algorithm.ratio == "sequence":
            log_ratio = sequence_mean(log_ratio, mask)
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - algorithm.clip, 1 + (algorithm.clip_high or algorithm.clip))
        gain = surrogate(algorithm.objective, ratio, clipped, advantage, logprob)
        out = TensorDict({"loss_policy": -(weight * gain).sum()}, batch_size=[])
        with torch.no_grad():
            out["clip_fraction"] = (share * (clipped * advantage < ratio * advantage)).sum()
            out["approx_kl"] = (share * (ratio - 1 - log_ratio)).sum()
            out["ratio_error"] = (ratio - 1).abs().max() if len(ratio) else torch.zeros(())
            out["entropy"] = (share * entropy).sum().detach()
        if algorithm.kl_coef:
            kl = kl_per_token(logprob, tensordict["ref_log_prob"][mask], algorithm.kl)
            out["loss_kl"] = algorithm.kl_coef * (weight * kl).sum()
            out["kl"] = (share * kl).sum().detach()
        if algorithm.entropy_coef:
            out["loss_entropy"] = -algorithm.entropy_coef * (weight * entropy).sum()
        return out


def surrogate(kind: str, ratio: Tensor, clipped: Tensor, advantage: Tensor, logprob: Tensor) -> Tensor:
    """What is maximised, a token: see `Algorithm.objective`. All tensors [N]."""
    if kind == "clip":
        return torch.minimum(ratio * advantage, clipped * advantage)
    if kind == "cispo":
        return clipped.detach() * advantage * logprob
    return advantage * logprob


class CriticLoss(LossModule):
    """Half the squared error of the values, clipped around the old ones where asked.

    Reads `input_ids, mask, state_value, value_target` [B, T] and `weight`.
    """

    def __init__(self, critic: Critic, settings: CriticSettings) -> None:
        super().__init__()
        self.critic = critic
        self.settings = settings

    def forward(self, tensordict: TensorDict) -> TensorDict:
        """Return `loss_critic`."""
        mask = tensordict["mask"]
        weight = tensordict["weight"] if "weight" in tensordict else token_weights(mask, "token")
        value, target = self.critic(tensordict["input_ids"])[mask], tensordict["value_target"][mask]
        error = (value - target).square()
        limit = self.settings.value_clip
        if limit:
            old = tensordict["state_value"][mask]
            error = torch.maximum(error, (old + (value - old).clamp(-limit, limit) - target).square())
        loss = self.settings.coef * 0.5 * (weight[mask] * error).sum()
        return TensorDict({"loss_critic": loss}, batch_size=[])
