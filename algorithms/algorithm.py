"""What every algorithm is: the learner's settings, and one function from a batch to advantages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.objectives.value import ValueEstimatorBase

from algorithms.estimators import scale_advantages
from vineenv.errors import UsageError, unknown
from vineenv.rollout import Sampling
from vineenv.vines import Vines

SCALES = ("none", "rms", "whiten")
KLS = ("k1", "k2", "k3")
REDUCTIONS = ("token", "sequence")


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
            responses, each averaged over its own tokens.
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
    rescore: bool = True
    lr_decay: bool = False

    def __post_init__(self) -> None:
        for name in ("prompts", "group_size", "epochs", "minibatch", "microbatch"):
            if getattr(self, name) < 1:
                raise UsageError(f"algo.{name}={getattr(self, name)} must be at least 1.")
        for name in ("temperature", "lr", "max_grad_norm", "clip"):
            if not getattr(self, name) > 0:
                raise UsageError(f"algo.{name}={getattr(self, name)} must be above 0.")
        for name in ("kl_coef", "entropy_coef", "warmup"):
            if getattr(self, name) < 0:
                raise UsageError(f"algo.{name}={getattr(self, name)} must not be negative.")
        for name, allowed in (("scale", SCALES), ("kl", KLS), ("reduction", REDUCTIONS)):
            if getattr(self, name) not in allowed:
                raise unknown(f"algo.{name}", str(getattr(self, name)), allowed)

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
    """

    lr: float
    value_clip: float
    coef: float = 1.0


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
