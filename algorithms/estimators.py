"""Credit assignment as pure tensor functions, each with its equation.

Shapes: B trajectories, T token positions, S segments of a trajectory (padded).
"""

from __future__ import annotations

import torch
from torch import Tensor


def step_advantages(values: Tensor, segments: Tensor, returns: Tensor) -> Tensor:
    """Advantage of each segment from the values at segment starts.

    A_k = V(s_{k+1}) - V(s_k), where the value after the last segment is the return R: the
    whole reward arrives there (VinePPO, equation 4, with gamma = 1). The advantages of a
    trajectory therefore add up to R - V(s_0).

    Args:
        values: [B, S] value of the state at the start of each segment.
        segments: [B] how many segments each trajectory has.
        returns: [B] R.

    Returns:
        [B, S], 0 after the last segment.
    """
    batch, width = values.shape
    after = torch.cat([values[:, 1:], values.new_zeros(batch, 1)], dim=1)
    index = torch.arange(width, device=values.device).expand(batch, width)
    after = torch.where(index == segments[:, None] - 1, returns[:, None].to(values), after)
    return torch.where(index < segments[:, None], after - values, torch.zeros_like(values))


def spread_to_tokens(per_segment: Tensor, step_id: Tensor) -> Tensor:
    """Give every token the number of its segment: [B, S] and [B, T] ids (-1: none) -> [B, T]."""
    spread = per_segment.gather(1, step_id.clamp(min=0))
    return torch.where(step_id >= 0, spread, torch.zeros_like(spread))


def count_segments(step_id: Tensor) -> Tensor:
    """How many segments each trajectory has: [B, T] -> [B]."""
    return step_id.max(dim=1).values + 1


def leave_one_out(returns: Tensor, groups: Tensor) -> Tensor:
    """RLOO: R_i minus the mean return of the other responses to the same problem.

    A_i = R_i - sum_{j != i} R_j / (G - 1) (Kool et al. 2019; Ahmadian et al. 2024, equation 8).

    Args:
        returns: [B].
        groups: [B] equal for responses to one problem; each group has at least two.

    Returns:
        [B].
    """
    total, count = _group_sums(returns, groups)
    return returns - (total - returns) / (count - 1)


def group_normalised(returns: Tensor, groups: Tensor, *, by_std: bool = True, eps: float = 1e-6) -> Tensor:
    """GRPO: (R_i - mean) / (std + eps) within the group (Shao et al. 2024, section 4.1.2).

    The standard deviation is that of the group itself (divisor G). Without `by_std` only the
    mean is subtracted (Dr. GRPO): that is RLOO times (G - 1) / G.

    Args:
        returns: [B].
        groups: [B] equal for responses to one problem.

    Returns:
        [B]; 0 for a group whose returns are all equal.
    """
    total, count = _group_sums(returns, groups)
    centred = returns - total / count
    if not by_std:
        return centred
    square, _ = _group_sums(centred**2, groups)
    return centred / ((square / count).sqrt() + eps)


def batch_normalised(returns: Tensor, eps: float = 1e-8) -> Tensor:
    """REINFORCE++: (R - mean) / std over the whole batch (Hu 2025, arXiv 2501.03262): [B] -> [B]."""
    return (returns - returns.mean()) / (returns.std(correction=0) + eps)


def prefix_values(tokens: Tensor, length: Tensor, groups: Tensor, returns: Tensor) -> Tensor:
    """Value of every prefix of a response: the mean return of the responses of its group that share it.

    The prefix tree of TEMPO (Tran et al. 2025, arXiv 2509.18314).

    Args:
        tokens: [B, T+1] whole rows, prompt included; responses of a group have the same prompt.
        length: [B] tokens of each row that are not padding.
        groups: [B] equal for responses to one problem.
        returns: [B].

    Returns:
        [B, T+1] value of the state after each token; past its end a row keeps its own last one.
    """
    out = torch.zeros(tokens.shape, dtype=returns.dtype)
    node = torch.unique(groups, return_inverse=True)[1]
    for position in range(tokens.shape[1]):
        ended = position >= length
        token = torch.where(ended, -1, tokens[:, position])
        node = torch.unique(torch.stack([node, token], 1), dim=0, return_inverse=True)[1]
        total, count = _group_sums(returns, node)
        out[:, position] = total / count
    return out


def tempo_advantages(values: Tensor, mask: Tensor, returns: Tensor, groups: Tensor) -> Tensor:
    """TEMPO: the group-normalised return plus the temporal difference at branches of the prefix tree.

    A_t = (R - mean + V(s_{t+1}) - V(s_t)) / (std + eps) (Tran et al. 2025). Where the tree does
    not branch the difference is 0, which leaves GRPO; the differences of a response add up to
    R - mean.

    Args:
        values: [B, T+1], see `prefix_values`.
        mask: [B, T] bool, the action is the policy's.
        returns: [B].
        groups: [B].

    Returns:
        [B, T], 0 off the mask and in groups whose returns are all equal.
    """
    total, count = _group_sums(returns, groups)
    square, _ = _group_sums((returns - total / count) ** 2, groups)
    std = (square / count).sqrt() + 1e-6
    difference = values[:, 1:] - values[:, :-1]
    advantage = ((returns - total / count)[:, None] + difference) / std[:, None]
    return torch.where(mask, advantage, torch.zeros_like(advantage))


