"""What Gymnasium's names stand for: the shipped configurations, with the shipped tokenizer."""

from __future__ import annotations

import importlib
from importlib.resources import files
from typing import Any

from omegaconf import OmegaConf

from vineenv.assets.tokenizer import build_tokenizer
from vineenv.env import ReasoningEnv
from vineenv.errors import UsageError


def make(env_config: str, reward_config: str, **settings: Any) -> ReasoningEnv:
    """Build the environment of a file in `configs/env` with the reward of one in `configs/reward`.

    Args:
        env_config: name of the file.
        reward_config: name of the file.
        settings: override the file's keys; `tokenizer` and `reward` the shipped parts.

    Raises:
        UsageError: a key without a value, as the path of a data set.
    """
    tokenizer = settings.pop("tokenizer", None) or build_tokenizer()
    reward = settings.pop("reward", None)
    if reward is None:
        target, keys = _read("reward", reward_config, {})
        reward = target(**keys) if isinstance(target, type) else target
    target, keys = _read("env", env_config, settings)
    return target(tokenizer, reward, **keys)


def _read(group: str, name: str, settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    config = OmegaConf.create(files("configs").joinpath(group, f"{name}.yaml").read_text())
    if missing := sorted(OmegaConf.missing_keys(config) - set(settings)):
        raise UsageError(
            f"This environment needs {', '.join(missing)}: gymnasium.make(..., {missing[0]}=...)."
        )
    values = OmegaConf.to_container(config)
    assert isinstance(values, dict)
    module, _, attribute = str(values.pop("target")).rpartition(".")
    return getattr(importlib.import_module(module), attribute), {**values, **settings}  # ty: ignore
