"""Rows that started decoding together, and so have the same number of own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vineenv.engines.attention import OwnAttention, join, prefix_attention
from vineenv.engines.grid import Block, Grid, group_blocks
from vineenv.engines.sampling import SamplingParams, row_key, sample, uniforms
from vineenv.engines.trunks import Row
from vineenv.engines.weights import FusedModel
from vineenv.types import FinishReason, Request

_UNIFORMS_AT_ONCE = 16


@dataclass
class Finished:
    """A completed row."""

    row: Row
    ids: list[int]
    logprobs: list[float]
    reason: FinishReason


class Cohort:
    """Blocks admitted together: their prefixes' keys, their own keys, their rows' state.

    All memory is allocated here: the grids of prefixes, and own [layers, 2, M, R, KV, D] with M the
    largest budget. A finished row's place is taken by the last row, so live rows come first.
    """

    def __init__(
        self,
        model: FusedModel,
        blocks: Sequence[Block],
        requests: Sequence[Request],
        own_attention: OwnAttention,
    ) -> None:
        self.model = model
        self.own_attention = own_attention
        groups = group_blocks(blocks)
        blocks = [block for group in groups for block in group]
        self.origins = [row for block in blocks for row in block.rows]
        self.live = list(range(len(self.origins)))
        self.length = 0
        rows, device = len(self.origins), model.device
        capacity = max(row.budget for row in self.origins)
        shape = (len(model.layers), 2, capacity, rows, model.kv_heads, model.head_dim)
        self.own = torch.empty(shape, dtype=model.dtype, device=device)
        self.hidden = torch.cat([block.hidden for block in blocks])
        self.start = torch.tensor([start for block in blocks for start in block.starts], device=device)
        self._set_rows([requests[row.request] for row in self.origins])
        self.ids = torch.zeros(rows, capacity, dtype=torch.int64, device=device)
        self.logprobs = torch.zeros(rows, capacity, device=device)
        self.grids = [Grid(model, group) for group in groups]
        numbers = [(g, b) for g, group in enumerate(groups) for b, block in enumerate(group) for _ in block.rows]
        self.grid, self.block = torch.tensor(numbers, device=device).unbind(1)
        self._arrange()

    def _set_rows(self, asked: Sequence[Request]) -> None:
        """Lay out what each row was asked: budget, random key, sampling settings, stop ids."""
        device, rows = self.model.device, len(asked)
        self.budget = torch.tensor([row.budget for row in self.origins], device=device)
        keys = [row_key(request.seed, row.index) for request, row in zip(asked, self.origins)]
        self.keys = torch.tensor(keys, device=device)
        self.params = SamplingParams.of([(r.temperature, r.top_p, r.top_k, r.min_p) for r in asked], device)
        stops = max(len(request.stop_ids) for request in asked)
        padded = [list(request.stop_ids) + [-1] * (stops - len(request.stop_ids)) for request in asked]
        self.stops = torch.tensor(padded, dtype=torch.int64, device=device).view(rows, stops)
        self.origin = torch.arange(rows, device=device)
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)

    @property
    def rows(self) -> int:
        """Number of live rows."""
        return self.block.shape[0]

    @property
    def bytes(self) -> int:
        """Memory of the keys and values held."""
        return (self.own.numel() + sum(grid.prefix.numel() for grid in self.grids)) * self.own.element_size()

    def _arrange(self) -> None:
        """Give the live rows their slots in the grids, and let go of grids without rows."""
        rows_of_slots, self.grid_slots = [], []
        slot_of_row = torch.empty_like(self.block)
        offset = 0
        for number, grid in enumerate(self.grids):
            rows = (self.grid == number).nonzero()[:, 0]
            if not rows.shape[0]:
                self.grid_slots.append(0)
                grid.prefix = grid.prefix[:, :, :0]
                continue
            self.block[rows], row_of_slot, slot = grid.arrange(self.block[rows], self.start[rows])
            rows_of_slots.append(rows[row_of_slot])
            slot_of_row[rows] = slot + offset
            self.grid_slots.append(row_of_slot.shape[0])
            offset += row_of_slot.shape[0]
        self.row_of_slot = torch.cat(rows_of_slots)
        places = torch.arange(offset, device=slot_of_row.device)
        same = offset == self.rows and bool((slot_of_row == places).all())
        self.slot_of_row = None if same else slot_of_row

    def attend(self, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store the new token's keys and values in layer `number`; return its attention [R, H, D]."""
        at, rows = self.length - 1, self.rows
        own = self.own[number, :, : at + 1, :rows]
        own[0, at] = k
        own[1, at] = v
        return join(self._attend_prefixes(number, q), self.own_attention(q, own[0], own[1]))

    def _attend_prefixes(self, number: int, q: Tensor) -> tuple[Tensor, Tensor]:
        if self.slot_of_row is not None:
            q = q[self.row_of_slot]
        parts = [
            prefix_attention(rows, grid.prefix[number, 0], grid.prefix[number, 1], grid.mask)
            for grid, rows in zip(self.grids, q.split(self.grid_slots))
            if rows.shape[0]
        ]
        out, lse = parts[0] if len(parts) == 1 else (torch.cat(part) for part in zip(*parts))
        if self.slot_of_row is not None:
            out, lse = out[self.slot_of_row], lse[self.slot_of_row]
        return out, lse

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
            self.own[:, :, :used, hole] = self.own[:, :, :used, mover]
        self.live = [self.live[row] for row in order]
        if not left:
            self.block = self.block[:0]
            return
        index = torch.tensor(order, device=self.model.device)
        for name in ("grid", "block", "start", "budget", "keys", "stops", "origin", "tokens", "uniforms"):
            setattr(self, name, getattr(self, name)[index])
        self.params = self.params.rows(index)
        self._arrange()
