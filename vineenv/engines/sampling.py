"""Random numbers that belong to a token, and the draw of the next token.

The uniform number behind a token is a hash of (seed, continuation, position): it does not
depend on which other rows are in the batch, on their order or on how many threads run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB
_MASK = (1 << 64) - 1


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def row_key(seed: int, index: int) -> int:
    """Return the 64-bit key (as a signed integer) of continuation `index` of a request."""
    z = ((seed & _MASK) * _MIX2 + (index + 1) * _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * _MIX1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX2) & _MASK
    return _signed(z ^ (z >> 31))


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch shifts int64 arithmetically."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def uniforms(keys: Tensor, step: int, count: int = 1) -> Tensor:
    """Return float64 numbers in [0, 1) for `count` positions from `step`, one column each.

    keys: [R] int64 of `row_key`. Returns [R, count]. The finaliser is splitmix64
    (Steele, Lea and Flood 2014).
    """
    offsets = [_signed((position + 1) * _GAMMA & _MASK) for position in range(step, step + count)]
    z = keys[:, None] + torch.tensor(offsets, dtype=torch.int64, device=keys.device)
    z = (z ^ _shift(z, 30)) * _signed(_MIX1)
    z = (z ^ _shift(z, 27)) * _signed(_MIX2)
    z = z ^ _shift(z, 31)
    return _shift(z, 11).double() * 2.0**-53


@dataclass
class SamplingParams:
    """Sampling settings of R rows, one entry a row; temperature 0 is greedy."""

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    min_p: Tensor
    any_greedy: bool
    filtered: bool
    scaled: bool

    @classmethod
    def of(cls, settings: Sequence[tuple[float, float, int, float]], device: torch.device) -> SamplingParams:
        """Build from one (temperature, top_p, top_k, min_p) a row."""
        temperature, top_p, top_k, min_p = zip(*settings)
        return cls(
            temperature=torch.tensor(temperature, dtype=torch.float32, device=device)[:, None],
            top_p=torch.tensor(top_p, dtype=torch.float64, device=device)[:, None],
            top_k=torch.tensor(top_k, dtype=torch.int64, device=device)[:, None],
            min_p=torch.tensor(min_p, dtype=torch.float64, device=device)[:, None],
            any_greedy=min(temperature) == 0,
            filtered=min(top_p) < 1 or max(top_k) > 0 or max(min_p) > 0,
            scaled=any(value not in (0.0, 1.0) for value in temperature),
        )

    def rows(self, index: Tensor | slice) -> SamplingParams:
        """Return the settings of a selection of rows."""
        return SamplingParams(
            self.temperature[index],
            self.top_p[index],
            self.top_k[index],
            self.min_p[index],
            self.any_greedy,
            self.filtered,
            self.scaled,
        )


def sample(logits: Tensor, uniform: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Draw a token a row by inverting the cumulative distribution.

    logits: [R, V]; uniform: [R] float64. Returns tokens [R] int64 and their float32
    log-probabilities [R] under log_softmax(logits / temperature), before any filter;
    a greedy row reports log_softmax(logits).
    """
    logits = logits.float()
    if params.scaled:
        logits = logits / params.temperature.masked_fill(params.temperature == 0, 1.0)
    logprobs = torch.log_softmax(logits, dim=-1)
    probs = logprobs.exp()
    if params.filtered:
        probs = filter_probs(probs, params)
    mass = probs.cumsum(dim=-1, dtype=torch.float64)
    total = mass[:, -1:]
    target = (uniform[:, None] * total).minimum(torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(mass, target, right=True).clamp_(max=logits.shape[-1] - 1)
    if params.any_greedy:
        tokens = torch.where(params.temperature == 0, logits.argmax(dim=-1, keepdim=True), tokens)
    return tokens[:, 0], logprobs.gather(1, tokens)[:, 0]


def filter_probs(probs: Tensor, params: SamplingParams) -> Tensor:
    """Return probabilities [R, V] with the tokens outside top-k, top-p and min-p set to 0.

    Applied in the order of transformers: top-k, then the nucleus of what is left, then
    min-p; each renormalises, which does not change min-p (a ratio to the largest).
    """
    ordered, order = probs.double().sort(dim=-1, descending=True, stable=True)
    vocabulary = probs.shape[-1]
    top_k = params.top_k.masked_fill(params.top_k <= 0, vocabulary)
    rank = torch.arange(vocabulary, device=probs.device)
    keep = rank < top_k
    ordered = ordered * keep
    ordered = ordered / ordered.sum(dim=-1, keepdim=True)
    before = ordered.cumsum(dim=-1) - ordered
    keep &= (before < params.top_p) | (params.top_p >= 1)
    keep &= ordered >= params.min_p * ordered[:, :1]
    keep[:, 0] = True
    return probs * torch.zeros_like(keep).scatter_(1, order, keep)
