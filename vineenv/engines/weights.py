"""The engine's own copy of a model: merged projections, taken from Hugging Face modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


class UnsupportedModelError(ValueError):
    """The fused decoder does not know this architecture or one of its options."""


@dataclass
class Norm:
    """RMS norm (bias None) or layer norm; `weight` None where it was folded into the next matrix."""

    kind: str
    weight: Tensor | None
    bias: Tensor | None
    eps: float


@dataclass
class Layer:
    """One block's matrices, transposed so that rows @ matrix is the product.

    qkv: [d, (H + 2 KV) D], the query part scaled by the attention's scale and, under rotary
    positions, each query and key head's dimensions reordered so that pairs are adjacent.
    up: [d, 2 ff] for a gated MLP (gate first), else [d, ff].
    """

    norm1: Norm
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Norm | None
    k_norm: Norm | None
    out: Tensor
    out_bias: Tensor | None
    norm2: Norm
    up: Tensor
    up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


@dataclass
class FusedModel:
    """A decoder ready to run: see `Layer`; `rope` [P, 1, D/2] complex, `positions` [P, d]."""

    heads: int
    kv_heads: int
    head_dim: int
    context: int
    gated: bool
    embed: Tensor
    positions: Tensor | None
    rope: Tensor | None
    layers: list[Layer]
    norm: Norm
    head: Tensor
    head_bias: Tensor | None

    @property
    def vocabulary(self) -> int:
        """Number of logits."""
        return self.head.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Type of the activations and of the cached keys and values."""
        return self.embed.dtype

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.embed.device

    @property
    def token_bytes(self) -> int:
        """Bytes of the keys and values of one token."""
        return 2 * len(self.layers) * self.kv_heads * self.head_dim * self.embed.element_size()


def fuse(model: nn.Module, dtype: torch.dtype) -> FusedModel:
    """Copy `model` (Llama, Qwen2, Qwen3 or GPT-2 for causal language modelling) into merged matrices.

    Raises:
        UnsupportedModelError: naming the architecture or the option that is not known.
    """
    config: Any = getattr(model, "config", None)
    kind = getattr(config, "model_type", type(model).__name__)
    with torch.no_grad():
        if kind == "gpt2":
            return _fuse_gpt2(model, config, dtype)
        if kind in ("llama", "qwen2", "qwen3"):
            return _fuse_llama(model, config, dtype)
    raise UnsupportedModelError(f"architecture {kind!r}")


