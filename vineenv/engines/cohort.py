"""Rows that decode together, with the keys and values they need."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vineenv.engines.attention import OwnAttention, join
from vineenv.engines.grid import Block, Grid, group_blocks
from vineenv.engines.rows import Decode, Finished, Rows
from vineenv.engines.weights import FusedModel
from vineenv.types import Request


class Cohort:
    """Blocks admitted together: their prefixes' keys, their own keys, their rows' state.

    All memory is allocated here: the grids of prefixes, and own [layers, 2, M, R, KV, D] with M the
    largest budget. Having started together, all rows have equally many own tokens.

    Where no row shares its prefix there are no grids: the prefix stands in `own` before the row's new
    tokens, ending at position `lead`, and attention is one part instead of two.
    """

    def __init__(
        self,
        model: FusedModel,
        blocks: Sequence[Block],
        requests: Sequence[Request],
        own_attention: OwnAttention,
        decode: Decode | None = None,
    ) -> None:
        self.model = model
        self.own_attention = own_attention
        alone = all(len(block.rows) == 1 for block in blocks)
        groups = [] if alone else group_blocks(blocks)
        blocks = blocks if alone else [block for group in groups for block in group]
        self.rows = Rows([row for block in blocks for row in block.rows], requests, model.device, decode)
        self.start = torch.tensor([start for b in blocks for start in b.starts], device=model.device)
        self.hidden: Tensor | None = torch.cat([block.hidden for block in blocks])
        self.lead = max(block.length for block in blocks) if alone else 0
        shape = (self.lead + self.rows.capacity, self.rows.count, model.kv_heads, model.head_dim)
        self.own = torch.empty(len(model.layers), 2, *shape, dtype=model.dtype, device=model.device)
        self.mask: Tensor | None = None
        if alone:
            self._place_alone(blocks)
        self.grids = [Grid(model, group) for group in groups]
        places = [
            (g, b) for g, group in enumerate(groups) for b, block in enumerate(group) for _ in block.rows
        ]
        place = torch.tensor(places, device=model.device) if places else self.start.new_zeros(len(blocks), 2)
        self.grid, self.block = place.unbind(1)
        self._arrange()

    def _place_alone(self, blocks: Sequence[Block]) -> None:
        """Copy each row's prefix before its own tokens, and mask the space left of a shorter one."""
        lead = self.lead
        for row, block in enumerate(blocks):
            length = block.length
            self.own[:, :, lead - length : lead, row] = block.cache[:, :, block.at, :, :length].transpose(
                2, 3
            )
            # Uninitialised memory may hold NaN, which survives a mask of -inf in the values' product.
            self.own[:, :, : lead - length, row] = 0
        if (first := lead - int(self.start.min())) > 0:
            empty = torch.arange(first, device=self.start.device)[:, None] < lead - self.start
            mask = torch.zeros(empty.shape, dtype=self.model.dtype, device=self.start.device)
            self.mask = mask.masked_fill_(empty, -torch.inf)

    @property
    def bytes(self) -> int:
        """Memory of the keys and values held."""
        return (self.own.numel() + sum(grid.prefix.numel() for grid in self.grids)) * self.own.element_size()

    def positions(self) -> Tensor:
        """Position [R] of the token that is fed next."""
        return self.start + (self.rows.length - 1)

    def attend(self, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store the new token's keys and values in layer `number`; return its attention [R, H, D]."""
        at, rows = self.lead + self.rows.length - 1, self.rows.count
        own_keys, own_values = self.own[number, :, : at + 1, :rows].unbind(0)
        own_keys[at] = k
        own_values[at] = v
        if self.lead:
            return self.own_attention(q, own_keys, own_values, self.mask)[0]
        return join(self._attend_prefixes(number, q), self.own_attention(q, own_keys, own_values))

    def _attend_prefixes(self, number: int, q: Tensor) -> tuple[Tensor, Tensor]:
        if self.slot_of_row is not None:
            q = q[self.row_of_slot]
        parts = [
            grid.attend(number, rows)
            for grid, rows in zip(self.grids, q.split_with_sizes(self.grid_slots))
            if rows.shape[0]
        ]
        out, lse = parts[0] if len(parts) == 1 else (torch.cat(part) for part in zip(*parts))
        if self.slot_of_row is not None:
            out, lse = out[self.slot_of_row], lse[self.slot_of_row]
        return out, lse

    def draw(self, logits: Tensor) -> list[Finished]:
        """Sample every live row's next token; take out and return the rows that end with it."""
        self.hidden = None
        before = self.rows.count
        finished, order = self.rows.retire(self.rows.draw(logits))
        if finished and order:
            used = self.lead + self.rows.length - 1
            for place, row in enumerate(order):
                if place != row:
                    self.own[:, :, :used, place] = self.own[:, :, :used, row]
            index = torch.tensor(order, device=self.model.device)
            self.start, self.grid, self.block = self.start[index], self.grid[index], self.block[index]
            self.mask = None if self.mask is None else self.mask[:, index]
            self._arrange()
        assert self.rows.count == before - len(finished)
        return finished

    def _arrange(self) -> None:
        """Give the live rows their slots in the grids, and let go of grids without rows."""
        if not self.grids:
            return
        rows_of_slots, self.grid_slots = [], []
        slot_of_row = torch.empty_like(self.block)
        offset = 0
        for number, grid in enumerate(self.grids):
            rows = (self.grid == number).nonzero()[:, 0]
            if not rows.shape[0]:
                self.grid_slots.append(0)
                grid.clear()
                continue
            self.block[rows], row_of_slot, slot = grid.arrange(self.block[rows], self.start[rows])
            rows_of_slots.append(rows[row_of_slot])
            slot_of_row[rows] = slot + offset
            self.grid_slots.append(row_of_slot.shape[0])
            offset += row_of_slot.shape[0]
        self.row_of_slot = torch.cat(rows_of_slots)
        places = torch.arange(offset, device=slot_of_row.device)
        same = offset == self.rows.count and bool((slot_of_row == places).all())
        self.slot_of_row = None if same else slot_of_row
