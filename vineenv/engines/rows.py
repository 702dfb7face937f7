"""Rows that started together: what was asked of each, what was drawn, and when each ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vineenv.engines.sampling import SamplingParams, row_key, sample, uniforms
from vineenv.engines.trunks import Row
from vineenv.types import FinishReason, Request

Decode = Callable[[Sequence[int]], str]

_UNIFORMS_AT_ONCE = 16


@dataclass
class Finished:
    """A completed row."""

    row: Row
    ids: list[int]
    logprobs: list[float]
    reason: FinishReason


class Rows:
    """The state of R live rows that all have `length` new tokens.

    A finished row's place is taken by the last one, so live rows are always the first.
    """

    def __init__(
        self, origins: Sequence[Row], requests: Sequence[Request], device: torch.device, decode: Decode | None
    ) -> None:
        self.origins = list(origins)
        self.decode = decode
        self.length = 0
        asked = [requests[row.request] for row in origins]
        rows = len(asked)
        self.capacity = max(row.budget for row in origins)
        self.budget = torch.tensor([row.budget for row in origins], device=device)
        keys = [row_key(request.seed, row.index) for request, row in zip(asked, origins)]
        self.keys = torch.tensor(keys, device=device)
        self.params = SamplingParams.of([(r.temperature, r.top_p, r.top_k, r.min_p) for r in asked], device)
        stops = max(len(request.stop_ids) for request in asked)
        padded = [list(request.stop_ids) + [-1] * (stops - len(request.stop_ids)) for request in asked]
        self.stops = torch.tensor(padded, dtype=torch.int64, device=device).view(rows, stops)
        self.texts = {number: request.stop for number, request in enumerate(asked) if request.stop}
        self.origin = torch.arange(rows, device=device)
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.ids = torch.zeros(rows, self.capacity, dtype=torch.int64, device=device)
        self.logprobs = torch.zeros(rows, self.capacity, device=device)

    @property
    def count(self) -> int:
        """Number of live rows."""
        return self.origin.shape[0]

    def draw(self, logits: Tensor) -> Tensor:
        """Sample a token for every live row from its logits [R, V]; return which rows are done [R].

        Raises:
            ValueError: naming the request, if a row's logits are not finite.
        """
        phase = self.length % _UNIFORMS_AT_ONCE
        if phase == 0:
            self.uniforms = uniforms(self.keys, self.length, _UNIFORMS_AT_ONCE)
        self.tokens, logprobs = sample(logits, self.uniforms[:, phase], self.params)
        finite = logprobs.isfinite()
        if not bool(finite.all()):
            bad = self.origins[int(self.origin[finite.logical_not()][0])]
            raise ValueError(
                f"request {bad.request}: the model's logits are not finite (NaN or infinite weights?)"
            )
        self.ids[self.origin, self.length] = self.tokens
        self.logprobs[self.origin, self.length] = logprobs
        self.length += 1
        self.stopped = (self.tokens[:, None] == self.stops).any(dim=1)
        if self.texts:
            self._mark_texts()
        return self.stopped | (self.budget <= self.length)

    def _mark_texts(self) -> None:
        """Mark the rows whose text now holds one of their stop strings.

        Only the end is decoded: a character takes at most four tokens (byte fall-back), and the
        margin keeps what a tokenizer does at the beginning of a text out of the way.
        """
        assert self.decode is not None
        for row, number in enumerate(self.origin.tolist()):
            stops = self.texts.get(number, ())
            if stops:
                window = 4 * max(len(stop) for stop in stops) + 8
                text = self.decode(self.ids[number, max(0, self.length - window) : self.length].tolist())
                if any(stop in text for stop in stops):
                    self.stopped[row] = True

    def retire(self, done: Tensor) -> tuple[list[Finished], list[int]]:
        """Take the rows marked in `done` [R] out.

        Returns them, and the old numbers of the rows that are left, in their new order.
        """
        gone = done.nonzero()[:, 0].tolist()
        if not gone:
            return [], list(range(self.count))
        numbers = self.origin[done].tolist()
        ids = self.ids[numbers, : self.length].tolist()
        logprobs = self.logprobs[numbers, : self.length].tolist()
        stopped = self.stopped[done].tolist()
        finished = [
            Finished(self.origins[number], i, lp, "stop" if stop else "length")
            for number, i, lp, stop in zip(numbers, ids, logprobs, stopped)
        ]
        left = self.count - len(gone)
        dead = set(gone)
        movers = iter(row for row in range(left, self.count) if row not in dead)
        order = [next(movers) if row in dead else row for row in range(left)]
        self._select(torch.tensor(order, dtype=torch.int64, device=self.origin.device))
        return finished, order

    def _select(self, index: Tensor) -> None:
        for name in ("budget", "keys", "stops", "origin", "tokens", "uniforms"):
            setattr(self, name, getattr(self, name)[index])
        self.params = self.params.rows(index)
