"""What every engine refuses, and says so before it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vineenv.types import Request


@dataclass(frozen=True)
class Limits:
    """What a model can be asked for.

    Attributes:
        context: positions it has.
        vocabulary: tokens it knows.
    """

    context: int
    vocabulary: int


def check_request(number: int, request: Request, limits: Limits, *, stop_strings: bool) -> None:
    """Raise ValueError naming request `number` if it cannot be served.

    `stop_strings` says whether the engine can turn ids into text.
    """
    length = len(request.prefix)
    faults = {
        "the prefix is empty; at least one token is needed": not length,
        f"the prefix has {length} tokens, which leaves no room in the model's context of {limits.context}": (
            length >= limits.context
        ),
        f"a prefix token is outside the vocabulary of {limits.vocabulary}": length
        and not 0 <= min(request.prefix) <= max(request.prefix) < limits.vocabulary,
        f"n is {request.n}; it must be at least 1": request.n < 1,
        f"max_new_tokens is {request.max_new_tokens}; it must be at least 1": request.max_new_tokens < 1,
        f"temperature is {request.temperature}; it must be 0 (greedy) or larger": not (
            0 <= request.temperature < math.inf
        ),
        f"top_p is {request.top_p}; it must be in (0, 1]": not 0 < request.top_p <= 1,
        f"top_k is {request.top_k}; it must be 0 (every token) or larger": request.top_k < 0,
        f"min_p is {request.min_p}; it must be in [0, 1]": not 0 <= request.min_p <= 1,
        "stop strings need an engine built with `decode`; SGLang's takes stop ids only": (
            bool(request.stop) and not stop_strings
        ),
    }
    for fault, present in faults.items():
        if present:
            raise ValueError(f"request {number}: {fault}")
