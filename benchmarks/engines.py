"""Compare engines on the same vines and on plain sampling.

    python -m benchmarks.engines [--repeats 5] [--vllm-python PATH] [--sglang-python PATH]

Prints tokens/s, ratios, prefix tokens computed and peak memory; writes engines.json and
engines.png into --out; the last line is one JSON object. Every ratio is the median of the
repeats' ratios, the engines taking turns within a repeat, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks import engine_peers as peers
from benchmarks.engine_workloads import Workload, new_tokens, plain, real_vines, reference_vines
from vineenv.engines.native import NativeEngine

_SHIPPED = Path(__file__).parents[1] / "vineenv" / "assets" / "tiny"


class PeakMemory:
    """Largest growth of this process's resident memory while the block runs, in MiB."""

    def __enter__(self) -> PeakMemory:
        self._start = self._peak = self._resident()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.mib = max(0.0, (self._peak - self._start) / 2**20)

    def _watch(self) -> None:
        while not self._end.wait(0.02):
            self._peak = max(self._peak, self._resident())

    @staticmethod
    def _resident() -> int:
        pages = Path("/proc/self/statm")
        return int(pages.read_text().split()[1]) * 4096 if pages.exists() else 0


def measure(run: Callable[[], int]) -> tuple[float, float]:
    """Return tokens/s and peak memory growth in MiB of one run that returns its tokens."""
    with PeakMemory() as memory:
        began = time.perf_counter()
        tokens = run()
        seconds = time.perf_counter() - began
    return tokens / seconds, memory.mib


def take_turns(runs: dict[str, Callable[[], int]], repeats: int) -> dict[str, dict[str, Any]]:
    """Measure every engine `repeats` times, one after the other within a repeat."""
    for run in runs.values():
        run()
    found: dict[str, dict[str, Any]] = {name: {"rates": [], "peak_mib": 0.0} for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            rate, mib = measure(run)
            found[name]["rates"].append(rate)
            found[name]["peak_mib"] = max(found[name]["peak_mib"], mib)
    return found


def ratio(found: dict[str, dict[str, Any]], name: str, other: str) -> float | None:
    """Return the median over the repeats of one engine's rate over another's; None where one is missing."""
    if name not in found or other not in found:
        return None
    pairs = zip(found[name]["rates"], found[other]["rates"])
    return statistics.median(first / second for first, second in pairs)


def native_run(engine: NativeEngine, workload: Workload) -> Callable[[], int]:
    """Return a run of `workload` on the native engine."""
    return lambda: new_tokens(engine.generate(workload.requests))


def external_runs(
    options: argparse.Namespace, workload: Workload, native: Callable[[], int]
) -> dict[str, dict[str, Any]]:
    """Measure vLLM and SGLang, where an environment that has them is named, and the native engine after each.

    They start too slowly to take turns, so the native engine runs again right after them.
    """
    pythons = {"vllm": options.vllm_python, "sglang": options.sglang_python}
    found: dict[str, dict[str, Any]] = {}
    for name, python in pythons.items():
        if python:
            found[name] = peers.external(name, python, options.model, workload, options.repeats)
            found[f"native after {name}"] = take_turns({"": native}, options.repeats)[""]
    return found


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Run every workload through every engine."""
    hf: Any = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(options.model)
    engine = NativeEngine(hf)
    vocabulary = hf.config.vocab_size
    vines, many = reference_vines(vocabulary), reference_vines(vocabulary, k=81, trajectories=4)
    ragged, sampling = real_vines(engine, tokenizer), plain(tokenizer)
    results: dict[str, Any] = {}
    results["vines K=9"] = found = take_turns(
        {
            "native": native_run(engine, vines),
            "native K=81": native_run(engine, many),
            "hf grouped by length": lambda: peers.hf_grouped(hf, vines),
        },
        options.repeats,
    )
    found["hf left-padded"] = take_turns({"": lambda: peers.hf_padded(hf, vines)}, 1)[""]
    found |= external_runs(options, vines, native_run(engine, vines))
    found["matmul bound"] = {
        "rates": [peers.matmul_bound(hf) for _ in range(options.repeats)],
        "peak_mib": 0.0,
    }
    for workload in (ragged, sampling):
        results[workload.name] = take_turns(
            {
                "native": native_run(engine, workload),
                "hf grouped by length": lambda workload=workload: peers.hf_grouped(hf, workload),
                "hf left-padded": lambda workload=workload: peers.hf_padded(hf, workload),
            },
            options.repeats,
        )
    return {"results": results, "prefill": {w.name: prefill(hf, w) for w in (vines, ragged, sampling)}}


def prefill(model: Any, workload: Workload) -> dict[str, int]:
    """Prefix tokens computed by the native engine, and without sharing."""
    engine = NativeEngine(model)
    engine.generate(workload.requests)
    return {"computed": engine.stats.prefill_tokens, "unshared": workload.unshared_prefill}


def summarise(data: dict[str, Any]) -> dict[str, float | None]:
    """Return the measures of the table in docs/engine.md."""
    vines, sampling = data["results"]["vines K=9"], data["results"]["plain sampling"]
    real = data["results"]["vines of real responses"]
    spent = data["prefill"]["vines K=9"]
    summary = {
        "vine_vs_hf": ratio(vines, "native", "hf grouped by length"),
        "vine_vs_vllm": ratio(vines, "native after vllm", "vllm"),
        "decode_vs_bound": ratio(vines, "native", "matmul bound"),
        "prefill_ratio": spent["computed"] / spent["unshared"],
        "plain_vs_hf": ratio(sampling, "native", "hf left-padded"),
        "k81_vs_k9": ratio(vines, "native K=81", "native"),
        "vine_vs_sglang": ratio(vines, "native after sglang", "sglang"),
        "real_vines_vs_hf": ratio(real, "native", "hf grouped by length"),
        "plain_vs_hf_grouped": ratio(sampling, "native", "hf grouped by length"),
        "vine_tokens_per_s": statistics.median(vines["native"]["rates"]),
    }
    return {name: None if value is None else round(value, 4) for name, value in summary.items()}


def show(data: dict[str, Any]) -> None:
    """Print a table a workload."""
    for workload, found in data["results"].items():
        print(f"\n{workload}: {data['prefill'].get(workload)}")
        for name, engine in found.items():
            rate = statistics.median(engine["rates"])
            print(f"  {name:22s} {rate:10,.0f} tokens/s   peak {engine['peak_mib']:7,.0f} MiB")


def plot(data: dict[str, Any], path: Path) -> None:
    """Draw the rates of every workload as bars."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(data["results"]), figsize=(14, 4), constrained_layout=True)
    for axis, (workload, found) in zip(axes, data["results"].items()):
        names = [name for name in found if name != "matmul bound"]
        axis.barh(names, [statistics.median(found[name]["rates"]) for name in names])
        axis.set(title=workload, xlabel="tokens/s")
        axis.invert_yaxis()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--model", type=Path, default=_SHIPPED, help="folder of a Hugging Face model")
    parser.add_argument("--vllm-python", help="Python of an environment with vLLM")
    parser.add_argument("--sglang-python", help="Python of an environment with SGLang")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    before = os.getloadavg()
    data = compare(options)
    data["summary"] = summarise(data)
    data["machine"] = {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "repeats": options.repeats,
        "load_average_before_and_after": [before, os.getloadavg()],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "engines.json").write_text(json.dumps(data, indent=1) + "\n")
    plot(data, options.out / "engines.png")
    show(data)
    print(json.dumps(data["summary"]))


if __name__ == "__main__":
    main()
