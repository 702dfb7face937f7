"""Attention of one new token a row over a shared prefix and the row's own tokens.

The two parts are computed apart, each with its own softmax, and joined by their log-sum-exps,
so a prefix's keys and values are read once for all the rows that share it.

Symbols: R rows, N blocks of up to B rows on one prefix, L prefix positions, M own positions,
H query heads, KV key heads, G = H / KV, D the head's width.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Products of a chunk stay in the second-level cache; found by measurement on Zen 4.
_CHUNK_NUMBERS = 1 << 20


def _log_sum_exp(scores: Tensor, probs: Tensor, dim: int) -> Tensor:
    """Return the float32 log-sum-exp behind a softmax from the largest score and its probability.

    The softmax kernel does not return it, and torch.logsumexp costs more than two maxima.
    """
    largest, share = scores.amax(dim=dim), probs.amax(dim=dim)
    if scores.dtype != torch.float32:
        largest, share = largest.float(), share.float()
    return largest - share.log_()


def prefix_attention(
    q: Tensor, keys: Tensor, values: Tensor, blocks: int, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attend to the shared prefixes of N = `blocks` blocks of B rows.

    q: [N B, H, D] scaled; keys: [N KV, D, L]; values: [N KV, L, D]; mask: [N, 1, B, 1, cols] added to
    the scores of the last positions, or None. Returns output [N B, H, D], log-sum-exp [N B, H].
    """
    products, dim, length = keys.shape
    slots, heads, _ = q.shape
    kv_heads, width = products // blocks, slots // blocks
    group = heads // kv_heads
    q = q.reshape(blocks, width, kv_heads, group * dim).transpose(1, 2)
    scores = torch.bmm(q.reshape(products, width * group, dim), keys)
    if mask is not None:
        shaped = scores.view(blocks, kv_heads, width, group, length)
        shaped[..., length - mask.shape[-1] :].add_(mask)
    probs = torch.softmax(scores, dim=-1)
    out = torch.bmm(probs, values)
    out = out.view(blocks, kv_heads, width, group * dim).transpose(1, 2).reshape(slots, heads, dim)
    lse = _log_sum_exp(scores, probs, -1).view(blocks, kv_heads, width, group)
    return out, lse.transpose(1, 2).reshape(slots, heads)


class OwnAttention:
    """Attends each row to its own tokens; holds the scratch memory of the products.

    Own keys lie time-major, [M, R, KV, D]: rows that started together have equally many, so no
    mask is needed, and the elementwise path reads memory in long runs. On a CPU in float32 that
    path (product, then sum) took 0.7 of the time of a batched matrix-vector product.
    """

    def __init__(self) -> None:
        self._scratch = torch.empty(0)

    def __call__(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return output [R, H, D] and log-sum-exp [R, H] of scaled q [R, H, D].

        mask: [first, R] added to the scores of the first positions, or None.
        """
        streams = q.device.type == "cpu" and q.dtype == torch.float32
        if streams and q.shape[1] <= 2 * keys.shape[2]:
            return self._streamed(q, keys, values, mask)
        return _by_matmul(q, keys, values, mask)

    def _streamed(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        time, rows, kv_heads, dim = keys.shape
        heads = q.shape[1]
        chunk = min(rows, max(16, _CHUNK_NUMBERS // (time * heads * dim)))
        if self._scratch.numel() < time * chunk * heads * dim:
            self._scratch = torch.empty(2 * time * chunk * heads * dim)
        out, lse = torch.empty(rows, heads, dim), torch.empty(rows, heads)
        for start in range(0, rows, chunk):
            part = slice(start, min(start + chunk, rows))
            count = part.stop - start
            product = self._scratch[: time * count * heads * dim].view(time, count, kv_heads, -1, dim)
            torch.mul(keys[:, part].unsqueeze(3), q[part].reshape(count, kv_heads, -1, dim), out=product)
            scores = product.sum(dim=-1)
            if mask is not None:
                scores[: mask.shape[0]] += mask[:, part, None, None]
            probs = torch.softmax(scores, dim=0)
            lse[part] = _log_sum_exp(scores, probs, 0).view(count, heads)
            torch.mul(values[:, part].unsqueeze(3), probs.unsqueeze(-1), out=product)
            torch.sum(product.view(time, count, heads, dim), dim=0, out=out[part])
        return out, lse


def _by_matmul(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    time, rows, kv_heads, dim = keys.shape
    heads = q.shape[1]
    stride = keys.stride()
    shape, strides = (rows * kv_heads, time, dim), (dim, stride[0], 1)
    scores = torch.bmm(q.reshape(rows * kv_heads, -1, dim), keys.as_strided(shape, strides).transpose(1, 2))
    if mask is not None:
        scores.view(rows, heads, time)[..., : mask.shape[0]] += mask.t()[:, None]
    probs = torch.softmax(scores, dim=-1)
    out = torch.bmm(probs, values.as_strided(shape, strides))
    return out.view(rows, heads, dim), _log_sum_exp(scores, probs, -1).view(rows, heads)


def join(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> Tensor:
    """Join two attentions (output, log-sum-exp) of the same queries over disjoint keys."""
    weight = torch.sigmoid_(first[1] - second[1]).unsqueeze(-1)
    return torch.lerp(second[0], first[0], weight.to(first[0].dtype))
