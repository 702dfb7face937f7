"""The critic that a run has trained, from its newest checkpoint."""

from __future__ import annotations

import copy
from pathlib import Path

from transformers import PreTrainedModel

from algorithms.checkpoint import Checkpoints
from algorithms.models import Critic
from vineenv.errors import UsageError


def load_critic(run: Path, policy: PreTrainedModel) -> Critic | None:
    """Return the critic of a run; None if its algorithm trains none, or no checkpoint was kept.

    Args:
        run: the run folder.
        policy: any model of the run's architecture; it is not changed.

    Raises:
        UsageError: every checkpoint is damaged, or belongs to another architecture.
    """
    name, state, faults = Checkpoints(run / "checkpoints", 1).newest_good()
    if name is None and faults:
        raise UsageError(f"{run}: no checkpoint is whole ({'; '.join(faults)}).")
    weights = state.get("learner", {}).get("critic")
    if weights is None:
        return None
    critic = Critic(copy.deepcopy(policy.base_model), policy.config.get_text_config().hidden_size)
    try:
        critic.load_state_dict(weights)
    except RuntimeError as error:
        raise UsageError(f"{run}: its critic is of another architecture than this policy.") from error
    return critic.eval().requires_grad_(False)
