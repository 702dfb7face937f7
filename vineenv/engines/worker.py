"""The running batch: rows join as memory allows and leave when they are finished."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vineenv.engines import layers
from vineenv.engines.attention import OwnAttention
from vineenv.engines.cohort import Cohort, Finished
from vineenv.engines.grid import Block
from vineenv.engines.trunks import Trunk
from vineenv.engines.weights import FusedModel
from vineenv.types import Request

BLOCK_ROWS = 36
_PASS_TOKENS = 8192
_LOGITS_AT_ONCE = 1 << 23


class Worker:
    """Decodes the rows of some trunks with one thread of control.

    Trunks are passed over in groups that take at most a quarter of the budget. The group's blocks
    wait in order of remaining budget, so that rows decoded together have prefixes and budgets of
    similar length; each admission copies its prefixes out, and the group's pass is dropped
    once its last block is admitted.
    """

    def __init__(self, model: FusedModel, requests: Sequence[Request], budget: int, max_rows: int) -> None:
        self.model = model
        self.requests = requests
        self.budget = budget
        self.max_rows = max_rows
        self.cohorts: list[Cohort] = []
        self.waiting: deque[Block] = deque()
        self.held = 0
        self.own_attention = OwnAttention()

    def run(self, trunks: Sequence[Trunk], report: Callable[[list[Finished]], None]) -> None:
        """Decode every row of `trunks`, handing finished rows to `report` as they come."""
        todo = deque(sorted(trunks, key=lambda trunk: len(trunk.ids)))
        with torch.inference_mode():
            while todo or self.waiting or self.cohorts:
                if not self.waiting and todo:
                    self._pass(todo)
                self._admit(report)
                if self.cohorts:
                    self._step(report)

    def _free(self) -> int:
        return self.budget - self.held - sum(cohort.bytes for cohort in self.cohorts)

    def _pass(self, todo: deque[Trunk]) -> None:
        """Run the causal pass over the next group of trunks and queue its blocks."""
        self.held = 0
        unit = self.model.token_bytes
        limit = max(self.budget // 4, unit * len(todo[0].ids))
        if self._free() < min(limit, unit * sum(len(trunk.ids) for trunk in todo)):
            return
        group: list[Trunk] = []
        while todo and self.held + unit * len(todo[0].ids) <= limit:
            group.append(todo.popleft())
            self.held += unit * len(group[-1].ids)
        start, blocks = 0, []
        while start < len(group):
            end = start + 1
            while end < len(group) and (end + 1 - start) * len(group[end].ids) <= _PASS_TOKENS:
                end += 1
            blocks += self._blocks(group[start:end])
            start = end
        self.waiting.extend(sorted(blocks, key=lambda block: (-block.budget, block.length)))

    def _blocks(self, trunks: Sequence[Trunk]) -> list[Block]:
        model, width = self.model, len(trunks[-1].ids)
        shape = (len(model.layers), 2, len(trunks), model.kv_heads, width, model.head_dim)
        cache = torch.empty(shape, dtype=model.dtype, device=model.device)
        hidden = layers.causal_pass(model, [trunk.ids for trunk in trunks], width, cache)
        blocks = []
        for at, trunk in enumerate(trunks):
            states = sorted(trunk.states, key=lambda state: state.length)
            rows = [(state.length, row) for state in states for row in state.rows]
            size = -(-len(rows) // -(-len(rows) // BLOCK_ROWS))
            for first in range(0, len(rows), size):
                starts, part = (list(column) for column in zip(*rows[first : first + size]))
                last = torch.tensor(starts, device=model.device) - 1
                blocks.append(Block(part, starts, cache, at, hidden[at, last]))
        return blocks

    def _admit(self, report: Callable[[list[Finished]], None]) -> None:
        """Start waiting blocks together once a third of the rows is free, as far as memory goes."""
        active = sum(cohort.rows for cohort in self.cohorts)
        if not self.waiting or (self.cohorts and (self.max_rows - active) * 3 < self.max_rows):
            return
        blocks = self._take(self.max_rows - active, self._free() // self.model.token_bytes)
        if not blocks:
            return
        cohort = Cohort(self.model, blocks, self.requests, self.own_attention)
        if not self.waiting:
            self.held = 0
        self.cohorts.append(cohort)
        hidden, cohort.hidden = cohort.hidden, cohort.hidden[:0]
        self._draw(hidden, [cohort], report)

    def _take(self, rows: int, tokens: int) -> list[Block]:
        """Take blocks from the queue: at most `rows` rows and `tokens` cached positions, padding included."""
        taken: list[Block] = []
        count = longest = budget = 0
        while self.waiting:
            block = self.waiting[0]
            longest = max(longest, block.length)
            budget = max(budget, block.budget)
            fit = min(rows - count, (tokens - longest * (len(taken) + 1)) // budget - count)
            if fit < len(block.rows):
                if not taken and not self.cohorts and fit > 0:
                    taken.append(block.split(fit))
                break
            taken.append(self.waiting.popleft())
            count += len(block.rows)
        return taken

    def _step(self, report: Callable[[list[Finished]], None]) -> None:
        """Feed every live row its last token and draw the next."""
        model, cohorts = self.model, self.cohorts
        tokens = torch.cat([cohort.tokens for cohort in cohorts])
        positions = torch.cat([cohort.positions() for cohort in cohorts])
        x = layers.embed(model, tokens, positions)
        rope = None if model.rope is None else model.rope[positions]
        sizes = [cohort.rows for cohort in cohorts]
        for number, layer in enumerate(model.layers):
            parts = [part.split(sizes) for part in layers.project(model, layer, x, rope)]
            attended = [cohort.attend(number, *qkv) for cohort, *qkv in zip(cohorts, *parts)]
            layers.mix(model, layer, x, torch.cat(attended).flatten(1))
        self._draw(x, cohorts, report)
        self.cohorts = [cohort for cohort in self.cohorts if cohort.rows]

    def _draw(
        self, hidden: Tensor, cohorts: Sequence[Cohort], report: Callable[[list[Finished]], None]
    ) -> None:
        logits = layers.logits(self.model, hidden)
        finished: list[Finished] = []
        for cohort, rows in zip(cohorts, logits.split([cohort.rows for cohort in cohorts])):
            finished += cohort.retire(cohort.draw(rows))
        self.cohorts = [cohort for cohort in self.cohorts if cohort.rows]
        if finished:
            report(finished)
