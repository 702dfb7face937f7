"""What is asked of SGLang and in which order: requests to payloads, replies to completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vineenv.engines.checks import Limits
from vineenv.engines.trunks import find_trunks
from vineenv.errors import RunStoppedError
from vineenv.types import Completion, FinishReason, Request


@dataclass(frozen=True)
class Branch:
    """Requests whose prefixes all begin one token sequence, in the order they are to be sent.

    Attributes:
        ids: the longest prefix; once the radix tree holds it, it holds every other one.
        requests: places of the requests, those with the longest prefix first.
        rows: continuations they ask for.
        work: most tokens that the cache may hold of them at once.
    """

    ids: tuple[int, ...]
    requests: tuple[int, ...]
    rows: int
    work: int


def plan(requests: Sequence[Request], limits: Limits) -> list[Branch]:
    """Group requests by the trunk their prefix belongs to (`vineenv.engines.trunks`).

    Trunks are in lexicographic order, so that those with a common beginning are neighbours, and within
    one the requests go from the longest prefix down: the tree is walked once.
    """
    by_prefix: dict[tuple[int, ...], list[int]] = {}
    for number, request in enumerate(requests):
        by_prefix.setdefault(tuple(request.prefix), []).append(number)
    branches = []
    for trunk in reversed(find_trunks(by_prefix)):
        lengths = sorted((state.length for state in trunk.states), reverse=True)
        order = tuple(number for length in lengths for number in by_prefix[trunk.ids[:length]])
        rows = sum(requests[number].n for number in order)
        new = sum(requests[number].n * budget(requests[number], limits) for number in order)
        branches.append(Branch(trunk.ids, order, rows, len(trunk.ids) + new))
    return branches


def budget(request: Request, limits: Limits) -> int:
    """New tokens a request may get: the end of the model's context also ends a row."""
    return min(request.max_new_tokens, limits.context - len(request.prefix))


def payload(request: Request, limits: Limits) -> dict[str, Any]:
    """What SGLang is asked for one request.

    The prefix is sent `n` times in one batch, rather than once with SGLang's own `n`, which would
    pass over the prefix again before it branches.
    """
    return {
        "input_ids": [list(request.prefix)] * request.n,
        "sampling_params": {
            "max_new_tokens": budget(request, limits),
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k or -1,
            "min_p": request.min_p,
            "stop_token_ids": list(request.stop_ids),
            # The stop ids are the request's alone, whatever the model's own configuration says.
            "ignore_eos": not request.stop_ids,
        },
        # Of the new tokens only: asking for those of the prefix would defeat the cache.
        "return_logprob": True,
    }


def warming(ids: Sequence[int]) -> dict[str, Any]:
    """The payload that puts a token sequence in the radix tree and asks for no token."""
    return {"input_ids": [list(ids)], "sampling_params": {"max_new_tokens": 0}}


def completion(reply: Mapping[str, Any]) -> Completion:
    """Read one continuation.

    Raises:
        RunStoppedError: SGLang gave up the request.
    """
    meta = reply["meta_info"]
    reason = meta["finish_reason"] or {}
    if reason.get("type") not in ("stop", "length"):
        told = reason.get("message") or reason.get("type") or "it gave no finish reason"
        raise RunStoppedError(f"SGLang gave up a request: {told}")
    ids = tuple(reply["output_ids"])
    scored = meta["output_token_logprobs"]
    if tuple(token for _, token, *_ in scored) != ids:
        raise RunStoppedError("SGLang's log-probabilities belong to other tokens than those it returned.")
    finish: FinishReason = "stop" if reason["type"] == "stop" else "length"
    return Completion(ids, tuple(float(value) for value, *_ in scored), finish, cached_tokens(reply))


def check_row(number: int, request: Request, row: Completion, limits: Limits) -> None:
    """Check that a row of request `number` ended where the request says.

    Raises:
        RunStoppedError: the server goes by a rule of its own.
    """
    asked = budget(request, limits)
    if row.finish_reason == "length" and len(row.ids) < asked:
        fault = (
            f"SGLang cut request {number} off after {len(row.ids)} of {asked} tokens: its context is shorter"
        )
    elif row.finish_reason == "stop" and row.ids[-1] not in request.stop_ids:
        fault = f"SGLang ended a row at token {row.ids[-1]}, which request {number} does not stop at"
    else:
        return
    raise RunStoppedError(f"{fault}. Start the server by `python -m vineenv.engines.sglang_server`.")


def cached_tokens(reply: Mapping[str, Any]) -> int:
    """Prefix tokens that a reply's continuation found in the cache."""
    return int(reply["meta_info"].get("cached_tokens") or 0)


def weight_tags(reply: Mapping[str, Any]) -> set[str]:
    """The tags of all weights that took part in a continuation."""
    meta = reply["meta_info"]
    spans = meta.get("weight_versions") or []
    return {str(span["version"]) for span in spans} or {str(meta.get("weight_version"))}
