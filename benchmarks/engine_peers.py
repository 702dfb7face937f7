"""Other engines on the same requests: Hugging Face in this process, vLLM and SGLang in their own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from benchmarks.engine_workloads import Workload

_PADDED_ROWS = 256


def _useful(new: Tensor, budgets: Tensor, stops: tuple[int, ...]) -> int:
    """Count the tokens up to each row's budget and its first stop id, that one included."""
    ended = torch.isin(new, torch.tensor(stops, dtype=new.dtype)) if stops else torch.zeros_like(new).bool()
    before = ended.long().cumsum(1) - ended.long()
    counts = (before == 0).sum(1)
    return int(torch.minimum(counts, budgets).sum())


def _generate(model: PreTrainedModel, ids: Tensor, mask: Tensor, budget: int, workload: Workload) -> Tensor:
    stop = workload.requests[0].stop_ids
    options: dict[str, Any] = {"eos_token_id": list(stop)} if stop else {"min_new_tokens": budget}
    generate: Any = model.generate
    with torch.inference_mode():
        out = generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            max_new_tokens=budget,
            pad_token_id=0,
            **options,
        )
    return out[:, ids.shape[1] :]


def hf_grouped(model: PreTrainedModel, workload: Workload) -> int:
    """Run `generate` on rows of equal prefix length together: no padding, its best case."""
    groups = defaultdict(list)
    for request in workload.requests:
        groups[len(request.prefix)] += [request] * request.n
    tokens = 0
    for rows in groups.values():
        ids = torch.tensor([request.prefix for request in rows])
        budgets = torch.tensor([request.max_new_tokens for request in rows])
        new = _generate(model, ids, torch.ones_like(ids), int(budgets.max()), workload)
        tokens += _useful(new, budgets, workload.requests[0].stop_ids)
    return tokens


def hf_padded(model: PreTrainedModel, workload: Workload) -> int:
    """Run `generate` on left-padded batches of 256 rows, as people call it."""
    rows = [request for request in workload.requests for _ in range(request.n)]
    tokens = 0
    for start in range(0, len(rows), _PADDED_ROWS):
        part = rows[start : start + _PADDED_ROWS]
        longest = max(len(request.prefix) for request in part)
        ids = torch.zeros(len(part), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(part):
            ids[row, longest - len(request.prefix) :] = torch.tensor(request.prefix)
            mask[row, longest - len(request.prefix) :] = 1
        budgets = torch.tensor([request.max_new_tokens for request in part])
        new = _generate(model, ids, mask, int(budgets.max()), workload)
        tokens += _useful(new, budgets, workload.requests[0].stop_ids)
    return tokens


def matmul_bound(model: PreTrainedModel, rows: int = 768, repeats: int = 20) -> float:
    """Tokens/s if decoding were nothing but the weights' matrix products, at the better of two layouts.

    Either torch's own threads share each product, or each thread has rows of its own.
    """
    shapes = [m.weight.shape for m in model.modules() if isinstance(m, torch.nn.Linear)]
    threads = torch.get_num_threads()

    def products(count: int) -> None:
        pairs = [(torch.randn(count, i), torch.randn(i, o)) for o, i in shapes]
        for _ in range(repeats):
            for x, matrix in pairs:
                torch.mm(x, matrix)

    def rate(workers: int) -> float:
        def work() -> None:
            torch.set_num_threads(threads // workers)
            products(rows)

        pool = [threading.Thread(target=work) for _ in range(workers)]
        began = time.perf_counter()
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        return workers * rows * repeats / (time.perf_counter() - began)

    best = max(rate(1), rate(threads), rate(1), rate(threads))
    torch.set_num_threads(threads)
    return best


def external(kind: str, python: str, folder: Path, workload: Workload, repeats: int) -> dict[str, Any]:
    """Run `workload` through vLLM or SGLang with another environment's Python; returns its report.

    kind: "vllm" or "sglang". folder: the model, in Hugging Face's format.
    """
    script = Path(__file__).with_name("engine_external.py")
    with tempfile.TemporaryDirectory() as scratch:
        task, report = Path(scratch, "task.json"), Path(scratch, "report.json")
        requests = [
            {"prefix": r.prefix, "n": r.n, "max_new_tokens": r.max_new_tokens, "stop_ids": r.stop_ids}
            for r in workload.requests
        ]
        task.write_text(json.dumps({"model": str(folder), "repeats": repeats, "requests": requests}))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([python, str(script), kind, str(task), str(report)], check=True, env=environment)
        return json.loads(report.read_text())
