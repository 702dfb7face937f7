"""The values that environments, engines, rewards and algorithms exchange.

Symbols used in shapes throughout the project:

    B   rows (trajectories) of a batch        P   prompts of an iteration
    T   token positions of a padded row       G   responses a prompt (the group)
    V   vocabulary                            S   states of a trajectory that get vines
    K   continuations (vines) a state
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length"]
RewardStatus = Literal["correct", "wrong", "no_answer", "unparsed", "timeout", "gold_error", "error"]


@dataclass(frozen=True)
class Problem:
    """One question with its reference answer.

    Attributes:
        id: unique within its environment and split; groups are keyed by it.
        prompt: the question as the model is shown it, template included.
        answer: the reference answer, as text.
        solution: a worked solution that ends in the answer, where one is known.
        meta: whatever else the environment keeps about the problem.
    """

    id: str
    prompt: str
    answer: str
    solution: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Reward:
    """What a reward function says of one response.

    Attributes:
        value: the number that is learned from.
        status: how it came about; an error is a status of its own, never a quiet zero.
        extracted: the answer found in the response, or None.
    """

    value: float
    status: RewardStatus
    extracted: str | None = None


@dataclass(frozen=True)
class Request:
    """One call for `n` continuations of a token prefix.

    Attributes:
        prefix: token ids, at least one.
        n: how many independent continuations.
        max_new_tokens: budget of each.
        temperature: 0 is greedy.
        top_p: nucleus; 1 keeps every token.
        stop_ids: a continuation ends with (and includes) the first of these.
        stop: a continuation ends with the token that completes the first of these strings.
        top_k: only this many likeliest tokens; 0 keeps every token.
        min_p: only tokens at least this share of the likeliest one's probability.
        seed: with the index of the continuation it fixes the random numbers used.
    """

    prefix: tuple[int, ...]
    n: int = 1
    max_new_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    stop_ids: tuple[int, ...] = ()
    seed: int = 0
    top_k: int = 0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Completion:
    """One continuation.

    Attributes:
        ids: the new token ids, the stop id included.
        logprobs: float32 log-probability of each at the sampling temperature, before top-p.
        finish_reason: "stop" when a stop id was drawn, "length" when the budget ran out.
        cached_tokens: how many prefix tokens came from a cache instead of being computed.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    cached_tokens: int = 0


@dataclass(frozen=True)
class State:
    """A point in an episode: the token prefix, and what is left to spend.

    Attributes:
        problem: what is being answered.
        tokens: prompt and response so far.
        prompt_length: how many of `tokens` are the prompt.
        budget: policy tokens that may still be written.
        foreign: half-open spans of `tokens` that the environment appended after the prompt;
            they are never trained on and never given credit.
        ended: the episode is over; no action is allowed.
    """

    problem: Problem
    tokens: tuple[int, ...]
    prompt_length: int
    budget: int
    foreign: tuple[tuple[int, int], ...] = ()
    ended: bool = False

    @property
    def response(self) -> tuple[int, ...]:
        """The tokens after the prompt."""
        return self.tokens[self.prompt_length :]

    @property
    def written(self) -> tuple[int, ...]:
        """The tokens of the response that the policy wrote."""
        out, start = [], self.prompt_length
        for left, right in (*self.foreign, (len(self.tokens), len(self.tokens))):
            out.extend(self.tokens[start:left])
            start = right
        return tuple(out)


@dataclass(frozen=True)
class Trajectory:
    """One finished episode.

    Attributes:
        state: the last state.
        logprobs: of every response token at the sampling temperature; 0 on foreign tokens.
        reward: of the whole response.
        terminated: the policy ended or the task was decided.
        truncated: the token budget ran out.
    """

    state: State
    logprobs: tuple[float, ...]
    reward: Reward
    terminated: bool
    truncated: bool
