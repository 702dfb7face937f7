"""The protocol that every engine keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import nn

from vineenv.types import Completion, Request

Progress = Callable[[int, int], None]


@dataclass
class EngineStats:
    """Running totals of an engine since it was built.

    Attributes:
        prompt_tokens: prefix tokens asked for, once per continuation.
        prefill_tokens: prefix tokens actually computed.
        decoded_tokens: new tokens returned.
        seconds: wall time inside `generate`.
    """

    prompt_tokens: int = 0
    prefill_tokens: int = 0
    decoded_tokens: int = 0
    seconds: float = 0.0

    @property
    def hit_rate(self) -> float:
        """Share of the prefix tokens asked for that did not have to be computed."""
        return 1.0 - self.prefill_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@runtime_checkable
class Engine(Protocol):
    """Samples continuations of token prefixes; sharing of prefixes is its own business."""

    stats: EngineStats

    def generate(
        self, requests: Sequence[Request], progress: Progress | None = None
    ) -> list[list[Completion]]:
        """Return, for each request in order, its `n` completions; `progress(done, total)` hears of rows."""
        ...

    def load_weights(self, model: nn.Module, version: int) -> None:
        """Serve `model` from now on.

        Returns only when every later token comes from the new weights and no cached
        prefix of the old ones survives; raises RuntimeError otherwise.
        """
        ...

    def release(self) -> None:
        """Give back what accelerator memory can be spared until the next `load_weights`."""
        ...
