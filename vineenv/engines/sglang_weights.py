"""New weights for a server, and the proof that it serves them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vineenv.engines.checks import Limits
from vineenv.engines.sglang_requests import cached_tokens, completion, payload, weight_tags
from vineenv.engines.sglang_servers import Server
from vineenv.errors import RunStoppedError
from vineenv.types import Request

_BUCKET_BYTES = 256 * 1024**2
_DRAIN_S = 60.0
_PROBE_PROMPT, _PROBE_NEW = 16, 8
_TOLERANCE = {torch.float32: 1e-3}
_COARSE_TOLERANCE = 0.1  # nats; half precision and its kernels differ by some 1e-2
_TEMPERATURES = (0.5, 2.0)


def tolerance_for(model: nn.Module) -> float:
    """Largest difference of a log-probability, in nats, that rounding explains at the model's precision."""
    return _TOLERANCE.get(next(model.parameters()).dtype, _COARSE_TOLERANCE)


def limits_of(model: nn.Module) -> Limits:
    """What the model can be asked for, by its configuration."""
    config: Any = model.config
    text = config.get_text_config()
    return Limits(int(text.max_position_embeddings), int(text.vocab_size))


async def push(
    server: Server, model: nn.Module, tag: str, facts: Mapping[str, Any], resume: Sequence[str] = ()
) -> None:
    """Give a server `model`'s weights under the name `tag`, and drop what the old ones left in its cache.

    SGLang answers a call that did not work with a flag, goes on with the old weights and raises nothing,
    so every flag is looked at. `resume` names the memory that was released ("weights", "kv_cache").

    Raises:
        RunStoppedError: a flag was false.
        LostServerError: the server is away.
    """
    ranks = int(facts.get("tp_size") or 1)
    if "weights" in resume:
        await must(server, "resume_memory_occupation", {"tags": ["weights"]})
    else:
        # Waits for requests that were given up and have not noticed.
        await must(server, "flush_cache", {"timeout_s": _DRAIN_S})
    await must(server, "begin_weight_update", {})
    buckets = list(_buckets(model))
    for number, bucket in enumerate(buckets, start=1):
        last = number == len(buckets)
        body = {"serialized_named_tensors": server.pack(bucket, ranks), "flush_cache": last}
        await must(server, "update_weights_from_tensor", {**body, "weight_version": tag} if last else body)
    await must(server, "end_weight_update", {})
    if "kv_cache" in resume:
        await must(server, "resume_memory_occupation", {"tags": ["kv_cache"]})
        await must(server, "flush_cache", {"timeout_s": _DRAIN_S})


async def must(server: Server, call: str, body: Mapping[str, Any]) -> None:
    """Make a control call that has to work."""
    worked, message = await server.call(call, body)
    if not worked:
        raise RunStoppedError(
            f"{server.name}: SGLang did not do {call}: {message or 'no reason given'}. "
            "It would go on with old weights or an old cache, so the run stops."
        )


def _buckets(model: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """The weights in pieces of bounded size; tied ones once, as SGLang ties them itself."""
    bucket: list[tuple[str, Tensor]] = []
    size = 0
    for name, parameter in model.named_parameters():
        taken = parameter.numel() * parameter.element_size()
        if bucket and size + taken > _BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
        bucket.append((name, parameter.detach()))
        size += taken
    yield bucket


async def prove(server: Server, model: nn.Module, tag: str, tolerance: float) -> None:
    """Check on a fixed prompt that a server's log-probabilities are the model's and nothing is cached.

    Raises:
        RunStoppedError: saying how far they are apart.
    """
    reply, gap, _ = await _probe(server, model, 1.0)
    tags = weight_tags(reply)
    if tags != {tag}:
        raise RunStoppedError(f"{server.name}: serves the weights {sorted(tags)}, not those of {tag!r}.")
    if cached_tokens(reply):
        raise RunStoppedError(
            f"{server.name}: after new weights {cached_tokens(reply)} tokens of the probe prompt came "
            "from the old cache."
        )
    if not gap <= tolerance:
        raise RunStoppedError(
            f"{server.name}: after new weights ({tag}) a probe's log-probabilities differ from the "
            f"trainer's by {gap:.3g} nats, more than engine.tolerance={tolerance:g}. "
            "The engine does not serve the trainer's weights, or serves them in another precision."
        )


async def check_temperature(server: Server, model: nn.Module, tolerance: float) -> None:
    """Check by two requests that log-probabilities are reported at the sampling temperature.

    Raises:
        RunStoppedError: saying which convention the server follows, where it can be told.
    """
    for temperature in _TEMPERATURES:
        _, gap, without = await _probe(server, model, temperature)
        if not gap <= tolerance:
            guess = (
                "They ignore the temperature: is SGLANG_RETURN_ORIGINAL_LOGPROB set?"
                if without <= tolerance
                else "They follow neither convention that is known."
            )
            raise RunStoppedError(
                f"{server.name}: log-probabilities at temperature {temperature} differ from the trainer's "
                f"by {gap:.3g} nats. {guess}"
            )


async def _probe(server: Server, model: nn.Module, temperature: float) -> tuple[dict[str, Any], float, float]:
    """Sample from a fixed prompt; return the reply, and its gap to the model with and without temperature."""
    limits = limits_of(model)
    draw = random.Random(0)
    length = min(_PROBE_PROMPT, limits.context - _PROBE_NEW)
    prompt = tuple(draw.randrange(limits.vocabulary) for _ in range(length))
    request = Request(prompt, max_new_tokens=_PROBE_NEW, temperature=temperature)
    (reply,) = await server.generate(payload(request, limits), direct=True)
    sampled = completion(reply)
    logits = _logits(model, prompt, sampled.ids)
    told = torch.tensor(sampled.logprobs)
    gaps = []
    for scale in (temperature, 1.0):
        logp = torch.log_softmax(logits / scale, dim=-1)
        own = logp[torch.arange(len(sampled.ids)), list(sampled.ids)]
        gaps.append(float((own - told).abs().max()))
    return reply, gaps[0], gaps[1]


@torch.no_grad()
def _logits(model: nn.Module, prompt: Sequence[int], ids: Sequence[int]) -> Tensor:
    """The model's logits [N, V] before each of the N new tokens, float32, on the CPU."""
    device = next(model.parameters()).device
    row = torch.tensor([[*prompt, *ids[:-1]]], device=device)
    return model(input_ids=row, use_cache=False).logits[0, len(prompt) - 1 :].float().cpu()
