"""DPO-Positive: pairs of right and wrong responses (Pal et al. 2024, arXiv 2402.13228)."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.nn.functional import logsigmoid
from torchrl.objectives import LossModule

from algorithms.algorithm import Algorithm
from algorithms.models import ActionLogProbs
from vineenv.errors import UsageError


@dataclass(kw_only=True)
class DPOPositive(Algorithm):
    """Pairs a right with a wrong response of the same problem, anew each iteration.

    Attributes:
        beta: of DPO; the paper's 0.1 for MATH and 0.3 for GSM8K.
        positive: weight of the term that keeps the right response at least as likely as at the start.
        most_pairs: pairs a problem.
    """

    beta: float
    positive: float
    most_pairs: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.need_group()
        if not self.beta > 0 or self.positive < 0 or self.most_pairs < 1:
            raise UsageError(
                f"algo.beta={self.beta} must be above 0, algo.positive={self.positive} at least 0, "
                f"algo.most_pairs={self.most_pairs} at least 1."
            )

    @property
    def needs_reference(self) -> bool:
        """The start policy's log-probabilities are part of the loss."""
        return True

    def build_loss(self, actor: ActionLogProbs) -> LossModule:
        """The loss over pairs."""
        return PairLoss(actor, self.beta, self.positive)

    def units(self, batch: TensorDict) -> TensorDict:
        """[N, 2] pairs: a right response, then a wrong one."""
        right, wrong = choose_pairs(batch["reward"], batch["group"], self.most_pairs)
        return torch.stack([batch[right], batch[wrong]], dim=1)

    def weights(self, mask: Tensor) -> Tensor:
        """[N, 2, T] each pair counts the same."""
        return mask.float() / len(mask)

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """Return minus half, for the record: the loss compares, it does not read them."""
        target = batch["reward"][:, None] * batch["mask"]
        return target - 0.5 * batch["mask"], target


def choose_pairs(returns: Tensor, groups: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Rows of right (return above 0) and wrong responses, at most `most` random pairs a group.

    The draw depends on the returns alone, so that a batch gives the same pairs again.

    Returns:
        Two tensors [N]; N is 0 where no group has both.
    """
    rng = random.Random(str(returns.tolist()))
    pairs: list[tuple[int, int]] = []
    for group in torch.unique(groups).tolist():
        rows = (groups == group).nonzero().flatten().tolist()
        right = [row for row in rows if returns[row] > 0]
        wrong = [row for row in rows if returns[row] <= 0]
        every = [(a, b) for a in right for b in wrong]
        pairs += rng.sample(every, min(most, len(every)))
    both = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


class PairLoss(LossModule):
    """-log sigmoid(beta (m_right - m_wrong - lambda max(0, -m_right))), m = log pi - log pi_start.

    m is summed over a response's tokens (Pal et al. 2024, equation 3). Reads rows in pairs: the
    even ones are right, the odd ones wrong; `weight` and `share` as `PolicyLoss`.
    """

    def __init__(self, actor: ActionLogProbs, beta: float, positive: float) -> None:
        super().__init__()
        self.actor = actor
        self.beta, self.positive = beta, positive

    def forward(self, tensordict: TensorDict) -> TensorDict:
        """Return `loss_policy` and detached metrics."""
        mask = tensordict["mask"]
        logprob, entropy = self.actor(tensordict["input_ids"], tensordict["action"], mask)
        rows = mask.nonzero()[:, 0]
        moved = logprob.new_zeros(len(mask)).index_add(0, rows, logprob - tensordict["ref_log_prob"][mask])
        right, wrong = moved[0::2], moved[1::2]
        margin = self.beta * (right - wrong - self.positive * (-right).clamp(min=0))
        weight = tensordict["weight"].amax(dim=1)[0::2]
        out = TensorDict({"loss_policy": -(weight * logsigmoid(margin)).sum()}, batch_size=[])
        with torch.no_grad():
            ratio = (logprob - tensordict["sample_log_prob"][mask]).exp()
            out["ratio_error"] = (ratio - 1).abs().max()
            out["pair_accuracy"] = (weight * (right > wrong)).sum()
            out["entropy"] = (tensordict["share"][mask] * entropy).sum()
        return out
