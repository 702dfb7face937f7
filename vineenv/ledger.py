"""What a run has spent: tokens, seconds and operations, by purpose."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager

from vineenv.engines.base import EngineStats


class Ledger:
    """Counts tokens and wall seconds by purpose ("policy", "vines", "evaluation", "training", …)."""

    def __init__(self) -> None:
        self.tokens: defaultdict[str, int] = defaultdict(int)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.asked: defaultdict[str, int] = defaultdict(int)
        self.computed: defaultdict[str, int] = defaultdict(int)

    def add_tokens(self, purpose: str, count: int) -> None:
        """Book `count` tokens."""
        self.tokens[purpose] += count

    @property
    def hit_rates(self) -> dict[str, float]:
        """Share of the prefix tokens asked of the engine that came from its cache, by purpose."""
        return {key: 1 - self.computed[key] / count for key, count in self.asked.items() if count}

    def flops(self, parameters: int) -> dict[str, float]:
        """Floating-point operations so far, by purpose: 2 N a token read or sampled, 6 N a token trained on.

        Kaplan et al. 2020 (arXiv 2001.08361), section 2.1. Prefix tokens that came from a cache cost
        nothing. The products of queries with keys are left out; they are a share of about
        layers * length * width / N of the rest.

        Args:
            parameters: N, the weights that a token is multiplied with.
        """
        read = defaultdict(int, self.computed)
        trained = {"training": 3}
        return {
            purpose: 2.0 * parameters * (count + read[purpose]) * trained.get(purpose, 1)
            for purpose, count in self.tokens.items()
        }

    @contextmanager
    def timed(self, purpose: str, stats: EngineStats | None = None) -> Generator[None]:
        """Book the wall time of a block, also when it raises.

        With an engine's `stats`, the prefix tokens asked and computed meanwhile are booked too.
        """
        start = time.perf_counter()
        asked, computed = (stats.prompt_tokens, stats.prefill_tokens) if stats else (0, 0)
        try:
            yield
        finally:
            self.seconds[purpose] += time.perf_counter() - start
            if stats:
                self.asked[purpose] += stats.prompt_tokens - asked
                self.computed[purpose] += stats.prefill_tokens - computed

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Plain totals, to be saved with a run."""
        return {
            "tokens": dict(self.tokens),
            "seconds": dict(self.seconds),
            "asked": dict(self.asked),
            "computed": dict(self.computed),
        }

    def load_state_dict(self, state: dict[str, dict[str, float]]) -> None:
        """Go on from saved totals."""
        self.tokens = defaultdict(int, {key: int(value) for key, value in state["tokens"].items()})
        self.seconds = defaultdict(float, state["seconds"])
        for counts, saved in ((self.asked, "asked"), (self.computed, "computed")):
            counts.clear()
            counts.update({key: int(value) for key, value in state.get(saved, {}).items()})
