"""One iteration's learning: from a batch of episodes to new weights."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn
from torchrl.data import ListStorage, ReplayBuffer, SamplerWithoutReplacement
from transformers import PreTrainedModel

from algorithms.algorithm import Algorithm
from algorithms.credit import describe_credit
from algorithms.guards import UpdateGuard
from algorithms.losses import CriticLoss, token_weights
from algorithms.models import ActionLogProbs, Critic
from vineenv.ledger import Ledger
from vineenv.rows import trim

LEARNED_KEYS = ("input_ids", "action", "mask", "sample_log_prob", "advantage", "value_target", "length")
_MOST_PADDING = 0.05
OPTIONAL_KEYS = ("ref_log_prob", "state_value")


@dataclass
class Cursor:
    """How far the learning from an iteration's batch has come.

    Attributes:
        batch: the batch, completed.
        metrics: of the batch as a whole.
        order: state of the generator that the order of the minibatches is drawn from.
        seen: minibatches done, the skipped ones included.
        skipped: those that the guard refused.
        sums: over the others, of their metrics.
    """

    batch: TensorDict
    metrics: dict[str, float]
    order: Tensor
    seen: int = 0
    skipped: int = 0
    sums: dict[str, float] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """Itself as plain data and tensors."""
        return {**vars(self), "batch": dict(self.batch.items())}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Cursor:
        """What `state_dict` was taken of."""
        batch = TensorDict(state["batch"], batch_size=[len(state["batch"]["length"])])
        return cls(**{**state, "batch": batch})


class Learner:
    """Holds what is trained and trains it.

    `cursor` is where the learning stands; whoever learns clears it once an iteration is recorded.

    Args:
        policy: trained in place.
        algorithm: its settings and credit assignment.
        total_updates: horizon of the learning rate's decay.
        ledger: where tokens and seconds are booked.
    """

    def __init__(
        self, policy: PreTrainedModel, algorithm: Algorithm, total_updates: int, seed: int, ledger: Ledger
    ) -> None:
        self.policy, self.algorithm, self.ledger = policy, algorithm, ledger
        self.estimator = algorithm.estimator()
        self.actor = ActionLogProbs(policy, algorithm.temperature)
        self.policy_loss = algorithm.build_loss(self.actor)
        self.start = _frozen(policy) if algorithm.needs_reference or algorithm.restart else None
        self.reference = None
        if algorithm.needs_reference and self.start is not None:
            self.reference = ActionLogProbs(self.start, algorithm.temperature)
        self.critic_loss = _build_critic(policy, algorithm, seed)
        groups = [{"params": list(self.policy_loss.parameters()), "lr": algorithm.lr}]
        if self.critic_loss is not None:
            own = self.critic_loss.critic.own_parameters()
            groups.append({"params": own, "lr": self.critic_loss.settings.lr})
        self.optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda update: _rate(update, algorithm, total_updates)
        )
        self.generator = torch.Generator().manual_seed(seed)
        self.guard = UpdateGuard(0, None, policy)
        self.cursor: Cursor | None = None

    def state_dict(self) -> dict[str, Any]:
        """All that is trained or drawn from here but the policy, which is the caller's."""
        return {
            "critic": None if self.critic_loss is None else self.critic_loss.critic.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": {k: v for k, v in self.schedule.state_dict().items() if k != "lr_lambdas"},
            "generator": self.generator.get_state(),
            "skipped_in_row": self.guard.in_row,
            "algorithm": self.algorithm.state_dict(),
            "cursor": None if self.cursor is None else self.cursor.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken, with the policy of then."""
        if self.critic_loss is not None:
            self.critic_loss.critic.load_state_dict(state["critic"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(
            {**state["schedule"], "lr_lambdas": [None] * len(self.schedule.lr_lambdas)}
        )
        self.generator.set_state(state["generator"])
        self.guard.in_row = state["skipped_in_row"]
        self.algorithm.load_state_dict(state["algorithm"])
        self.cursor = None if state["cursor"] is None else Cursor.from_state(state["cursor"])

    def learn(self, batch: TensorDict, progress: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Estimate advantages and take the iteration's optimiser steps; return its metrics.

        `progress` is called after each; if it raises, learning from the same batch goes on from there.
        """
        if self.cursor is None or self.cursor.batch is not batch:
            self.cursor = self._begin(batch)
        units = self.algorithm.units(batch)
        if not len(units):
            return dict(self.cursor.metrics)
        with self.ledger.timed("training"):
            return {**self.cursor.metrics, **self._optimise(units, self.cursor, progress)}

    def _begin(self, batch: TensorDict) -> Cursor:
        """Complete the batch by what the loss compares with and by its advantages."""
        with self.ledger.timed("scoring"):
            gap = self._score(batch)
            self.estimator(batch)
        units = self.algorithm.units(batch)
        if len(units) and self.algorithm.restart and self.start is not None:
            self._go_back_to(self.start)
        share = int(units["length"].numel()) / len(batch)
        metrics = {**describe_credit(batch), **gap, "learned_share": share}
        return Cursor(batch, metrics, self.generator.get_state())

    @property
    def _scorers(self) -> int:
        """How many models read a batch before it is learned from."""
        return int(self.algorithm.rescore) + (self.reference is not None) + (self.critic_loss is not None)

    @torch.no_grad()
    def _score(self, batch: TensorDict) -> dict[str, float]:
        """Add what the loss compares with; return how far engine and trainer are apart, in nats."""
        sampled = batch["sample_log_prob"]
        if self.algorithm.rescore:
            batch["sample_log_prob"] = torch.zeros_like(sampled)
        if self.reference is not None:
            batch["ref_log_prob"] = torch.zeros_like(batch["sample_log_prob"])
        if self.critic_loss is not None:
            batch["state_value"] = torch.zeros_like(batch["sample_log_prob"])
        for rows, part in self._microbatches(batch):
            width = part["mask"].shape[1]
            self.ledger.add_tokens("scoring", int((part["length"] + 1).sum()) * self._scorers)
            if self.algorithm.rescore:
                batch["sample_log_prob"][rows, :width] = _on_rows(self.actor, part)
            if self.reference is not None:
                batch["ref_log_prob"][rows, :width] = _on_rows(self.reference, part)
            if self.critic_loss is not None:
                batch["state_value"][rows, :width] = self.critic_loss.critic(part["input_ids"])
        if not self.algorithm.rescore:
            return {}
        gap = (batch["sample_log_prob"] - sampled)[batch["mask"]].abs()
        return {"engine_gap": float(gap.max()), "engine_gap_mean": float(gap.mean())}

    def _optimise(self, batch: TensorDict, cursor: Cursor, progress: Callable[[], None]) -> dict[str, float]:
        keys = [*LEARNED_KEYS, *(key for key in OPTIONAL_KEYS if key in batch)]
        size = min(self.algorithm.minibatch, len(batch))
        buffer = ReplayBuffer(
            storage=ListStorage(len(batch)),
            sampler=SamplerWithoutReplacement(drop_last=False),
            batch_size=size,
            collate_fn=lambda rows: trim(torch.stack(list(rows))),
            generator=self.generator,
        )
        buffer.extend(list(batch.select(*keys).unbind(0)))
        self.generator.set_state(cursor.order)
        for number, minibatch in enumerate(part for _ in range(self.algorithm.epochs) for part in buffer):
            if number < cursor.seen:
                continue
            step = self._step(minibatch)
            tokens = int((minibatch["length"] + 1).sum())
            self.ledger.add_tokens("training", tokens * len(self._trained()))
            cursor.seen += 1
            cursor.skipped += step is None
            if step is not None:
                worst = step.pop("ratio_error")
                cursor.sums.setdefault("first_ratio_error", worst)
                cursor.sums["ratio_error"] = max(cursor.sums.get("ratio_error", 0.0), worst)
                for key, value in step.items():
                    cursor.sums[key] = cursor.sums.get(key, 0.0) + value
            progress()
        updates = max(cursor.seen - cursor.skipped, 1)
        whole = {"first_ratio_error", "ratio_error"}
        means = {key: value if key in whole else value / updates for key, value in cursor.sums.items()}
        return {**means, "skipped_updates": cursor.skipped}

    def _step(self, minibatch: TensorDict) -> dict[str, float] | None:
        """One optimiser step; returns weighted sums over the minibatch, or None if it was refused."""
        minibatch["weight"] = self.algorithm.weights(minibatch["mask"])
        minibatch["share"] = token_weights(minibatch["mask"], "token")
        warming_up = self._is_warming_up()
        sums: defaultdict[str, float] = defaultdict(float)
        for _, part in self._microbatches(minibatch):
            out = self.policy_loss(part)
            if warming_up:
                out = out.detach()
            if self.critic_loss is not None:
                out.update(self.critic_loss(part))
            total = sum(value for key, value in out.items() if str(key).startswith("loss_"))
            assert isinstance(total, Tensor)
            total.backward()
            worst = max(sums["ratio_error"], float(out.pop("ratio_error")))
            for key, value in out.items():
                sums[str(key)] += float(value.detach())
            sums["ratio_error"] = worst
        losses = {key: value for key, value in sums.items() if key.startswith("loss_")}
        if not self.guard.accepts(minibatch, losses, self._trained()):
            self.schedule.step()
            return None
        norm = nn.utils.clip_grad_norm_(self.policy_loss.parameters(), self.algorithm.max_grad_norm)
        if self.critic_loss is not None:
            own = self.critic_loss.critic.own_parameters()
            nn.utils.clip_grad_norm_(own, self.algorithm.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return {**sums, "grad_norm": float(norm)}

    def _trained(self) -> list[nn.Module]:
        return [self.policy_loss, *([] if self.critic_loss is None else [self.critic_loss])]

    def _microbatches(self, batch: TensorDict) -> Iterator[tuple[Tensor, TensorDict]]:
        """Rows (or pairs, laid out one after the other) of similar length together: little is padding."""
        lengths = batch["length"] if batch.ndim == 1 else batch["length"].amax(dim=1)
        order = torch.argsort(lengths)
        for rows in pack(order, lengths + 1, self.algorithm.microbatch, self.algorithm.microbatch_tokens):
            yield rows, trim(batch[rows].reshape(-1))

    def _is_warming_up(self) -> bool:
        if self.critic_loss is None:
            return False
        done = self.schedule.last_epoch // updates_per_iteration(self.algorithm)
        return done < self.critic_loss.settings.warmup

    @torch.no_grad()
    def _go_back_to(self, start: PreTrainedModel) -> None:
        """Give the policy the start's weights, and the optimiser no memory of what led away from them."""
        for parameter, old in zip(self.policy.parameters(), start.parameters(), strict=True):
            parameter.copy_(old)
        self.optimizer.state.clear()


def pack(order: Tensor, lengths: Tensor, most_rows: int, most_tokens: int) -> Iterator[Tensor]:
    """Cut rows into microbatches of which at most a twentieth is padding.

    Args:
        order: [B] the rows by rising length.
        lengths: [B] of each row.
        most_rows: rows a microbatch.
        most_tokens: tokens a microbatch, padding included; 0 sets no bound. A longer row is alone.
    """
    begin = total = 0
    sizes = lengths[order].tolist()
    for end, size in enumerate(sizes):
        rows = end + 1 - begin
        padding = 1 - (total + size) / (rows * size)
        full = rows > most_rows or padding > _MOST_PADDING or (most_tokens and rows * size > most_tokens)
        if full and rows > 1:
            yield order[begin:end]
            begin, total = end, 0
        total += size
    if begin < len(sizes):
        yield order[begin:]


def _on_rows(actor: ActionLogProbs, part: TensorDict) -> Tensor:
    """Log-probabilities [B, T] of the masked actions, 0 elsewhere."""
    scored = torch.zeros(part["mask"].shape)
    scored[part["mask"]] = actor(part["input_ids"], part["action"], part["mask"])[0]
    return scored


def updates_per_iteration(algorithm: Algorithm) -> int:
    """Optimiser steps of one iteration."""
    rows = algorithm.prompts * algorithm.group_size
    return algorithm.epochs * -(-rows // min(algorithm.minibatch, rows))


def _build_critic(policy: PreTrainedModel, algorithm: Algorithm, seed: int) -> CriticLoss | None:
    if algorithm.critic is None:
        return None
    torch.manual_seed(seed)
    width, shared = policy.config.get_text_config().hidden_size, algorithm.critic.shared
    body = policy.base_model if shared else copy.deepcopy(policy.base_model)
    return CriticLoss(Critic(body, width, shared=shared), algorithm.critic)


def _frozen(policy: PreTrainedModel) -> PreTrainedModel:
    return copy.deepcopy(policy).eval().requires_grad_(False)


def _rate(update: int, algorithm: Algorithm, total: int) -> float:
    warm = min(1.0, (update + 1) / algorithm.warmup) if algorithm.warmup else 1.0
    return warm * (max(0.0, 1 - update / max(total, 1)) if algorithm.lr_decay else 1.0)
