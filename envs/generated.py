"""What environments that generate their problems have in common: sizes, a seed, disjoint splits."""

from __future__ import annotations

import hashlib
from typing import Any

from transformers import PreTrainedTokenizerBase

from vineenv.env import ReasoningEnv, RewardFunction
from vineenv.errors import UsageError

OPERATIONS = "+-*"
# Shares of problem space, in 64ths: what a problem hashes to decides its split.
_SPLIT_OF_BUCKET = ("test",) * 8 + ("validation",) * 8 + ("train",) * 48


class GeneratedEnv(ReasoningEnv):
    """Problems drawn by index from a seed.

    Args:
        tokenizer: see `ReasoningEnv`.
        reward: see `ReasoningEnv`.
        train_size: problems of the training split.
        heldout_size: problems of the validation and of the test split.
        data_seed: another seed gives another set of problems.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        reward: RewardFunction,
        *,
        train_size: int = 100_000,
        heldout_size: int = 5_000,
        data_seed: int = 0,
        **base: Any,
    ) -> None:
        super().__init__(tokenizer, reward, **base)
        for name, size in (("train_size", train_size), ("heldout_size", heldout_size)):
            if size < 1:
                raise UsageError(f"env.{name}={size}: the data would be empty; at least 1.")
        self.train_size, self.heldout_size, self.data_seed = train_size, heldout_size, data_seed

    def size(self, split: str) -> int:
        """How many problems the split has."""
        return self.train_size if split == "train" else self.heldout_size


def split_of(canonical: str) -> str:
    """Which split a problem belongs to; `canonical` is the same for problems that are the same."""
    digest = hashlib.blake2b(canonical.encode(), digest_size=1).digest()
    return _SPLIT_OF_BUCKET[digest[0] % len(_SPLIT_OF_BUCKET)]


def check_operations(operations: str) -> None:
    """Raise UsageError unless `operations` is made of `+`, `-` and `*`."""
    if not operations or set(operations) - set(OPERATIONS):
        raise UsageError(f"env.operations={operations!r} must be made of the signs {' '.join(OPERATIONS)}.")


def check_steps(fewest: int, most: int, limit: int) -> None:
    """Raise UsageError unless 1 <= fewest <= most <= limit."""
    if not 1 <= fewest <= most <= limit:
        raise UsageError(
            f"env needs 1 <= min_steps <= max_steps <= {limit}, got min_steps={fewest} max_steps={most}."
        )
