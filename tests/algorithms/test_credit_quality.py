"""Agreement with true advantages, and the signal of gradients, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from algorithms.credit_quality import (
    Signal,
    _gradients,
    agreement,
    from_products,
    signal_to_noise,
    true_advantages,
)
from algorithms.diagnose import critic_values
from algorithms.microscope import Specimens
from algorithms.models import Critic
from envs.arithmetic import Arithmetic
from vineenv.engines.native import NativeEngine
from vineenv.rollout import Sampling


def test_agreement_of_the_truth_its_opposite_and_nothing() -> None:
    truth = np.array([0.5, -0.2, 0.01, 0.0, -0.6])
    error = np.full(5, 0.05)
    assert agreement(truth, truth, error) == {"correlation": pytest.approx(1), "sign": 1.0, "clear": 3}
    assert agreement(-truth, truth, error) == {"correlation": pytest.approx(-1), "sign": 0.0, "clear": 3}
    assert agreement(0 * truth, truth, error) == {"correlation": None, "sign": 0.5, "clear": 3}
    assert agreement(truth, truth, error + 9)["sign"] is None


def test_true_advantages_add_up_and_know_their_error() -> None:
    values = [np.array([0.5, 0.75, 0.25]), np.array([1.0])]
    advantage, error = true_advantages(values, [1.0, 0.0], 17)
    assert advantage.tolist() == [0.25, -0.5, 0.75, -1.0]
    variance = np.array([0.25, 0.1875, 0.1875]) / 16
    expected = np.sqrt([variance[0] + variance[1], variance[1] + variance[2], variance[2], 0.0])
    assert error == pytest.approx(expected)


def test_the_signal_of_simulated_gradients_and_its_interval() -> None:
    """g ~ N(m, s^2 I) in d dimensions has |m|^2 / (d s^2)."""
    rng, n, d = np.random.default_rng(0), 40, 30
    mean = np.zeros(d)
    mean[0] = 2.0
    truth, found, covered = 4.0 / d, [], 0
    for _ in range(600):
        g = rng.normal(size=(n, d)) + mean
        signal = from_products((g**2).sum(1), g @ g.sum(0))
        found.append(signal.value)
        covered += signal.low <= truth <= signal.high
    assert np.mean(found) == pytest.approx(truth, rel=0.02)
    assert 0.92 < covered / 600 < 0.98


def test_no_signal_is_about_zero() -> None:
    rng = np.random.default_rng(1)
    values = [from_products((g**2).sum(1), g @ g.sum(0)).value for g in rng.normal(size=(400, 20, 50))]
    assert abs(np.mean(values)) < 4 * np.std(values) / 20
    assert from_products(np.zeros(5), np.zeros(5)) == Signal(0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="2 groups are too few"):
        from_products(np.ones(2), np.ones(2))


@pytest.fixture
def specimens(sums: Arithmetic, llama: LlamaForCausalLM) -> Specimens:
    problems = [sums.problem("train", i) for i in range(4)]
    return Specimens(sums, NativeEngine(llama), problems, group=2, K=2, sampling=Sampling(1.0), seed=0)


def test_gradients_are_those_of_the_log_probabilities_of_each_response(
    specimens: Specimens, llama: LlamaForCausalLM
) -> None:
    credit = [[0.3 * b - 0.1 * i for i in range(len(v.starts))] for b, v in enumerate(specimens.values)]
    found = list(_gradients(llama, specimens, credit, 0.7))
    rows = []
    for group in range(4):
        loss = torch.zeros(())
        for b in (2 * group, 2 * group + 1):
            state, starts = specimens.trajectories[b].state, specimens.values[b].starts
            logits = llama(torch.tensor([state.tokens])).logits[0] / 0.7
            for place in range(len(state.response)):
                at = state.prompt_length + place
                step = sum(start <= place for start in starts) - 1
                loss = loss - credit[b][step] * torch.log_softmax(logits[at - 1], -1)[state.tokens[at]] / 2
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(llama.parameters()))]))
    for ours, theirs in zip(found, rows, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4 * float(theirs.abs().max()))
    stacked = torch.stack(rows).double()
    norms, products = (stacked**2).sum(1).numpy(), (stacked @ stacked.sum(0)).numpy()
    assert signal_to_noise(llama, specimens, credit, 0.7).value == pytest.approx(
        from_products(norms, products).value, rel=1e-3
    )


def test_a_critic_values_a_state_alone_as_among_others(specimens: Specimens, llama: LlamaForCausalLM) -> None:
    critic = Critic(llama.base_model, 32)
    torch.nn.init.normal_(critic.head.weight)
    states = [t.state for t in specimens.trajectories]
    alone = [float(critic(torch.tensor([state.tokens]))[0, -1].detach()) for state in states]
    assert critic_values(critic, states) == pytest.approx(alone, abs=1e-5)
