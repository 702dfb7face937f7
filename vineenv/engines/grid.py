"""Blocks of rows on shared prefixes, padded to one length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vineenv.engines.attention import prefix_attention
from vineenv.engines.trunks import Row
from vineenv.engines.weights import FusedModel

# Rows times padded positions above which a grid of its own, some 10 operations a layer, is cheaper.
_WASTE = 4000


@dataclass
class Block:
    """Rows whose prefixes are all prefixes of one trunk.

    cache: [layers, 2, N, KV, width, D] of the pass that holds the trunk at index `at`.
    starts: each row's prefix length; hidden: [rows, d] at its last position, before the last norm.
    """

    rows: list[Row]
    starts: list[int]
    cache: Tensor
    at: int
    hidden: Tensor

    @property
    def length(self) -> int:
        """The longest prefix."""
        return max(self.starts)

    @property
    def budget(self) -> int:
        """The largest number of tokens a row may still get."""
        return max(row.budget for row in self.rows)

    def split(self, count: int) -> Block:
        """Take the first `count` rows out into a block of their own."""
        first = Block(self.rows[:count], self.starts[:count], self.cache, self.at, self.hidden[:count])
        self.rows, self.starts, self.hidden = self.rows[count:], self.starts[count:], self.hidden[count:]
        return first


class Grid:
    """Keys and values [layers, 2, N, KV, L, D] of the prefixes of N blocks, and their rows' slots.

    Each block has B slots, B the number of rows of the fullest. An empty slot computes some other
    row's attention, which nobody reads.
    """

    def __init__(self, model: FusedModel, blocks: Sequence[Block]) -> None:
        high = max(block.length for block in blocks)
        shape = (len(model.layers), 2, len(blocks), model.kv_heads, high, model.head_dim)
        self.prefix = torch.empty(shape, dtype=model.dtype, device=model.device)
        for number, block in enumerate(blocks):
            length = block.length
            self.prefix[:, :, number, :, :length] = block.cache[:, :, block.at, :, :length]
            # Uninitialised memory may hold NaN, which survives a mask of -inf in the values' product.
            self.prefix[:, :, number, :, length:] = 0
        self._set_views()
        self.mask: Tensor | None = None

    def attend(self, number: int, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return the attention of the slots' queries [N B, H, D] in layer `number`."""
        keys, values = self.layers[number]
        return prefix_attention(q, keys, values, self.prefix.shape[2], self.mask)

    def arrange(self, block: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give rows in blocks `block` [R] with prefix lengths `start` [R] their slots.

        Returns the blocks' new numbers [R] (empty blocks go once a quarter is empty), the row
        in each slot [N B], and the slot of each row [R].
        """
        counts = torch.bincount(block, minlength=self.prefix.shape[2])
        alive = counts.nonzero()[:, 0]
        if alive.shape[0] <= 0.75 * counts.shape[0]:
            self.prefix = self.prefix[:, :, alive]
            self._set_views()
            number = torch.zeros_like(counts)
            number[alive] = torch.arange(alive.shape[0], device=alive.device)
            block, counts = number[block], counts[alive]
        width = int(counts.max())
        order = torch.argsort(block, stable=True)
        rank = torch.empty_like(block)
        places = torch.arange(block.shape[0], device=block.device)
        rank[order] = places - (counts.cumsum(0) - counts).repeat_interleave(counts)
        slot = block * width + rank
        row_of_slot = torch.zeros(counts.shape[0] * width, dtype=torch.int64, device=block.device)
        row_of_slot[slot] = places
        self._set_mask(start[row_of_slot].view(-1, 1, width, 1, 1), int(start.min()))
        return block, row_of_slot, slot

    def clear(self) -> None:
        """Let go of the memory, once no row is left."""
        self.prefix = self.prefix[:, :, :0].clone()
        self.layers = []

    def _set_views(self) -> None:
        """Shape each layer's keys [N KV, D, L] and values [N KV, L, D] once for all steps."""
        flat = self.prefix.flatten(2, 3)
        self.layers = [(keys.transpose(1, 2), values) for keys, values in flat]

    def _set_mask(self, start: Tensor, low: int) -> None:
        high = self.prefix.shape[4]
        self.mask = None
        if low < high:
            beyond = torch.arange(low, high, device=start.device) >= start
            zero = torch.zeros(beyond.shape, dtype=self.prefix.dtype, device=start.device)
            self.mask = zero.masked_fill_(beyond, -torch.inf)


def group_blocks(blocks: Sequence[Block]) -> list[list[Block]]:
    """Split blocks into grids of similar length where the padding would cost more than a further grid."""
    groups: list[list[Block]] = []
    waste = rows = length = 0
    for block in sorted(blocks, key=lambda block: block.length):
        waste += rows * (block.length - length)
        if not groups or waste > _WASTE:
            groups.append([])
            waste = rows = 0
        groups[-1].append(block)
        rows += len(block.rows)
        length = block.length
    return groups
