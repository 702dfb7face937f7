"""An engine that draws from the table of an exactly solved problem."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vineenv.engines.base import EngineStats
from vineenv.exact import ExactValues
from vineenv.rollout import derive_seed
from vineenv.types import Completion, Request


class TableEngine:
    """Samples `values.policy`; for trees whose words end at the request's budget."""

    def __init__(self, values: ExactValues) -> None:
        self.values, self.stats = values, EngineStats()
        self.cumulative = np.cumsum(values.policy, axis=1)

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        return [[self._draw(request, i) for i in range(request.n)] for request in requests]

    def _draw(self, request: Request, index: int) -> Completion:
        rng = np.random.default_rng(derive_seed(request.seed, index))
        tokens, ids, logprobs = request.prefix, [], []
        for _ in range(request.max_new_tokens):
            row = self.values.place[tokens]
            token = int(np.searchsorted(self.cumulative[row], rng.random() * self.cumulative[row, -1]))
            ids.append(token)
            logprobs.append(float(np.log(self.values.policy[row, token])))
            tokens = (*tokens, token)
            if token in request.stop_ids:
                break
        reason = "stop" if ids[-1] in request.stop_ids else "length"
        return Completion(tuple(ids), tuple(logprobs), reason)
