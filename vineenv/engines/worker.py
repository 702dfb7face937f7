"""The running batch: rows join as memory allows and leave when they are finished."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event

import torch
from torch import Tensor

from vineenv.engines import layers
from vineenv.engines.attention import OwnAttention
from vineenv.engines.cohort import Cohort
from vineenv.engines.grid import Block
from vineenv.engines.rows import Decode, Finished
from vineenv.engines.trunks import Row, Trunk
from vineenv.engines.weights import FusedModel
from vineenv.types import Request

Report = Callable[[list[Finished]], None]

BLOCK_ROWS = 36
_PASS_TOKENS = 2048
_PASS_PADDING = 1.25


@dataclass
class Job:
    """What the workers of one call share. `cancel` ends them early."""

    model: FusedModel | None
    requests: Sequence[Request]
    report: Report
    max_rows: int
    decode: Decode | None
    cancel: Event


class Worker:
    """Decodes the rows of some trunks with one thread of control, within `budget` bytes.

    Trunks are passed over in groups that take at most a quarter of the budget. The group's blocks
    wait in order of remaining budget, so that rows decoded together have prefixes and budgets of
    similar length; each admission copies its prefixes out, and the group's pass is dropped
    once its last block is admitted.
    """

    def __init__(self, job: Job, budget: int) -> None:
        self.job = job
        assert job.model is not None
        self.model = job.model
        self.budget = budget
        self.cohorts: list[Cohort] = []
        self.waiting: deque[Block] = deque()
        self.held = self.reserve = 0
        self.own_attention = OwnAttention()

    def run(self, trunks: Sequence[Trunk]) -> None:
        """Decode every row of `trunks`, reporting finished rows as they come."""
        self.reserve = self.model.token_bytes * max(len(trunk.ids) + trunk.budget for trunk in trunks)
        batches = deque(_batches(sorted(trunks, key=lambda trunk: (len(trunk.ids), trunk.ids))))
        with torch.inference_mode():
            while (batches or self.waiting or self.cohorts) and not self.job.cancel.is_set():
                if not self.waiting and batches:
                    self._pass(batches)
                self._admit()
                if self.cohorts:
                    self._step()

    def _free(self) -> int:
        return self.budget - self.held - sum(cohort.bytes for cohort in self.cohorts)

    def _pass(self, batches: deque[list[Trunk]]) -> None:
        """Run the causal pass over the next group of trunks and queue its blocks."""
        self.held = 0
        unit = self.model.token_bytes
        limit = max(0, min(self.budget // 4, self.budget - self.reserve))
        if len(batches[0]) > 1 and unit * _padded(batches[0]) > limit:
            batches.extendleft([[trunk] for trunk in reversed(batches.popleft())])
        limit = max(limit, unit * _padded(batches[0]))
        if self._free() < min(limit, unit * sum(map(_padded, batches))):
            return
        blocks: list[Block] = []
        while batches and self.held + unit * _padded(batches[0]) <= limit:
            self.held += unit * _padded(batches[0])
            blocks += self._blocks(batches.popleft())
        self.waiting.extend(sorted(blocks, key=lambda block: (-block.budget, block.length)))

    def _blocks(self, trunks: Sequence[Trunk]) -> list[Block]:
        """Pass over trunks of similar length and cut their rows into blocks."""
        model, width = self.model, len(trunks[-1].ids)
        shape = (len(model.layers), 2, len(trunks), model.kv_heads, width, model.head_dim)
        cache = torch.empty(shape, dtype=model.dtype, device=model.device)
        cuts: list[tuple[int, list[int], list[Row]]] = []
        for at, trunk in enumerate(trunks):
            states = sorted(trunk.states, key=lambda state: state.length)
            rows = [(state.length, row) for state in states for row in state.rows]
            size = -(-len(rows) // -(-len(rows) // BLOCK_ROWS))
            for first in range(0, len(rows), size):
                starts, part = (list(column) for column in zip(*rows[first : first + size]))
                cuts.append((at, starts, part))
        last = [at * width + start - 1 for at, starts, _ in cuts for start in starts]
        wanted, place = torch.tensor(last, device=model.device).unique(return_inverse=True)
        hidden = layers.causal_pass(model, [trunk.ids for trunk in trunks], cache, wanted)[place]
        parts = hidden.split([len(starts) for _, starts, _ in cuts])
        return [Block(part, starts, cache, at, rows) for (at, starts, part), rows in zip(cuts, parts)]

    def _admit(self) -> None:
        """Start waiting blocks together once a third of the rows is free, as far as memory goes."""
        job, limit = self.job, self.job.max_rows
        active = sum(cohort.rows.count for cohort in self.cohorts)
        if not self.waiting or (self.cohorts and (limit - active) * 3 < limit):
            return
        blocks = self._take(limit - active, self._free() // self.model.token_bytes)
        if not blocks:
            return
        cohort = Cohort(self.model, blocks, job.requests, self.own_attention, job.decode)
        if not self.waiting:
            self.held = 0
        self.cohorts.append(cohort)
        assert cohort.hidden is not None
        self._draw(cohort.hidden, [cohort])

    def _take(self, rows: int, tokens: int) -> list[Block]:
        """Take blocks from the queue: at most `rows` rows and `tokens` cached positions, padding included."""
        taken: list[Block] = []
        count = longest = budget = 0
        while self.waiting:
            block = self.waiting[0]
            if (
                taken
                and (len(block.rows) == 1) != (len(taken[0].rows) == 1)
                and count * 4 >= self.job.max_rows
            ):
                break
            longest, budget = max(longest, block.length), max(budget, block.budget)
            fit = min(rows - count, (tokens - longest * (len(taken) + 1)) // budget - count)
            if fit < len(block.rows):
                if not taken and not self.cohorts and fit > 0:
                    taken.append(block.split(fit))
                break
            taken.append(self.waiting.popleft())
            count += len(block.rows)
        return taken

    def _step(self) -> None:
        """Feed every live row its last token and draw the next."""
        model, cohorts = self.model, self.cohorts
        tokens = _joined([cohort.rows.tokens for cohort in cohorts])
        positions = _joined([cohort.positions() for cohort in cohorts])
        x = layers.embed(model, tokens, positions)
        rope = None if model.rope is None else model.rope[positions]
        sizes = [cohort.rows.count for cohort in cohorts]
        for number, layer in enumerate(model.layers):
            parts = [part.split_with_sizes(sizes) for part in layers.project(model, layer, x, rope)]
            attended = [cohort.attend(number, *qkv) for cohort, *qkv in zip(cohorts, *parts)]
            layers.mix(model, layer, x, _joined(attended).flatten(1))
        self._draw(x, cohorts)

    def _draw(self, hidden: Tensor, cohorts: Sequence[Cohort]) -> None:
        logits = layers.logits(self.model, hidden)
        finished: list[Finished] = []
        for cohort, rows in zip(cohorts, logits.split_with_sizes([cohort.rows.count for cohort in cohorts])):
            finished += cohort.draw(rows)
        self.cohorts = [cohort for cohort in self.cohorts if cohort.rows.count]
        if finished:
            self.job.report(finished)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _padded(batch: Sequence[Trunk]) -> int:
    return len(batch) * len(batch[-1].ids)


def _batches(trunks: Sequence[Trunk]) -> Iterator[list[Trunk]]:
    """Cut trunks in order of length into batches of similar length and bounded size."""
    batch: list[Trunk] = []
    for trunk in trunks:
        width = len(trunk.ids)
        large = (len(batch) + 1) * width > _PASS_TOKENS
        if batch and (large or width > _PASS_PADDING * len(batch[0].ids) + 8):
            yield batch
            batch = []
        batch.append(trunk)
    if batch:
        yield batch
