"""What every algorithm is: the learner's settings, and one function from a batch to advantages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.objectives import LossModule
from torchrl.objectives.value import ValueEstimatorBase

from algorithms.estimators import scale_advantages
from algorithms.losses import PolicyLoss, token_weights
from algorithms.models import ActionLogProbs
from vineenv.errors import UsageError, unknown
from vineenv.rollout import Sampling
from vineenv.vines import Vines

NOT_NEGATIVE = ("kl_coef", "entropy_coef", "warmup", "clip_high", "dynamic_rounds", "microbatch_tokens")
CHOICES = {
    "scale": ("none", "rms", "whiten"),
    "kl": ("k1", "k2", "k3"),
    "reduction": ("token", "sequence", "fixed"),
    "objective": ("clip", "cispo", "nll"),
    "ratio": ("token", "sequence"),
    "truncated": ("learn", "mask"),
}


@dataclass(kw_only=True)
class Algorithm(ABC):
    """Settings that all algorithms share; a subclass adds its own and says how credit is assigned.

    Attributes:
        prompts: P, problems an iteration.
        group_size: G, responses a problem.
        temperature: of sampling, and so of the ratios; at 0 there would be nothing to learn from.
        epochs: passes over an iteration's responses.
        minibatch: responses an optimiser step.
        microbatch: responses a forward pass; bounds memory, changes no gradient.
        lr: AdamW learning rate of the policy.
        warmup: optimiser steps of linear warm-up.
        max_grad_norm: gradient clipping.
        clip: PPO's epsilon.
        kl_coef: weight of the KL to the start policy in the loss; 0 turns it off.
        kl: its estimator (J. Schulman, "Approximating KL divergence"): "k1", "k2" or "k3".
        entropy_coef: weight of an entropy bonus.
        scale: see `estimators.scale_advantages`.
        reduction: "token" averages over the tokens of a minibatch, "sequence" over its
            responses, each averaged over its own tokens, "fixed" divides each response's sum by
            `fixed_length` whatever its length (Dr. GRPO, arXiv 2503.20783).
        fixed_length: see `reduction`.
        objective: "clip" is PPO's; "cispo" weighs log-probabilities by the clipped ratio, held
            constant, so that every token keeps a gradient (MiniMax-M1, arXiv 2506.13585); "nll" by
            the advantage alone, with no ratio.
        ratio: of each "token", or of the "sequence", as the geometric mean of its tokens' (GSPO,
            arXiv 2507.18071; clips there are about 3e-4).
        clip_high: upper epsilon if it is another (DAPO, arXiv 2503.14476: 0.28); 0 takes `clip`.
        truncated: what responses that ran out of budget are: "learn" from their reward, or
            "mask" them out of the loss (DAPO's overlong filtering).
        dynamic_rounds: how many more times problems are drawn in place of those whose responses all
            earn the same (DAPO's dynamic sampling); 0 is off.
        microbatch_tokens: bound of rows times longest row of a forward pass; 0 sets none.
        rescore: take the old log-probabilities from the trainer's own forward pass instead of the
            engine's (the paper's code does): the first ratio is then 1 whatever the engine's rounding.
        lr_decay: linear decay of the learning rate to 0 over the run.
    """

    prompts: int
    group_size: int
    temperature: float
    epochs: int
    minibatch: int
    microbatch: int
    lr: float
    warmup: int
    max_grad_norm: float
    clip: float
    kl_coef: float
    kl: str
    scale: str
    reduction: str
    entropy_coef: float = 0.0
    fixed_length: int = 0
    objective: str = "clip"
    ratio: str = "token"
    clip_high: float = 0.0
    truncated: str = "learn"
    dynamic_rounds: int = 0
    microbatch_tokens: int = 0
    rescore: bool = True
    lr_decay: bool = False

    def __post_init__(self) -> None:
        for name in ("prompts", "group_size", "epochs", "minibatch", "microbatch"):
            if getattr(self, name) < 1:
                raise UsageError(f"algo.{name}={getattr(self, name)} must be at least 1.")
        for name in ("temperature", "lr", "max_grad_norm", "clip"):
            if not getattr(self, name) > 0:
                raise UsageError(f"algo.{name}={getattr(self, name)} must be above 0.")
        for name in NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise UsageError(f"algo.{name}={getattr(self, name)} must not be negative.")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise unknown(f"algo.{name}", str(getattr(self, name)), allowed)
        if self.reduction == "fixed" and self.fixed_length < 1:
            raise UsageError(
                "algo.reduction=fixed needs algo.fixed_length, as the token budget of a response."
            )
        if self.dynamic_rounds:
            self.need_group()

    def need_group(self) -> None:
        """Refuse a group of one, for algorithms that compare the responses to one problem."""
        if self.group_size < 2:
            raise UsageError(
                f"algo.group_size={self.group_size}: {type(self).__name__} compares responses to the same "
                "problem, so it needs at least 2."
            )

    @property
    def vines(self) -> Vines | None:
        """Which states get continuations; none by default."""
        return None

    @property
    def needs_oracle(self) -> bool:
        """Whether the environment is asked which prefixes are right."""
        return False

    @property
    def needs_reference(self) -> bool:
        """Whether the loss reads the start policy's log-probabilities."""
        return self.kl_coef > 0

    @property
    def restart(self) -> bool:
        """Whether each iteration learns from the start policy's weights on."""
        return False

    @property
    def critic(self) -> CriticSettings | None:
        """How the value network is trained; none by default."""
        return None

    @property
    def sampling(self) -> Sampling:
        """How responses and vines are drawn: the whole distribution, so that ratios are exact."""
        return Sampling(self.temperature, 1.0)

    @abstractmethod
    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """Return advantage and value target [B, T] of an iteration's batch (keys: `vineenv.rows`)."""

    def select(self, batch: TensorDict) -> Tensor:
        """[B] bool, the responses that are learned from."""
        if self.truncated == "mask":
            return ~batch["truncated"]
        return torch.ones(len(batch), dtype=torch.bool)

    def units(self, batch: TensorDict) -> TensorDict:
        """What a minibatch is drawn from: responses [B], or pairs of them [N, 2]."""
        return batch[self.select(batch)]

    def weights(self, mask: Tensor) -> Tensor:
        """Weight of each token of a minibatch in the loss, of the shape of `mask`."""
        return token_weights(mask, self.reduction, self.fixed_length)

    def build_loss(self, actor: ActionLogProbs) -> LossModule:
        """What is minimised."""
        return PolicyLoss(actor, self)

    def state_dict(self) -> dict[str, Any]:
        """What later iterations depend on beside the weights; nothing by default."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027 (not every one has state)
        """Go on where `state_dict` was taken."""

    def estimator(self) -> ValueEstimatorBase:
        """The TorchRL value estimator of this algorithm."""
        return AdvantageEstimator(self)


@dataclass(frozen=True)
class CriticSettings:
    """How a value network is trained.

    Attributes:
        lr: AdamW learning rate.
        value_clip: how far a value may move from its old one; 0 does not clip.
        coef: weight of half the squared error.
        shared: its body is the policy's own.
        warmup: iterations at the start in which it learns and the policy does not.
    """

    lr: float
    value_clip: float
    coef: float = 1.0
    shared: bool = False
    warmup: int = 0


class AdvantageEstimator(ValueEstimatorBase):
    """Writes `advantage` and `value_target` [B, T] into an iteration's batch."""

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__(value_network=None, skip_existing=False)
        self.algorithm = algorithm

    def forward(
        self,
        tensordict: TensorDict,
        *,
        params: TensorDictModuleBase | None = None,
        target_params: TensorDictModuleBase | None = None,
    ) -> TensorDict:
        """Add the two keys; whole iterations only, since groups and scales span them."""
        with torch.no_grad():
            advantage, target = self.algorithm.advantages(tensordict)
            tensordict["raw_advantage"] = torch.where(tensordict["mask"], advantage, torch.zeros(()))
            tensordict["advantage"] = scale_advantages(advantage, tensordict["mask"], self.algorithm.scale)
            tensordict["value_target"] = target
        return tensordict

    def value_estimate(self, tensordict: TensorDict, **_: object) -> Tensor:
        """Return the value target [B, T]."""
        return self.algorithm.advantages(tensordict)[1]
