"""What several tests need: a tokenizer, small real models, and small environments."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from envs.arithmetic import Arithmetic
from rewards.answer import AnswerReward
from vineenv.assets.tokenizer import build_tokenizer

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()


@pytest.fixture
def sums(tokenizer: PreTrainedTokenizerFast) -> Arithmetic:
    """Short sums: three or four numbers."""
    return Arithmetic(
        tokenizer, AnswerReward(style="gsm8k"), min_steps=3, max_steps=4, max_new_tokens=40, context=96
    )


def make_llama(vocab_size: int, *, zero: bool = False, seed: int = 0) -> LlamaForCausalLM:
    """A small Llama with random weights; with `zero` its next token is uniform over the vocabulary."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        if zero:
            model.lm_head.weight.zero_()
        else:
            model.lm_head.weight.mul_(8)  # spread the probabilities, or every test is about noise
    return model


@pytest.fixture
def llama(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    return make_llama(len(tokenizer))
