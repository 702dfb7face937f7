"""Building a run's parts from its configuration, the cheap and checkable ones first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from omegaconf import DictConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from algorithms.algorithm import Algorithm
from algorithms.console import warn
from algorithms.guarded_reward import GuardedReward
from algorithms.models import ModelSource
from algorithms.supervise import SupervisedEngine
from algorithms.targets import build, resolve
from vineenv.engines.base import Engine
from vineenv.env import ReasoningEnv, RewardFunction
from vineenv.errors import UsageError
from vineenv.types import Problem

_CHECKED_PROMPTS = 256


@dataclass
class Parts:
    """What the loop runs on."""

    algorithm: Algorithm
    env: ReasoningEnv
    tokenizer: PreTrainedTokenizerBase
    policy: PreTrainedModel
    engine: Engine
    reward: GuardedReward


def use_threads(threads: int) -> None:
    """Let torch use this many threads; 0 leaves the choice to it."""
    if threads < 0:
        raise UsageError(f"threads={threads} must be at least 0.")
    if threads:
        torch.set_num_threads(threads)


def build_algorithm(node: DictConfig) -> Algorithm:
    """Build the algorithm; its settings are checked as it is built."""
    return build(node, base=Algorithm)


def build_env(
    config: DictConfig, tokenizer: PreTrainedTokenizerBase, reward: RewardFunction | None = None
) -> ReasoningEnv:
    """Build the environment with its reward (built from its node if not given) and segmenter."""
    keywords = {}
    if config.env.get("segmenter") is not None:
        keywords["segmenter"] = build(config.env.segmenter, tokenizer)
    return build(config.env, tokenizer, reward or build(config.reward), base=ReasoningEnv, **keywords)


def check_env_fits(env: ReasoningEnv, model_context: int | None) -> None:
    """Check that every split has problems, that their prompts fit, and most of their solutions.

    Raises:
        UsageError: empty data, a context larger than the model's, a prompt that leaves no room.
    """
    if model_context is not None and env.context > model_context:
        raise UsageError(f"env.context={env.context} is more than the model's {model_context} positions.")
    for split in ("train", "validation", "test"):
        size = env.size(split)
        if size < 1:
            raise UsageError(f"The {split} split of {type(env).__name__} is empty.")
        problems = [env.problem(split, index) for index in range(min(size, _CHECKED_PROMPTS))]
        for problem in problems:
            env.initial_state(problem)
        faults = [fault for problem in problems if (fault := _solution_fault(env, problem))]
        if len(faults) > len(problems) / 2:
            raise UsageError(
                f"Of {len(problems)} worked solutions of the {split} split only "
                f"{len(problems) - len(faults)} fit with env.max_new_tokens={env.max_new_tokens} and "
                f"env.context={env.context}. The first: {faults[0]}"
            )


def _solution_fault(env: ReasoningEnv, problem: Problem) -> str | None:
    try:
        env.solved(problem, problem.solution or "")
    except UsageError as error:
        return str(error)
    return None


def build_parts(config: DictConfig) -> Parts:
    """Build everything; bad input is refused before any weights are loaded."""
    algorithm = build_algorithm(config.algo)
    resolve(config.engine.target)
    source = build(config.model, base=ModelSource)
    tokenizer = source.tokenizer()
    reward = GuardedReward(build(config.reward), config.guards.reward_seconds, warn)
    env = build_env(config, tokenizer, reward)
    model_config = source.config().get_text_config()
    check_env_fits(env, getattr(model_config, "max_position_embeddings", None))
    if algorithm.needs_oracle:
        env.oracle(env.initial_state(env.problem("train", 0)))
    policy = source.load()
    engine = SupervisedEngine(lambda model: build(config.engine, model), policy, warn)
    return Parts(algorithm, env, tokenizer, policy, engine, reward)
