"""What a run has spent: tokens and seconds, by purpose."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager


class Ledger:
    """Counts tokens and wall seconds by purpose ("policy", "vines", "evaluation", "training", …)."""

    def __init__(self) -> None:
        self.tokens: defaultdict[str, int] = defaultdict(int)
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def add_tokens(self, purpose: str, count: int) -> None:
        """Book `count` tokens."""
        self.tokens[purpose] += count

    @contextmanager
    def timed(self, purpose: str) -> Generator[None]:
        """Book the wall time of a block, also when it raises."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[purpose] += time.perf_counter() - start

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Plain totals, to be saved with a run."""
        return {"tokens": dict(self.tokens), "seconds": dict(self.seconds)}

    def load_state_dict(self, state: dict[str, dict[str, float]]) -> None:
        """Go on from saved totals."""
        self.tokens = defaultdict(int, {key: int(value) for key, value in state["tokens"].items()})
        self.seconds = defaultdict(float, state["seconds"])
