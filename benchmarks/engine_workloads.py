"""The workloads on which engines are compared."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from envs.arithmetic import Arithmetic
from vineenv.engines.base import Engine
from vineenv.types import Completion, Request, Reward


@dataclass(frozen=True)
class Workload:
    """Requests with a name; `stops` is False where every row decodes its whole budget."""

    name: str
    requests: list[Request]
    stops: bool

    @property
    def rows(self) -> int:
        """Continuations asked for."""
        return sum(request.n for request in self.requests)

    @property
    def unshared_prefill(self) -> int:
        """Prefix tokens to compute if no continuation shared any."""
        return sum(len(request.prefix) * request.n for request in self.requests)


def reference_vines(
    vocabulary: int,
    k: int = 9,
    trajectories: int = 16,
    prompt: int = 100,
    response: int = 120,
    every: int = 15,
) -> Workload:
    """Vines of trajectories of random ids: a state every `every` tokens, to the full length."""
    draw = random.Random(0)
    requests = []
    for number in range(trajectories):
        ids = tuple(draw.randrange(3, vocabulary) for _ in range(prompt + response))
        requests += [
            Request(ids[: prompt + at], n=k, max_new_tokens=response - at, seed=1000 * number + at)
            for at in range(0, response, every)
        ]
    return Workload(f"vines K={k}", requests, stops=False)


def _environment(tokenizer: PreTrainedTokenizerBase, **settings: Any) -> Arithmetic:
    return Arithmetic(tokenizer, lambda response, problem: Reward(0.0, "wrong"), **settings)


def _prompts(env: Arithmetic, count: int) -> list[tuple[int, ...]]:
    return [tuple(env.encode(env.problem("validation", number).prompt)) for number in range(count)]


def real_vines(
    engine: Engine, tokenizer: PreTrainedTokenizerBase, k: int = 9, trajectories: int = 16
) -> Workload:
    """Vines of responses the shipped model gives to its own problems: a state a line, ragged."""
    env = _environment(tokenizer)
    budget, newline = 96, env.encode("\n")[0]
    prompts = _prompts(env, trajectories)
    asked = [
        Request(prompt, max_new_tokens=budget, stop_ids=env.stop_ids, seed=number)
        for number, prompt in enumerate(prompts)
    ]
    requests = []
    for number, (prompt, (response,)) in enumerate(zip(prompts, engine.generate(asked))):
        cuts = [0] + [at + 1 for at, token in enumerate(response.ids[:-1]) if token == newline]
        requests += [
            Request(
                prompt + response.ids[:cut],
                n=k,
                max_new_tokens=budget - cut,
                stop_ids=env.stop_ids,
                seed=1000 * number + cut,
            )
            for cut in cuts
        ]
    return Workload("vines of real responses", requests, stops=True)


def plain(tokenizer: PreTrainedTokenizerBase, prompts: int = 32, samples: int = 8) -> Workload:
    """Plain sampling: some samples of each of some problems of 3 to 12 steps, prompts of mixed length."""
    env = _environment(tokenizer, min_steps=3, max_steps=12)
    requests = [
        Request(prompt, n=samples, max_new_tokens=96, stop_ids=env.stop_ids, seed=number)
        for number, prompt in enumerate(_prompts(env, prompts))
    ]
    return Workload("plain sampling", requests, stops=True)


def new_tokens(completions: Sequence[Sequence[Completion]]) -> int:
    """Tokens decoded."""
    return sum(len(completion.ids) for row in completions for completion in row)
