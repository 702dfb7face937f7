"""Attention of one new token a row over a shared prefix and the row's own tokens.

The two parts are computed apart, each with its own softmax, and joined by their log-sum-exps,
so a prefix's keys and values are read once for all the rows that share it.

Symbols: R rows, N blocks of up to B rows on one prefix, L prefix positions, M own positions,
H query heads, KV key heads, G = H / KV, D the head's width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Slots:
    """Where each row stands in the grid of blocks.

    Attributes:
        width: B, the largest number of rows in a block.
        row_of_slot: [N B] the row in each slot; an empty slot names row 0 and is not read back.
        slot_of_row: [R]; None where rows and slots are the same sequence.
    """

    width: int
    row_of_slot: Tensor
    slot_of_row: Tensor | None

    @classmethod
    def of(cls, block: Tensor, blocks: int) -> Slots:
        """Give the rows, whose block numbers are `block` [R], slots in their blocks."""
        rows = block.shape[0]
        counts = torch.bincount(block, minlength=blocks)
        width = int(counts.max())
        order = torch.argsort(block, stable=True)
        starts = counts.cumsum(0) - counts
        rank = torch.empty_like(block)
        rank[order] = torch.arange(rows, device=block.device) - starts.repeat_interleave(counts)
        slot = block * width + rank
        row_of_slot = torch.zeros(blocks * width, dtype=torch.int64, device=block.device)
        row_of_slot[slot] = torch.arange(rows, device=block.device)
        same = rows == blocks * width and bool((slot == torch.arange(rows, device=block.device)).all())
        return cls(width, row_of_slot, None if same else slot)


def _log_sum_exp(scores: Tensor, probs: Tensor) -> Tensor:
    """Return the log-sum-exp behind a softmax from the largest score and its probability.

    The softmax kernel does not return it, and a second logsumexp costs more than two maxima.
    """
    return scores.amax(dim=-1) - probs.amax(dim=-1).log()


def prefix_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, slots: Slots):
    """Attend to the blocks' shared prefixes.

    q: [R, H, D] scaled; keys, values: [N, KV, L, D]; mask: [N, 1, L - low] additive for the last
    positions, None where all prefixes have length L. Returns output [R, H, D], log-sum-exp [R, H].
    """
    blocks, kv_heads, _, dim = keys.shape
    rows, heads, _ = q.shape
    group, width = heads // kv_heads, slots.width
    if slots.slot_of_row is not None:
        q = q[slots.row_of_slot]
    q = q.reshape(blocks, width, kv_heads, group * dim).transpose(1, 2)
    q = q.reshape(blocks * kv_heads, width * group, dim)
    scores = torch.bmm(q, keys.flatten(0, 1).transpose(1, 2))
    if mask is not None:
        scores.view(blocks, -1, scores.shape[-1])[..., -mask.shape[-1] :].add_(mask)
    probs = torch.softmax(scores, dim=-1)
    out = torch.bmm(probs, values.flatten(0, 1))
    out = out.view(blocks, kv_heads, width, group * dim).transpose(1, 2).reshape(-1, heads, dim)
    lse = _log_sum_exp(scores, probs).view(blocks, kv_heads, width, group).transpose(1, 2).reshape(-1, heads)
    if slots.slot_of_row is not None:
        out, lse = out[slots.slot_of_row], lse[slots.slot_of_row]
    return out, lse


def own_attention(q: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Attend to each row's own tokens.

    q: [R, H, D] scaled; keys, values: [R, KV, M, D]. Returns output [R, H, D], log-sum-exp [R, H].
    """
    rows, heads, dim = q.shape
    kv_heads = keys.shape[1]
    q = q.reshape(rows * kv_heads, heads // kv_heads, dim)
    scores = torch.bmm(q, keys.flatten(0, 1).transpose(1, 2))
    probs = torch.softmax(scores, dim=-1)
    out = torch.bmm(probs, values.flatten(0, 1))
    return out.view(rows, heads, dim), _log_sum_exp(scores, probs).view(rows, heads)


def join(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> Tensor:
    """Join two attentions (output, log-sum-exp) of the same queries over disjoint keys."""
    weight = torch.sigmoid((first[1] - second[1]).float()).unsqueeze(-1).to(first[0].dtype)
    return torch.lerp(second[0], first[0], weight)