def smooth_values(values: Tensor, segments: Tensor, weight: float) -> Tensor:
    """Average each value with its two neighbours: V'_k = (1 - a) V_k + a (V_{k-1} + V_{k+1}) / 2.

    It trades variance for bias: V'_k is off by a/2 times the second difference of the true values
    there, so a jump of size d at one step is blurred by a d / 2 on both sides of it. The first and
    the last value of a trajectory stay as they are.

    Args:
        values: [B, S].
        segments: [B].
        weight: a, from 0 (off) to 1.
    """
    index = torch.arange(values.shape[1], device=values.device).expand_as(values)
    inner = (index > 0) & (index < segments[:, None] - 1)
    before = torch.cat([values[:, :1], values[:, :-1]], 1)
    after = torch.cat([values[:, 1:], values[:, -1:]], 1)
    return torch.where(inner, (1 - weight) * values + weight * (before + after) / 2, values)


def gae(values: Tensor, mask: Tensor, returns: Tensor, lam: Tensor | float) -> Tensor:
    """Generalised advantages of the policy's tokens, with gamma = 1 (Schulman et al. 2016, equation 16).

    The reward arrives at a trajectory's last policy token. The steps are the policy's tokens
    alone: prompt, padding and environment tokens neither decay nor end anything.

    Args:
        values: [B, T] of the state before each action.
        mask: [B, T] bool, the policy's actions.
        returns: [B].
        lam: lambda, one number or [B].

    Returns:
        [B, T], 0 off the mask; plus `values` it is the lambda-return, the target of a critic.
    """
    out = torch.zeros_like(values)
    following, running = returns.to(values).clone(), torch.zeros_like(returns.to(values))
    for position in range(values.shape[1] - 1, -1, -1):
        here = mask[:, position]
        delta = following - values[:, position]
        running = torch.where(here, delta + lam * running, running)
        out[:, position] = torch.where(here, running, torch.zeros_like(running))
        following = torch.where(here, values[:, position], following)
    return out


def length_adaptive_lambda(mask: Tensor, alpha: float) -> Tensor:
    """VAPO's lambda = 1 - 1 / (alpha l) for a response of l tokens, not below 0: [B, T] -> [B].

    Yue et al. 2025 (arXiv 2504.05118), equation 8; alpha = 0.05 there.
    """
    return (1 - 1 / (alpha * mask.sum(1).clamp(min=1))).clamp(min=0.0)


def geometric_values(on_track: Tensor, steps_left: Tensor, success: Tensor | float) -> Tensor:
    """Value of a state if each step left succeeds with the same probability and one error is final.

    V = success^(steps left) while all steps so far are right, else 0.

    Args:
        on_track: [B, S] bool.
        steps_left: [B, S].
        success: probability that a step is right.

    Returns:
        [B, S] float32.
    """
    power = torch.as_tensor(success, dtype=torch.float32) ** steps_left.float()
    return torch.where(on_track, power, torch.zeros_like(power))


def step_success_rate(on_track: Tensor, segments: Tensor, returns: Tensor) -> Tensor:
    """Share of steps taken from a right prefix that were right themselves; a scalar.

    A step is right if the prefix after it is; of the last one the return decides.

    Args:
        on_track: [B, S] bool, all steps before the segment are right.
        segments: [B].
        returns: [B], 1 for a correct answer.
    """
    width = on_track.shape[1]
    index = torch.arange(width, device=on_track.device).expand_as(on_track)
    after = torch.cat([on_track[:, 1:], torch.zeros_like(on_track[:, :1])], dim=1)
    after = torch.where(index == segments[:, None] - 1, returns[:, None] > 0, after)
    taken = on_track & (index < segments[:, None])
    return (after & taken).sum() / taken.sum().clamp(min=1)


def scale_advantages(advantage: Tensor, mask: Tensor, how: str, eps: float = 1e-8) -> Tensor:
    """Bring the advantages of an iteration to a common scale, over the tokens that count.

    Args:
        advantage: [B, T].
        mask: [B, T] bool.
        how: "none"; "rms" divides by the root mean square, so zero stays zero; "whiten"
            subtracts the mean and divides by the standard deviation (Bessel-corrected), as
            the paper's code does.

    Returns:
        [B, T], 0 off the mask.
    """
    zero = torch.zeros_like(advantage)
    if how == "none":
        return torch.where(mask, advantage, zero)
    kept = advantage[mask]
    if how == "rms":
        return torch.where(mask, advantage / (kept.square().mean().sqrt() + eps), zero)
    spread = kept.std() if kept.numel() > 1 else torch.zeros(())
    return torch.where(mask, (advantage - kept.mean()) / (spread + eps), zero)


def _group_sums(returns: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of returns and size of each row's group."""
    _, index, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    total = torch.zeros(len(counts), dtype=returns.dtype).index_add_(0, index, returns)
    return total[index], counts[index].to(returns.dtype)
