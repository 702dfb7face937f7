"""Any causal language model of Hugging Face, through its own forward pass.

Slower than the fused decoder, and as correct: rows whose prefixes are equally long decode
together with the model's own cache; a distinct prefix is computed once for all its rows.
"""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vineenv.engines.rows import Rows
from vineenv.engines.trunks import Row, Trunk
from vineenv.engines.worker import Job


class FallbackModel:
    """A frozen copy of a Hugging Face model that the fused decoder does not know."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.module: Any = copy.deepcopy(model).to(dtype).eval().requires_grad_(False)
        # transformers 5.40 drops the older name of the argument.
        names = inspect.signature(self.module.forward).parameters
        self.cache_name = "cache" if "cache" in names else "past_key_values"
        config = self.module.config
        self.context: int = getattr(config, "max_position_embeddings", None) or 1 << 30
        self.vocabulary: int = config.vocab_size
        heads = getattr(config, "num_attention_heads", 1)
        width = (getattr(config, "head_dim", None) or config.hidden_size // heads) * (
            getattr(config, "num_key_value_heads", None) or heads
        )
        self.token_bytes = 2 * config.num_hidden_layers * width * torch.empty(0, dtype=dtype).element_size()

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return next(self.module.parameters()).device


def run_fallback(model: FallbackModel, job: Job, trunks: Sequence[Trunk], budget: int) -> int:
    """Decode every row of `trunks`; return the prefix tokens computed."""
    by_length: defaultdict[int, list[tuple[tuple[int, ...], Row]]] = defaultdict(list)
    for trunk in trunks:
        for state in trunk.states:
            by_length[state.length] += [(trunk.ids[: state.length], row) for row in state.rows]
    computed = 0
    with torch.inference_mode():
        for length, rows in sorted(by_length.items()):
            longest = length + max(row.budget for _, row in rows)
            fit = min(job.max_rows, max(1, budget // (2 * longest * model.token_bytes)))
            for start in range(0, len(rows), fit):
                computed += _decode(model, job, rows[start : start + fit])
    return computed


def _decode(model: FallbackModel, job: Job, members: Sequence[tuple[tuple[int, ...], Row]]) -> int:
    prefixes = list(dict.fromkeys(prefix for prefix, _ in members))
    number = {prefix: at for at, prefix in enumerate(prefixes)}
    spread = torch.tensor([number[prefix] for prefix, _ in members], device=model.device)
    rows = Rows([row for _, row in members], job.requests, model.device, job.decode)
    output = model.module(torch.tensor(prefixes, device=model.device), use_cache=True)
    cache = _select(output.past_key_values, spread)
    logits, alive = output.logits[:, -1][spread], spread
    history = torch.tensor(prefixes, device=model.device)
    while not job.cancel.is_set():
        finished, order = rows.retire(rows.draw(logits))
        if finished:
            job.report(finished)
        if not order:
            break
        if finished:
            index = torch.tensor(order, device=model.device)
            cache, alive = _select(cache, index), alive[index]
        output = _feed(model, rows, cache, history[alive])
        cache, logits = output.past_key_values, output.logits[:, -1]
    return len(prefixes) * len(prefixes[0])


def _select(cache: Any, index: Tensor) -> Any:
    """Return the cache of a selection of rows, or None where the model's cache cannot be cut."""
    if cache is None or not hasattr(cache, "batch_select_indices"):
        return None
    cache.batch_select_indices(index)
    return cache


def _feed(model: FallbackModel, rows: Rows, cache: Any, prefix: Tensor) -> Any:
    if cache is not None:
        return model.module(rows.tokens[:, None], **{model.cache_name: cache}, use_cache=True)
    drawn = rows.ids[rows.origin, : rows.length]
    return model.module(torch.cat((prefix, drawn), dim=1), use_cache=False)
