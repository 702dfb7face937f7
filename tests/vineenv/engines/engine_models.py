"""Small random models of every architecture the fused decoder knows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from vineenv.types import Request

VOCABULARY = 64
_YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 64}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "rope_theta": 1e4,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def _shape(kv_heads: int = 2, **extra: object) -> dict:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": None,
        **extra,
    }


BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**_shape(4, tie_word_embeddings=True))),
    "llama_gqa_yarn": lambda: LlamaForCausalLM(
        LlamaConfig(**_shape(1, rope_parameters=_YARN, attention_bias=True, mlp_bias=True))
    ),
    "llama3": lambda: LlamaForCausalLM(LlamaConfig(**_shape(2, rope_parameters=_LLAMA3))),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**_shape())),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**_shape(head_dim=32, tie_word_embeddings=True))),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=64,
            n_layer=3,
            n_head=4,
            n_positions=256,
            initializer_range=0.2,
            bos_token_id=None,
            eos_token_id=None,
        )
    ),
    "gpt_neox": lambda: GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=256,
            initializer_range=0.2,
            bos_token_id=None,
            eos_token_id=None,
        )
    ),
}


def build(name: str, seed: int = 0) -> nn.Module:
    """Return a model whose vectors (norms, biases) are random too, so that none is forgotten."""
    torch.manual_seed(seed)
    model = BUILDERS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def random_requests(count: int, seed: int = 0, longest: int = 60, **settings: object) -> list[Request]:
    """Requests with random prefixes of mixed lengths; every third is a prefix of the one before."""
    generator = torch.Generator().manual_seed(seed)
    requests: list[Request] = []
    for number in range(count):
        length = int(torch.randint(1, longest, (1,), generator=generator))
        prefix = tuple(torch.randint(0, VOCABULARY, (length,), generator=generator).tolist())
        if number % 3 == 2:
            previous = requests[-1].prefix
            prefix = previous[: 1 + length % len(previous)]
        requests.append(Request(prefix, seed=number, **settings))  # ty: ignore[invalid-argument-type]
    return requests


def hf_logprobs(model: nn.Module, sequences: list[tuple[int, ...]], temperature: float = 1.0) -> torch.Tensor:
    """log_softmax of Hugging Face's logits [N, longest, V] of right-padded sequences, float32."""
    longest = max(len(sequence) for sequence in sequences)
    ids = torch.zeros(len(sequences), longest, dtype=torch.int64)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
    with torch.no_grad():
        logits = torch.cat([model(part).logits.float() for part in ids.split(128)])
    return torch.log_softmax(logits / temperature, dim=-1)
