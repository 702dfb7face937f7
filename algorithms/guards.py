"""What keeps a run from going on in vain: bad updates are skipped, bad signs are told."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tensordict import TensorDict
from torch import nn

from vineenv.errors import RunStoppedError, UsageError

_REMIND = 10  # a warning that stays true is repeated every so many iterations
_FIRST = dict.fromkeys(("collapse", "credit", "equal"), 3)  # what small batches do by chance must last


@dataclasses.dataclass(kw_only=True)
class GuardConfig:
    """When a run warns, skips or stops; 0 turns a limit off.

    `skipped` bad updates in a row stop the run, as do `patience` iterations in a row that move the policy
    by more than `approx_kl` nats a token or a probability ratio further than `ratio_error` from 1. A mean
    reward below `collapse` times the best so far warns. One reward may take `reward_seconds`.
    """

    skipped: int
    approx_kl: float
    ratio_error: float
    patience: int
    collapse: float
    reward_seconds: float

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not 0 <= value < math.inf:
                raise UsageError(f"guards.{name}={value} must be a number of at least 0 (0: off).")


class UpdateGuard:
    """Refuses updates whose loss or gradient is not finite.

    Each is written to `folder` with all that it takes to see it again: the minibatch and the
    loss and gradient of every part; the weights are written once.

    Args:
        limit: refusals in a row that end the run; 0 never does.
        folder: where they are written; None writes nothing.
        model: whose weights gave them.
    """

    def __init__(self, limit: int, folder: Path | None, model: nn.Module) -> None:
        self.limit, self.folder, self.model = limit, folder, model
        self.iteration = self.in_row = self.total = 0

    def accepts(
        self, minibatch: TensorDict, losses: Mapping[str, float], modules: Iterable[nn.Module]
    ) -> bool:
        """Whether losses and gradients are finite; if not, the gradients are dropped.

        Raises:
            RunStoppedError: too many in a row were not.
        """
        named = [
            (n, p.grad) for module in modules for n, p in module.named_parameters() if p.grad is not None
        ]
        norm = float(nn.utils.get_total_norm([grad for _, grad in named]))
        if math.isfinite(norm) and all(map(math.isfinite, losses.values())):
            self.in_row = 0
            return True
        bad = [name for name, grad in named if not bool(torch.isfinite(grad).all())]
        for module in modules:
            module.zero_grad()
        self.in_row += 1
        self.total += 1
        where = self._write(minibatch, losses, bad)
        if self.limit and self.in_row >= self.limit:
            raise RunStoppedError(
                f"{self.in_row} updates in a row had a loss or gradient that is not finite "
                f"(first parameters: {', '.join(bad[:3]) or 'none; the loss'}).{where} "
                "A smaller algo.lr or algo.max_grad_norm, or model.dtype=float32, may help."
            )
        return False

    def _write(self, minibatch: TensorDict, losses: Mapping[str, float], bad: list[str]) -> str:
        if self.folder is None or self.total > max(self.limit, 1):
            return ""
        target = self.folder / f"iteration_{self.iteration:04d}_{self.total:02d}"
        target.mkdir(parents=True, exist_ok=True)
        tensors = {str(k): v.contiguous() for k, v in minibatch.items()}
        save_file(tensors, target / "minibatch.safetensors")
        if self.total == 1:
            save_file(
                {k: v.clone() for k, v in self.model.state_dict().items()}, target / "policy.safetensors"
            )
        facts = {"losses": {k: repr(v) for k, v in losses.items()}, "parameters": bad}
        (target / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        return f" They are in {self.folder}."


class Watch:
    """Reads an iteration's metrics for signs that the training has gone wrong."""

    def __init__(self, config: GuardConfig) -> None:
        self.config = config
        self.best_reward = 0.0
        self.rows: dict[str, int] = {}

    def warnings(self, metrics: Mapping[str, float]) -> list[str]:
        """What a person should know now.

        Raises:
            RunStoppedError: the policy has moved too far for `patience` iterations in a row.
        """
        said = [text for name, text in self._signs(metrics).items() if self._due(name)]
        reward = metrics.get("reward", 0.0)
        self.best_reward = max(self.best_reward, reward)
        return said

    def _signs(self, metrics: Mapping[str, float]) -> dict[str, str]:
        config, found = self.config, {}
        for key in ("approx_kl", "ratio_error"):
            limit, value = getattr(config, key), metrics.get(key, 0.0)
            if limit and value > limit:
                found[key] = f"the policy moved far in one iteration: {key} {value:.3g} is above {limit:g}"
        floor = config.collapse * self.best_reward
        if metrics.get("reward", 0.0) < floor:
            found["collapse"] = (
                f"the mean reward fell to {metrics['reward']:.3g}; it has been {self.best_reward:.3g}"
            )
        if metrics.get("advantage_nonzero", 1.0) == 0:
            found["credit"] = "nothing to learn from: every advantage of this iteration is zero"
        elif metrics.get("equal_groups", 0.0) == 1:
            found["equal"] = "in every group of responses to one problem all rewards are equal"
        if metrics.get("skipped_updates", 0.0):
            found["skipped"] = (
                f"{metrics['skipped_updates']:g} updates were skipped: loss or gradient not finite"
            )
        self.rows = {name: self.rows.get(name, 0) + 1 for name in found}
        for key in ("approx_kl", "ratio_error"):
            if config.patience and self.rows.get(key, 0) >= config.patience:
                raise RunStoppedError(
                    f"{found[key]}, for {self.rows[key]} iterations in a row. "
                    f"A smaller algo.lr or algo.clip may help; guards.{key}=0 turns this off."
                )
        return found

    def _due(self, name: str) -> bool:
        return name == "skipped" or self.rows[name] % _REMIND == _FIRST.get(name, 1)

    def state_dict(self) -> dict[str, Any]:
        """What the next warning depends on."""
        return {"best_reward": self.best_reward, "rows": dict(self.rows)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.best_reward, self.rows = state["best_reward"], dict(state["rows"])
