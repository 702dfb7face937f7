"""PPO with a value network (Schulman et al. 2017) and GAE, at the level of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor
from torchrl.objectives.value import GAE

from algorithms.algorithm import Algorithm, CriticSettings
from vineenv.errors import UsageError


@dataclass(kw_only=True)
class PPO(Algorithm):
    """Every token gets its generalised advantage estimate from a critic's values.

    Attributes:
        lam: GAE's lambda; 1 gives return minus value.
        critic_lr: AdamW learning rate of the critic, a copy of the policy with a linear head.
        value_clip: how far a value may move from its old one in an update; 0 does not clip.
    """

    lam: float
    critic_lr: float
    value_clip: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.lam <= 1:
            raise UsageError(f"algo.lam={self.lam} must lie between 0 and 1.")
        if not self.critic_lr > 0 or self.value_clip < 0:
            raise UsageError(
                f"algo.critic_lr={self.critic_lr} must be above 0, "
                f"algo.value_clip={self.value_clip} at least 0."
            )

    @property
    def critic(self) -> CriticSettings:
        """The value network's settings."""
        return CriticSettings(lr=self.critic_lr, value_clip=self.value_clip)

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """GAE by TorchRL, with gamma = 1; tokens of the environment pass value on without a step."""
        return gae(batch["state_value"], batch["mask"], batch["reward"], self.lam)


def gae(values: Tensor, mask: Tensor, returns: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """Advantage and value target of the policy's tokens, the reward arriving at the last of them.

    The steps are the policy's tokens alone: each trajectory's are brought together first, so
    that prompt, padding and environment tokens neither decay nor end anything.

    Args:
        values: [B, T] of the state before each action.
        mask: [B, T] bool, the policy's actions.
        returns: [B].
        lam: GAE's lambda.

    Returns:
        Two tensors [B, T], 0 off the mask.
    """
    order = torch.argsort((~mask).to(torch.int8), dim=1, stable=True)
    packed, kept = values.gather(1, order), mask.gather(1, order)
    last = torch.zeros_like(kept)
    last.scatter_(1, (kept.sum(1, keepdim=True) - 1).clamp(min=0), True)
    after = torch.where(last, torch.zeros(()), torch.cat([packed[:, 1:], packed[:, :1] * 0], dim=1))
    done = (last | ~kept)[..., None]
    steps = TensorDict(
        {
            "state_value": packed[..., None],
            "next": {
                "state_value": after[..., None],
                "reward": (last * returns[:, None])[..., None],
                "done": done,
                "terminated": done,
            },
        },
        batch_size=list(values.shape),
    )
    GAE(gamma=1.0, lmbda=lam, value_network=None, vectorized=False)(steps)
    zero = torch.zeros_like(values)
    advantage = zero.scatter(1, order, torch.where(kept, steps["advantage"].squeeze(-1), zero))
    target = zero.scatter(1, order, torch.where(kept, steps["value_target"].squeeze(-1), zero))
    return advantage, target
