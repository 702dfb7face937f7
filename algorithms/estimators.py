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
