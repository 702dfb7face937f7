"""PPO with a value network (Schulman et al. 2017) and GAE, at the level of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from algorithms.algorithm import Algorithm, CriticSettings
from algorithms.estimators import gae, length_adaptive_lambda
from vineenv.errors import UsageError


@dataclass(kw_only=True)
class PPO(Algorithm):
    """Every token gets its generalised advantage estimate from a critic's values.

    Attributes:
        lam: GAE's lambda; 1 gives return minus value.
        critic_lr: AdamW learning rate of the critic, a copy of the policy with a linear head.
        value_clip: how far a value may move from its old one in an update; 0 does not clip.
        lam_critic: lambda of the critic's targets, if it is to be another (VAPO's decoupled GAE:
            1 for the critic, less for the policy); -1 takes `lam`.
        adaptive: VAPO's alpha: each response's lambda is 1 - 1 / (alpha length); 0 is off.
        shared: the value head reads the policy's own hidden states instead of a copy's.
        critic_coef: weight of the critic's loss; matters where the body is shared.
        critic_warmup: iterations at the start in which only the critic learns.
    """

    lam: float
    critic_lr: float
    value_clip: float
    lam_critic: float = -1.0
    adaptive: float = 0.0
    shared: bool = False
    critic_coef: float = 1.0
    critic_warmup: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.lam <= 1:
            raise UsageError(f"algo.lam={self.lam} must lie between 0 and 1.")
        if not (0 <= self.lam_critic <= 1 or self.lam_critic == -1):
            raise UsageError(
                f"algo.lam_critic={self.lam_critic} must lie between 0 and 1, or be -1 (as lam)."
            )
        if not self.critic_lr > 0 or self.value_clip < 0:
            raise UsageError(
                f"algo.critic_lr={self.critic_lr} must be above 0, "
                f"algo.value_clip={self.value_clip} at least 0."
            )
        if self.shared and self.critic_warmup:
            raise UsageError("algo.critic_warmup would move the policy too where algo.shared=true.")
        if self.adaptive < 0 or not self.critic_coef > 0 or self.critic_warmup < 0:
            raise UsageError(
                f"algo.adaptive={self.adaptive} and algo.critic_warmup={self.critic_warmup} must be at least "
                f"0, algo.critic_coef={self.critic_coef} above 0."
            )

    @property
    def critic(self) -> CriticSettings:
        """The value network's settings."""
        return CriticSettings(
            lr=self.critic_lr,
            value_clip=self.value_clip,
            coef=self.critic_coef,
            shared=self.shared,
            warmup=self.critic_warmup,
        )

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """GAE with gamma = 1; tokens of the environment pass value on without a step."""
        values, mask, returns = batch["state_value"], batch["mask"], batch["reward"]
        lam = length_adaptive_lambda(mask, self.adaptive) if self.adaptive else self.lam
        advantage = gae(values, mask, returns, lam)
        towards = advantage if self.lam_critic == -1 else gae(values, mask, returns, self.lam_critic)
        return advantage, torch.where(mask, values + towards, torch.zeros_like(values))
