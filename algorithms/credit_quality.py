"""How good a method's credit is: its agreement with true step advantages, and its gradient's signal.

Shapes: S steps of all trajectories; n groups of responses to one problem each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats as scipy_stats
from torch import Tensor
from transformers import PreTrainedModel

from algorithms.microscope import Specimens
from algorithms.models import ActionLogProbs

Floats = NDArray[np.float64]


def agreement(credit: Floats, truth: Floats, error: Floats) -> dict[str, Any]:
    """Correlation of step advantages with the true ones, and how often their signs agree.

    Args:
        credit: [S] what a method gives.
        truth: [S] true advantages, measured.
        error: [S] standard error of each.

    Returns:
        `correlation` (None where nothing varies), `clear` (steps whose truth is further than two
        standard errors from 0) and `sign` (share of these whose credit has the truth's sign; 0 counts half).
    """
    clear = np.abs(truth) > 2 * error
    product = np.sign(credit[clear]) * np.sign(truth[clear])
    varies = credit.std() > 0 and truth.std() > 0
    return {
        "correlation": float(np.corrcoef(credit, truth)[0, 1]) if varies else None,
        "sign": float((product + 1).mean() / 2) if clear.any() else None,
        "clear": int(clear.sum()),
    }


def true_advantages(
    values: Sequence[Floats], returns: Sequence[float], rollouts: int
) -> tuple[Floats, Floats]:
    """V(after) - V(before) of every step and its standard error; after the last step V is the return.

    Args:
        values: by trajectory, the value before each of its steps, means of 0/1 returns.
        returns: of each trajectory.
        rollouts: how many each value is the mean of.

    Returns:
        Two arrays [S].
    """
    advantage, error = [], []
    for value, outcome in zip(values, returns, strict=True):
        variance = np.append(value * (1 - value) / max(rollouts - 1, 1), 0.0)
        advantage.append(np.diff(np.append(value, outcome)))
        error.append(np.sqrt(variance[1:] + variance[:-1]))
    return np.concatenate(advantage), np.concatenate(error)


@dataclass(frozen=True)
class Signal:
    """Signal-to-noise of a policy gradient: |E g|^2 / E|g - E g|^2, g of one group of responses.

    Attributes:
        value: unbiased in its two parts; below 0 where the noise hides all.
        low: lower end of the 95 % interval, by the jackknife over groups.
        high: upper end.
    """

    value: float
    low: float
    high: float


def signal_to_noise(
    policy: PreTrainedModel, specimens: Specimens, credit: Sequence[Sequence[float]], temperature: float
) -> Signal:
    """The signal-to-noise ratio of the gradient that a method's credit gives, one group as a sample.

    Two passes of backpropagation, so that no gradient but the sum is kept.

    Raises:
        ValueError: fewer than three groups.
    """
    total = torch.zeros(())
    for gradient in _gradients(policy, specimens, credit, temperature):
        total = total + gradient
    norms, products = [], []
    for gradient in _gradients(policy, specimens, credit, temperature):
        norms.append(float(gradient.double() @ gradient.double()))
        products.append(float(gradient.double() @ total.double()))
    return from_products(np.array(norms), np.array(products))


def from_products(norms: Floats, products: Floats) -> Signal:
    """`Signal` from |g_i|^2 and g_i . sum(g), both [n].

    Raises:
        ValueError: n is below 3.
    """
    n = len(norms)
    if n < 3:
        raise ValueError(f"{n} groups are too few for a signal-to-noise ratio; at least 3.")

    def ratio(square_of_sum: Floats | float, squares: Floats | float, count: int) -> Any:
        signal = (square_of_sum - squares) / (count * (count - 1))
        noise = np.asarray(squares / count - signal)
        return np.divide(signal, noise, out=np.zeros_like(noise), where=noise != 0)

    square_of_sum, squares = products.sum(), norms.sum()
    if not squares:  # no credit at all
        return Signal(0.0, 0.0, 0.0)
    whole = float(ratio(square_of_sum, squares, n))
    without = ratio(square_of_sum - 2 * products + norms, squares - norms, n - 1)
    spread = float(np.sqrt((n - 1) * without.var()) * scipy_stats.t.ppf(0.975, n - 1))
    return Signal(whole, whole - spread, whole + spread)


def _gradients(
    policy: PreTrainedModel, specimens: Specimens, credit: Sequence[Sequence[float]], temperature: float
) -> Iterator[Tensor]:
    """The gradient [P] of each group's mean of credit times log-probability."""
    actor = ActionLogProbs(policy, temperature)
    parameters = [p for p in policy.parameters() if p.requires_grad]
    batch = specimens.batch
    for group in torch.unique(batch["group"]).tolist():
        rows = (batch["group"] == group).nonzero().flatten()
        part = batch[rows]
        weight = torch.zeros_like(part["sample_log_prob"])
        for place, row in enumerate(rows.tolist()):
            steps = torch.tensor(credit[row])
            weight[place] = steps[part["step_id"][place].clamp(min=0)]
        logprob, _ = actor(part["input_ids"], part["action"], part["mask"])
        loss = -(weight[part["mask"]] * logprob).sum() / len(rows)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        yield torch.cat([g.flatten() for g in gradients if g is not None])
