"""The Gymnasium space of actions: chunks of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

NO_TOKEN = -1


class TokenChunk(spaces.Box):
    """Token ids, filled up with -1 to a fixed length.

    A sample has a random number of tokens, at most half of the length, so that a random first
    action does not spend the whole budget of an episode.
    """

    def __init__(self, vocab_size: int, length: int, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(NO_TOKEN, vocab_size - 1, (length,), dtype=np.int64, seed=seed)

    def sample(self, mask: None = None, probability: None = None) -> np.ndarray[Any, Any]:
        """Draw a chunk."""
        (length,) = self.shape
        chunk = np.full(length, NO_TOKEN, dtype=np.int64)
        tokens = int(self.np_random.integers(1, max(length // 2, 1) + 1))
        chunk[:tokens] = self.np_random.integers(0, int(self.high[0]) + 1, tokens)
        return chunk
