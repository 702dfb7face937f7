"""Building a run's parts from its configuration, the cheap and checkable ones first."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import DictConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from algorithms.algorithm import Algorithm
from algorithms.models import ModelSource
from algorithms.targets import build, resolve
from vineenv.engines.base import Engine
from vineenv.env import ReasoningEnv
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


def build_algorithm(node: DictConfig) -> Algorithm:
    """Build the algorithm; its settings are checked as it is built."""
    algorithm = build(node)
    if not isinstance(algorithm, Algorithm):
        raise UsageError(f"algo.target={node.target}: not an algorithms.algorithm.Algorithm.")
    return algorithm


def build_env(config: DictConfig, tokenizer: PreTrainedTokenizerBase) -> ReasoningEnv:
    """Build the environment with its reward and segmenter."""
    keywords = {}
    if config.env.get("segmenter") is not None:
        keywords["segmenter"] = build(config.env.segmenter, tokenizer)
    env = build(config.env, tokenizer, build(config.reward), **keywords)
    if not isinstance(env, ReasoningEnv):
        raise UsageError(f"env.target={config.env.target}: not a vineenv.env.ReasoningEnv.")
    return env


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
        fit = sum(_solution_fits(env, problem) for problem in problems)
        if fit < len(problems) / 2:
            raise UsageError(
                f"Of {len(problems)} worked solutions of the {split} split only {fit} fit: "
                f"env.max_new_tokens={env.max_new_tokens} and env.context={env.context} "
                "leave too little room."
            )


def _solution_fits(env: ReasoningEnv, problem: Problem) -> bool:
    if problem.solution is None:
        return True
    start, ids = env.initial_state(problem), env.encode(problem.solution)
    if len(ids) != start.budget:
        return len(ids) < start.budget
    # No room for an end of sequence, nor need of it where the solution decides the task.
    _, _, terminated, _, _ = env.transition(start, ids)
    return terminated


def build_parts(config: DictConfig) -> Parts:
    """Build everything; bad input is refused before any weights are loaded."""
    algorithm = build_algorithm(config.algo)
    resolve(config.engine.target)
    source = build(config.model)
    assert isinstance(source, ModelSource)
    tokenizer = source.tokenizer()
    env = build_env(config, tokenizer)
    model_config = source.config().get_text_config()
    check_env_fits(env, getattr(model_config, "max_position_embeddings", None))
    if algorithm.needs_oracle:
        env.oracle(env.initial_state(env.problem("train", 0)))
    policy = source.load()
    return Parts(algorithm, env, tokenizer, policy, build(config.engine, policy))
