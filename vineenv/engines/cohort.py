"""Rows that started decoding together, and so have the same number of own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vineenv.engines.attention import Slots, join, own_attention, prefix_attention
from vineenv.engines.sampling import SamplingParams, row_key, sample, uniforms
from vineenv.engines.trunks import Row
from vineenv.engines.weights import FusedModel
from vineenv.types import FinishReason, Request

_UNIFORMS_AT_ONCE = 16


@dataclass
class Block:
    """Rows of one prefix: its length, where its keys lie, and its last hidden row.

    cache: [layers, 2, N, KV, width, D] of the pass that holds the prefix at index `at`.
    hidden: [d] at the prefix's last position, before the last norm.
    """

    length: int
    rows: list[Row]
    cache: Tensor
    at: int
    hidden: Tensor


@dataclass
class Finished:
    """A completed row."""

    row: Row
    ids: list[int]
    logprobs: list[float]
    reason: FinishReason


class Cohort:
    """Blocks admitted together: their prefixes' keys, their own keys, their rows' state.

    All memory is allocated here: prefix [layers, 2, N, KV, L, D], own [layers, 2, R, KV, M, D] with
    L the longest prefix and M the largest budget. A finished row's place is taken by the last row,
    so live rows are always the first ones.
    """

    def __init__(self, model: FusedModel, blocks: Sequence[Block], requests: Sequence[Request]) -> None:
        self.model = model
        self.origins = [row for block in blocks for row in block.rows]
        self.live = list(range(len(self.origins)))
        self.length = 0
        rows, device = len(self.origins), model.device
        self.capacity = max(row.budget for row in self.origins)
        shape = (len(model.layers), 2, rows, model.kv_heads, self.capacity, model.head_dim)
        self.own = torch.empty(shape, dtype=model.dtype, device=device)
        self._place_prefixes(blocks)
        sizes = torch.tensor([len(block.rows) for block in blocks], device=device)
        self.block = torch.arange(len(blocks), device=device).repeat_interleave(sizes)
        self.slots = Slots.of(self.block, len(blocks))
        self.start = torch.tensor([block.length for block in blocks], device=device)[self.block]
        self.hidden = torch.stack([block.hidden for block in blocks])[self.block]
        asked = [requests[row.request] for row in self.origins]
        self.budget = torch.tensor([row.budget for row in self.origins], device=device)
        self.keys = torch.tensor(
            [row_key(request.seed, row.index) for request, row in zip(asked, self.origins)], device=device
        )
        self.params = SamplingParams.of([(r.temperature, r.top_p, r.top_k, r.min_p) for r in asked], device)
        stops = max(len(request.stop_ids) for request in asked)
        padded = [list(request.stop_ids) + [-1] * (stops - len(request.stop_ids)) for request in asked]
        self.stops = torch.tensor(padded, dtype=torch.int64, device=device).view(rows, stops)
        self.origin = torch.arange(rows, device=device)
        self.ids = torch.zeros(rows, self.capacity, dtype=torch.int64, device=device)
        self.logprobs = torch.zeros(rows, self.capacity, device=device)
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)

    @property
    def rows(self) -> int:
        """Number of live rows."""
        return self.block.shape[0]

    @property
    def bytes(self) -> int:
        """Memory of the keys and values held."""
        return (self.own.numel() + self.prefix.numel()) * self.own.element_size()

    def _place_prefixes(self, blocks: Sequence[Block]) -> None:
        """Copy each block's prefix out of its trunk's pass, and mask what is shorter than the longest."""
        model, lengths = self.model, [block.length for block in blocks]
        low, high = min(lengths), max(lengths)
        shape = (len(model.layers), 2, len(blocks), model.kv_heads, high, model.head_dim)
        self.prefix = torch.empty(shape, dtype=model.dtype, device=model.device)
        for number, block in enumerate(blocks):
            self.prefix[:, :, number, :, : block.length] = block.cache[:, :, block.at, :, : block.length]
            # Uninitialised memory may hold NaN, which survives a mask of -inf in the values' product.
            self.prefix[:, :, number, :, block.length :] = 0
        self.mask = None
        if low < high:
            beyond = torch.arange(low, high)[None, :] >= torch.tensor(lengths)[:, None]
            mask = torch.zeros(len(blocks), 1, high - low).masked_fill_(beyond[:, None], -torch.inf)
            self.mask = mask.to(device=model.device, dtype=model.dtype)

    def attend(self, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store the new token's keys and values in layer `number`; return its attention [R, H, D]."""
        at, rows = self.length - 1, self.rows
        own = self.own[number, :, :rows]
        own[0, :, :, at] = k
        own[1, :, :, at] = v
        shared = prefix_attention(q, self.prefix[number, 0], self.prefix[number, 1], self.mask, self.slots)
        return join(shared, own_attention(q, own[0, :, :, : at + 1], own[1, :, :, : at + 1]))

    def positions(self) -> Tensor:
        """Position [R] of the token that is fed next."""
        return self.start + (self.length - 1)

    def draw(self, logits: Tensor) -> Tensor:
        """Sample a token for every live row from its logits [R, V]; return which rows are done [R]."""
        phase = self.length % _UNIFORMS_AT_ONCE
        if phase == 0:
            self.uniforms = uniforms(self.keys, self.length, _UNIFORMS_AT_ONCE)
        self.tokens, logprobs = sample(logits, self.uniforms[:, phase], self.params)
        self.ids[self.origin, self.length] = self.tokens
        self.logprobs[self.origin, self.length] = logprobs
        if not bool(logprobs.isfinite().all()):
            bad = self.origins[self.live[int(logprobs.isfinite().logical_not().nonzero()[0])]]
            raise ValueError(
                f"request {bad.request}: the model's logits are not finite (NaN or infinite weights?)"
            )
        self.length += 1
        self.stopped = (self.tokens[:, None] == self.stops).any(dim=1)
        return self.stopped | (self.budget <= self.length)

    def retire(self, done: Tensor) -> list[Finished]:
        """Take the rows marked in `done` [R] out and return them."""
        gone = done.nonzero()[:, 0].tolist()
        if not gone:
            return []
        stopped = self.stopped.tolist()
        numbers = [self.live[row] for row in gone]
        ids = self.ids[numbers, : self.length].tolist()
        logprobs = self.logprobs[numbers, : self.length].tolist()
        finished = [
            Finished(self.origins[number], i, lp, "stop" if stopped[row] else "length")
            for row, number, i, lp in zip(gone, numbers, ids, logprobs)
        ]
        self._compact(gone)
        return finished

    def _compact(self, gone: list[int]) -> None:
        """Move the last live rows into the places of the rows in `gone` (ascending)."""
        left = self.rows - len(gone)
        holes = [row for row in gone if row < left]
        dead = set(gone)
        movers = [row for row in range(left, self.rows) if row not in dead]
        order = list(range(left))
        for hole, mover in zip(holes, movers):
            order[hole] = mover
            used = self.length - 1
            self.own[:, :, hole, :, :used] = self.own[:, :, mover, :, :used]
        self.live = [self.live[row] for row in order]
        if not left:
            self.block = self.block[:0]
            return
        index = torch.tensor(order, device=self.model.device)
        for name in ("block", "start", "budget", "keys", "stops", "origin", "tokens", "uniforms"):
            setattr(self, name, getattr(self, name)[index])
        self.params = self.params.rows(index)
        self._drop_empty_blocks()
        self.slots = Slots.of(self.block, self.prefix.shape[2])

    def _drop_empty_blocks(self) -> None:
        """Close the gaps of finished blocks, once a quarter of them is empty."""
        counts = torch.bincount(self.block, minlength=self.prefix.shape[2])
        alive = counts.nonzero()[:, 0]
        if alive.shape[0] > 0.75 * counts.shape[0]:
            return
        self.prefix = self.prefix[:, :, alive]
        self.mask = None if self.mask is None else self.mask[alive]
        number = torch.zeros_like(counts)
        number[alive] = torch.arange(alive.shape[0], device=alive.device)
        self.block = number[self.block]
