"""Random numbers and filters of the sampler."""

from __future__ import annotations

import pytest
import torch
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from vineenv.engines.sampling import SamplingParams, filter_probs, row_key, sample, uniforms

CPU = torch.device("cpu")


def _params(rows: int, **settings: float) -> SamplingParams:
    one = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, **settings}
    return SamplingParams.of(
        [(one["temperature"], one["top_p"], int(one["top_k"]), one["min_p"])] * rows, CPU
    )


def test_uniforms_are_uniform_and_uncorrelated() -> None:
    """Of 2^18 numbers: mean, variance, and correlation between neighbours within 5 standard errors."""
    keys = torch.tensor([row_key(seed, index) for seed in range(64) for index in range(16)])
    u = uniforms(keys, 0, 256)
    assert float(u.min()) >= 0 and float(u.max()) < 1
    error = 1 / 512
    assert abs(float(u.mean()) - 0.5) < 5 * error * 12**-0.5
    centred = (u - 0.5) * 12**0.5
    assert abs(float((centred**2).mean()) - 1) < 5 * error * 0.8**0.5
    for other in (centred.roll(1, 0), centred.roll(1, 1), centred.roll(16, 0)):
        assert abs(float((centred * other).mean())) < 5 * error


def test_a_uniform_depends_on_its_row_and_step_alone() -> None:
    keys = torch.tensor([row_key(5, 0), row_key(5, 1), row_key(-6, 0)])
    block = uniforms(keys, 3, 10)
    assert torch.equal(block[1:2, 4:5], uniforms(keys[1:2], 7))
    assert block.unique().numel() == 30


def test_splitmix_reference_value() -> None:
    """First output of splitmix64 from state 0 is 0xE220A8397B1DCDAF."""
    assert float(uniforms(torch.tensor([0]), 0)) == (0xE220A8397B1DCDAF >> 11) / 2**53


@pytest.mark.parametrize(
    ("settings", "warpers"),
    [
        ({"top_k": 5}, [TopKLogitsWarper(5)]),
        ({"top_p": 0.7}, [TopPLogitsWarper(0.7)]),
        ({"min_p": 0.1}, [MinPLogitsWarper(0.1)]),
        ({"top_k": 9, "top_p": 0.8}, [TopKLogitsWarper(9), TopPLogitsWarper(0.8)]),
        (
            {"top_k": 12, "top_p": 0.9, "min_p": 0.2},
            [TopKLogitsWarper(12), TopPLogitsWarper(0.9), MinPLogitsWarper(0.2)],
        ),
    ],
)
def test_filters_keep_the_tokens_that_transformers_keeps(settings: dict, warpers: list) -> None:
    logits = torch.randn(200, 40, generator=torch.Generator().manual_seed(0)) * 2
    kept = filter_probs(logits.softmax(-1), _params(200, **settings)) > 0
    expected = logits
    for warper in warpers:
        expected = warper(None, expected)
    assert torch.equal(kept, expected.isfinite())


def test_inverse_cumulative_distribution_at_its_edges() -> None:
    probs = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]]).repeat(6, 1)
    u = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-53], dtype=torch.float64)
    tokens, logprobs = sample(probs.log(), u, _params(6))
    assert tokens.tolist() == [1, 1, 3, 3, 4, 4]
    assert logprobs.exp().tolist() == pytest.approx([0.25, 0.25, 0.5, 0.5, 0.25, 0.25])


def test_greedy_and_sampled_rows_mix() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]] * 3)
    params = SamplingParams.of([(0.0, 1.0, 0, 0.0), (1.0, 1.0, 0, 0.0), (2.0, 1.0, 0, 0.0)], CPU)
    tokens, logprobs = sample(logits, torch.zeros(3, dtype=torch.float64), params)
    assert tokens.tolist() == [1, 0, 0]
    expected = [
        logits[0].log_softmax(-1)[1],
        logits[0].log_softmax(-1)[0],
        (logits[0] / 2).log_softmax(-1)[0],
    ]
    assert logprobs.tolist() == pytest.approx([float(value) for value in expected])
