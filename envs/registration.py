"""`gymnasium.make("vineenv/Math-v0")`: the environments under Gymnasium's names.

Gymnasium finds `register` by this package's entry point, so an installed vineenv needs no import.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from envs.arithmetic import Arithmetic
from rewards.answer import AnswerReward
from vineenv.assets.tokenizer import build_tokenizer

NAMES = {"vineenv/Math-v0": "envs.registration:make_math"}


def register() -> None:
    """Add the environments to Gymnasium's registry; a second call changes nothing."""
    for name, entry_point in NAMES.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=entry_point)


def make_math(**settings: Any) -> Arithmetic:
    """Build the generated sums; tokenizer and reward default to the shipped ones."""
    tokenizer = settings.pop("tokenizer", None) or build_tokenizer()
    reward = settings.pop("reward", None) or AnswerReward(style="gsm8k")
    return Arithmetic(tokenizer, reward, **settings)