def _copy(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if tensor is None else tensor.detach().to(dtype, copy=True).contiguous()


def _matrix(weights: list[Tensor], dtype: torch.dtype, scale: Tensor | None = None) -> Tensor:
    """Concatenate [out, in] weights, fold a norm's [in] weight in, and transpose."""
    merged = torch.cat([weight.detach().float() for weight in weights])
    if scale is not None:
        merged = merged * scale.detach().float()
    return merged.t().to(dtype).contiguous()


def _vector(biases: list[Tensor | None], like: list[Tensor], dtype: torch.dtype) -> Tensor | None:
    if all(bias is None for bias in biases):
        return None
    parts = [
        weight.new_zeros(weight.shape[0]) if bias is None else bias.detach()
        for bias, weight in zip(biases, like)
    ]
    return torch.cat(parts).to(dtype)


def _pairs(tensor: Tensor, head_dim: int) -> Tensor:
    """Reorder the rows of each head from (first half, second half) to adjacent rotary pairs."""
    halves = tensor.view(-1, 2, head_dim // 2, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape)


def _check_llama(config: Any) -> None:
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope_type not in ("default", "linear", "llama3", "yarn"):
        raise UnsupportedModelError(f"rotary scaling {rope_type!r}, which depends on the length")
    if (getattr(config, "rope_parameters", None) or {}).get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModelError("partial rotary positions")
    if config.hidden_act != "silu":
        raise UnsupportedModelError(f"activation {config.hidden_act!r}")
    kinds = getattr(config, "layer_types", None) or []
    if any(kind != "full_attention" for kind in kinds):
        raise UnsupportedModelError("sliding-window attention")


def _fuse_llama(model: Any, config: Any, dtype: torch.dtype) -> FusedModel:
    _check_llama(config)
    body = model.model
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    context = config.max_position_embeddings
    device = body.embed_tokens.weight.device
    positions = torch.arange(context, device=device)[None]
    cos, sin = body.rotary_emb(torch.zeros(1, device=device), positions)
    half = head_dim // 2
    final = _copy(body.norm.weight, dtype)
    return FusedModel(
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        context=context,
        gated=True,
        embed=body.embed_tokens.weight.detach().to(dtype, copy=True),
        positions=None,
        rope=torch.complex(cos[0, :, :half].float(), sin[0, :, :half].float())[:, None],
        layers=[_llama_layer(layer, head_dim, dtype) for layer in body.layers],
        norm=Norm("rms", final, None, body.norm.variance_epsilon),
        head=_matrix([model.lm_head.weight], dtype),
        head_bias=_copy(model.lm_head.bias, dtype),
    )


def _head_norm(norm: Any, head_dim: int, scale: float, dtype: torch.dtype) -> Norm | None:
    if norm is None:
        return None
    weight = _pairs(norm.weight.detach().float(), head_dim) * scale
    return Norm("rms", weight.to(dtype), None, norm.variance_epsilon)


def _llama_layer(layer: Any, head_dim: int, dtype: torch.dtype) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    q_norm = getattr(attention, "q_norm", None)
    scale = attention.scaling
    on_weight = 1.0 if q_norm is not None else scale
    q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
    weights = [
        _pairs(q.weight.detach().float(), head_dim) * on_weight,
        _pairs(k.weight.detach().float(), head_dim),
        v.weight,
    ]
    biases = [
        None if q.bias is None else _pairs(q.bias.detach().float(), head_dim) * on_weight,
        None if k.bias is None else _pairs(k.bias.detach().float(), head_dim),
        v.bias,
    ]
    ups = [mlp.gate_proj, mlp.up_proj]
    return Layer(
        norm1=Norm("rms", None, None, layer.input_layernorm.variance_epsilon),
        qkv=_matrix(weights, dtype, layer.input_layernorm.weight),
        qkv_bias=_vector(biases, weights, dtype),
        q_norm=_head_norm(q_norm, head_dim, scale, dtype),
        k_norm=_head_norm(getattr(attention, "k_norm", None), head_dim, 1.0, dtype),
        out=_matrix([attention.o_proj.weight], dtype),
        out_bias=_copy(attention.o_proj.bias, dtype),
        norm2=Norm("rms", None, None, layer.post_attention_layernorm.variance_epsilon),
        up=_matrix([up.weight for up in ups], dtype, layer.post_attention_layernorm.weight),
        up_bias=_vector([up.bias for up in ups], [up.weight for up in ups], dtype),
        down=_matrix([mlp.down_proj.weight], dtype),
        down_bias=_copy(mlp.down_proj.bias, dtype),
    )


def _layer_norm(norm: Any, dtype: torch.dtype) -> Norm:
    return Norm("layer", _copy(norm.weight, dtype), _copy(norm.bias, dtype), norm.eps)


def _fuse_gpt2(model: Any, config: Any, dtype: torch.dtype) -> FusedModel:
    if config.activation_function != "gelu_new":
        raise UnsupportedModelError(f"activation {config.activation_function!r}")
    if config.add_cross_attention:
        raise UnsupportedModelError("cross-attention")
    body = model.transformer
    head_dim = config.hidden_size // config.num_attention_heads
    return FusedModel(
        heads=config.num_attention_heads,
        kv_heads=config.num_attention_heads,
        head_dim=head_dim,
        context=config.max_position_embeddings,
        gated=False,
        embed=body.wte.weight.detach().to(dtype, copy=True),
        positions=_copy(body.wpe.weight, dtype),
        rope=None,
        layers=[_gpt2_layer(layer, dtype) for layer in body.h],
        norm=_layer_norm(body.ln_f, dtype),
        head=_matrix([model.lm_head.weight], dtype),
        head_bias=_copy(model.lm_head.bias, dtype),
    )


def _gpt2_layer(layer: Any, dtype: torch.dtype) -> Layer:
    attention, mlp = layer.attn, layer.mlp
    width = attention.c_attn.weight.shape[0]
    scale = torch.ones(3 * width, device=attention.c_attn.weight.device)
    scale[:width] = attention.scaling
    return Layer(
        norm1=_layer_norm(layer.ln_1, dtype),
        qkv=(attention.c_attn.weight.detach().float() * scale).to(dtype).contiguous(),
        qkv_bias=(attention.c_attn.bias.detach().float() * scale).to(dtype),
        q_norm=None,
        k_norm=None,
        out=attention.c_proj.weight.detach().to(dtype, copy=True),
        out_bias=_copy(attention.c_proj.bias, dtype),
        norm2=_layer_norm(layer.ln_2, dtype),
        up=mlp.c_fc.weight.detach().to(dtype, copy=True),
        up_bias=_copy(mlp.c_fc.bias, dtype),
        down=mlp.c_proj.weight.detach().to(dtype, copy=True),
        down_bias=_copy(mlp.c_proj.bias, dtype),
    )
