"""RestEM: supervised training on the policy's own correct responses (Singh et al. 2024, arXiv 2312.06585)."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import TensorDict
from torch import Tensor

from algorithms.algorithm import Algorithm
from vineenv.errors import UsageError


@dataclass(kw_only=True)
class RestEM(Algorithm):
    """Each iteration fits the start policy anew to at most `most` correct responses a problem.

    Attributes:
        most: correct responses of a problem that are learned from; the first ones sampled.
        from_start: fit the start policy each time, as the method says; false goes on from the last.
    """

    most: int = 10
    from_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most < 1:
            raise UsageError(f"algo.most={self.most} must be at least 1.")

    @property
    def restart(self) -> bool:
        """Whether learning begins at the start policy in each iteration."""
        return self.from_start

    def select(self, batch: TensorDict) -> Tensor:
        """[B] the first `most` correct responses of each problem."""
        correct = (batch["reward"] > 0).long()
        same = batch["group"][:, None] == batch["group"][None, :]
        place = (same.long().tril() * correct[None, :]).sum(1)
        return (correct > 0) & (place <= self.most)

    def advantages(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """1 on every token: with objective "nll" the loss is the mean negative log-likelihood."""
        return batch["mask"].float(), batch["reward"][:, None] * batch["mask"]
