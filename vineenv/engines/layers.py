"""The decoder's arithmetic between the attentions, and the causal pass over trunks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from vineenv.engines.weights import FusedModel, Layer, Norm


def normalise(x: Tensor, norm: Norm) -> Tensor:
    """Apply `norm` over the last dimension."""
    if norm.kind == "layer":
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
    return F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)


def linear(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """Return x @ matrix (+ bias)."""
    return torch.mm(x, matrix) if bias is None else torch.addmm(bias, x, matrix)


def embed(model: FusedModel, tokens: Tensor, positions: Tensor) -> Tensor:
    """Return the input rows [R, d] of `tokens` [R] at `positions` [R]."""
    x = model.embed[tokens]
    return x if model.positions is None else x + model.positions[positions]


def rotate(heads: Tensor, rope: Tensor) -> Tensor:
    """Turn adjacent pairs of `heads` [R, h, D] by `rope` [R, 1, D/2]; returns a contiguous tensor.

    A complex product is one pass where the usual two halves need five.
    """
    rows, count, dim = heads.shape
    single = heads if heads.dtype == torch.float32 else heads.float()
    turned = torch.view_as_complex(single.unflatten(-1, (dim // 2, 2))) * rope
    real = torch.view_as_real(turned).view(rows, count, dim)
    return real if heads.dtype == torch.float32 else real.to(heads.dtype)


def project(model: FusedModel, layer: Layer, x: Tensor, rope: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries [R, H, D] and keys and values [R, KV, D] of rows `x` [R, d]."""
    qkv = linear(normalise(x, layer.norm1), layer.qkv, layer.qkv_bias).view(x.shape[0], -1, model.head_dim)
    q, k, v = qkv.split_with_sizes([model.heads, model.kv_heads, model.kv_heads], dim=1)
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = normalise(q, layer.q_norm), normalise(k, layer.k_norm)
        if rope is not None:
            q, k = rotate(q, rope), rotate(k, rope)
    elif rope is not None:
        q, k = rotate(qkv[:, : -model.kv_heads], rope).split_with_sizes([model.heads, model.kv_heads], dim=1)
    return q, k, v


def mix(model: FusedModel, layer: Layer, x: Tensor, attended: Tensor) -> Tensor:
    """Add the attention's output [R, H D] and then the MLP to the residual rows `x`, in place."""
    _add(x, attended, layer.out, layer.out_bias)
    hidden = linear(normalise(x, layer.norm2), layer.up, layer.up_bias)
    if model.gated:
        gate, up = hidden.chunk(2, dim=-1)
        hidden = F.silu(gate).mul_(up)
    else:
        hidden = F.gelu(hidden, approximate="tanh")
    return _add(x, hidden, layer.down, layer.down_bias)


def _add(x: Tensor, rows: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    x.addmm_(rows, matrix)
    return x if bias is None else x.add_(bias)


def logits(model: FusedModel, x: Tensor) -> Tensor:
    """Return the logits [R, V] of final hidden rows `x` [R, d]."""
    return linear(normalise(x, model.norm), model.head, model.head_bias)


def causal_pass(model: FusedModel, trunks: Sequence[Sequence[int]], cache: Tensor, wanted: Tensor) -> Tensor:
    """Run trunks through the model once and keep the keys and values of every prefix.

    trunks: N token sequences; cache: [layers, 2, N, KV, width, D] with width the longest, filled here
    (positions past a trunk's end hold padding); wanted: [W] positions n width + t. Returns hidden rows
    [W, d] before the last norm; past the last attention only these are computed.
    """
    count, width = cache.shape[2], cache.shape[4]
    ids = torch.zeros(count, width, dtype=torch.int64)
    for row, trunk in enumerate(trunks):
        ids[row, : len(trunk)] = torch.tensor(trunk)
    tokens = ids.flatten().to(model.device)
    positions = torch.arange(width, device=model.device).repeat(count)
    x = embed(model, tokens, positions)
    rope = None if model.rope is None else model.rope[positions]
    for number, layer in enumerate(model.layers):
        q, k, v = (
            part.unflatten(0, (count, width)).transpose(1, 2) for part in project(model, layer, x, rope)
        )
        cache[number, 0].copy_(k)
        cache[number, 1].copy_(v)
        attended = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=1.0, enable_gqa=model.heads != model.kv_heads
        )
        attended = attended.transpose(1, 2).reshape(count * width, -1)
        if number == len(model.layers) - 1:
            x, attended = x[wanted], attended[wanted]
        mix(model, layer, x, attended)
    return x
