"""Run by another environment's Python: one workload through vLLM or SGLang, offline.

python engine_external.py {vllm,sglang} TASK.json REPORT.json
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any


def run_vllm(task: dict[str, Any]) -> list[float]:
    """Return tokens/s of each repeat; the first, unreported, warms up and fills no prefix cache."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    from vllm import LLM, SamplingParams  # ty: ignore[import-not-found]

    model = LLM(
        task["model"],
        dtype="float32",
        enable_prefix_caching=True,
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_num_seqs=256,
        disable_log_stats=True,
    )
    prompts = [{"prompt_token_ids": list(request["prefix"])} for request in task["requests"]]
    settings = [
        SamplingParams(
            n=request["n"],
            temperature=1.0,
            max_tokens=request["max_new_tokens"],
            stop_token_ids=list(request["stop_ids"]),
            ignore_eos=not request["stop_ids"],
            detokenize=False,
        )
        for request in task["requests"]
    ]

    def once() -> float:
        model.reset_prefix_cache()
        began = time.perf_counter()
        outputs = model.generate(prompts, settings, use_tqdm=False)
        seconds = time.perf_counter() - began
        return sum(len(sample.token_ids) for output in outputs for sample in output.outputs) / seconds

    model.generate(prompts[:4], settings[:4], use_tqdm=False)
    return [once() for _ in range(task["repeats"])]


def run_sglang(task: dict[str, Any]) -> list[float]:
    """Return tokens/s of each repeat, the radix cache flushed before each."""
    import sglang  # ty: ignore[import-not-found]
    import torch

    on_cpu = not torch.cuda.is_available()
    options: dict[str, Any] = {}
    if on_cpu:
        options = {
            "device": "cpu",
            "attention_backend": "torch_native",
            "sampling_backend": "pytorch",
            "disable_overlap_schedule": True,
            "disable_cuda_graph": True,
            "grammar_backend": "none",
            "max_total_tokens": 40000,
            "mem_fraction_static": 0.3,
        }
    engine = sglang.Engine(
        model_path=task["model"], dtype="float32", skip_tokenizer_init=True, log_level="error", **options
    )
    prompts = [list(request["prefix"]) for request in task["requests"]]
    settings = [
        {
            "n": request["n"],
            "temperature": 1.0,
            "max_new_tokens": request["max_new_tokens"],
            "stop_token_ids": list(request["stop_ids"]),
            "ignore_eos": not request["stop_ids"],
        }
        for request in task["requests"]
    ]

    def once() -> float:
        engine.flush_cache()
        began = time.perf_counter()
        outputs = engine.generate(input_ids=prompts, sampling_params=settings)
        return sum(len(output["output_ids"]) for output in outputs) / (time.perf_counter() - began)

    rates = [once() for _ in range(task["repeats"])]
    engine.shutdown()
    return rates


def main() -> None:
    """Run the task named on the command line and write its report."""
    kind, task_file, report_file = sys.argv[1:]
    task = json.loads(Path(task_file).read_text())
    rates = {"vllm": run_vllm, "sglang": run_sglang}[kind](task)
    peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    Path(report_file).write_text(json.dumps({"rates": rates, "peak_mib": peak / 1024}))


if __name__ == "__main__":
    main()
