from __future__ import annotations

import pytest
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from algorithms.models import multiplied_parameters

SIZES = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2}


@pytest.mark.parametrize("tied", [True, False])
def test_tables_that_are_only_looked_up_in_are_not_multiplied_with(tied: bool) -> None:
    llama = LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=2, tie_word_embeddings=tied))
    layer = 4 * 8 * 8 + 3 * 8 * 12 + 2 * 8  # attention, feed-forward, two norms
    assert multiplied_parameters(llama) == 2 * layer + 8 + 11 * 8


def test_neither_are_learned_positions() -> None:
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=11, n_embd=8, n_layer=1, n_head=2, n_positions=32))
    assert multiplied_parameters(gpt2) == sum(p.numel() for p in gpt2.parameters()) - 32 * 8
