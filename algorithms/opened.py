"""A finished run, opened for a look: its policy, its environment, its critic, and what methods say of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from transformers import PreTrainedModel

from algorithms.algorithm import Algorithm
from algorithms.checkpoint import Checkpoints
from algorithms.config import RunConfig, compose
from algorithms.console import console
from algorithms.microscope import Specimens
from algorithms.models import Critic
from algorithms.parts import build_algorithm, build_env
from algorithms.targets import build
from vineenv.engines.base import Engine
from vineenv.env import ReasoningEnv
from vineenv.errors import UsageError
from vineenv.types import Problem


def check_run(folder: str) -> None:
    """Raise UsageError unless a folder is that of a finished run."""
    for name in ("config.yaml", "policy"):
        if not (Path(folder) / name).exists():
            raise UsageError(f"run={folder!r} has no {name}: it is not the folder of a finished run.")


@dataclass
class OpenedRun:
    """What a run left.

    Attributes:
        env: its environment.
        policy: its policy at the end.
        engine: serves that policy.
        critic: its own or another run's, if there is one.
        final_split: what it was measured on at its start and end.
    """

    env: ReasoningEnv
    policy: PreTrainedModel
    engine: Engine
    critic: Critic | None
    final_split: str

    def close(self) -> None:
        """Let go of what the engine holds outside this process."""
        getattr(self.engine, "close", lambda: None)()

    def problems(self, split: str, count: int) -> list[Problem]:
        """The first problems of a split that can be used."""
        asked = [self.env.problem(split, i) for i in range(min(count, self.env.size(split)))]
        return [problem for problem in asked if self.env.defect(problem) is None]

    def credits(self, specimens: Specimens, algos: Sequence[str]) -> dict[str, list[list[float]]]:
        """Step advantages of each method that can be had; the others are told."""
        if self.critic is not None:
            specimens.ask_critic(self.critic)
        known = specimens.ask_oracle()
        found: dict[str, list[list[float]]] = {}
        for name in algos:
            algorithm = load_algorithm(name)
            if algorithm.critic is not None and self.critic is None:
                console.print(f"{name} is left out: this run has no critic; critic_run= takes one that has")
            elif algorithm.needs_oracle and not known:
                console.print(f"{name} is left out: this environment does not know which steps are right")
            else:
                found[name] = specimens.credit(algorithm)
        return found


def load_algorithm(name: str) -> Algorithm:
    """The method of a name, with its settings as shipped."""
    return build_algorithm(compose("config", RunConfig, [f"algo={name}"]).algo)


def open_run(run: str, critic_run: str | None = None) -> OpenedRun:
    """Open a run, with its critic or that of another run of the same architecture.

    Raises:
        UsageError: a folder is not that of a finished run, or the critic does not fit.
    """
    for folder in filter(None, (run, critic_run)):
        check_run(folder)
    config = OmegaConf.load(Path(run) / "config.yaml")
    assert isinstance(config, DictConfig)
    config.model.path = str(Path(run) / "policy")
    source = build(config.model)
    policy = source.load()
    env = build_env(config, source.tokenizer())
    critic = load_critic(Path(critic_run or run), policy)
    return OpenedRun(env, policy, build(config.engine, policy), critic, config.eval.final_split)


def load_critic(run: Path, policy: PreTrainedModel) -> Critic | None:
    """Return the critic of a run's newest checkpoint; None if its algorithm trains none, or none was kept.

    Args:
        run: the run folder.
        policy: any model of the run's architecture; it is not changed.

    Raises:
        UsageError: every checkpoint is damaged, or belongs to another architecture.
    """
    name, state, faults = Checkpoints(run / "checkpoints", 1).newest_good()
    if name is None and faults:
        raise UsageError(f"{run}: no checkpoint is whole ({'; '.join(faults)}).")
    weights = state.get("learner", {}).get("critic")
    if weights is None:
        return None
    critic = Critic(copy.deepcopy(policy.base_model), policy.config.get_text_config().hidden_size)
    try:
        critic.load_state_dict(weights)
    except RuntimeError as error:
        raise UsageError(f"{run}: its critic is of another architecture than this policy.") from error
    return critic.eval().requires_grad_(False)
