"""What Gymnasium's names stand for: environments with the shipped tokenizer and reward."""

from __future__ import annotations

from typing import Any

from envs.arithmetic import Arithmetic
from rewards.answer import AnswerReward
from vineenv.assets.tokenizer import build_tokenizer


def make_math(**settings: Any) -> Arithmetic:
    """Build the generated sums; tokenizer and reward default to the shipped ones."""
    tokenizer = settings.pop("tokenizer", None) or build_tokenizer()
    reward = settings.pop("reward", None) or AnswerReward(style="gsm8k")
    return Arithmetic(tokenizer, reward, **settings)
