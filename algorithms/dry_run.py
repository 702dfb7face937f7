"""A dry run: everything built, one tiny iteration, what the whole would take, nothing written."""

from __future__ import annotations

import resource
import sys

import torch
from omegaconf import DictConfig, OmegaConf
from rich.table import Table
from torch import nn

from algorithms.config import RunConfig
from algorithms.console import Reporter, clock, console
from algorithms.loop import Loop
from algorithms.parts import Parts
from algorithms.stop import StopSignals

_PROMPTS, _PROBLEMS = 2, 8


def dry_run(config: DictConfig, settings: RunConfig, parts: Parts) -> int:
    """Run one iteration of two prompts and print the configuration and an estimate."""
    algorithm = parts.algorithm
    prompts, eval_settings = algorithm.prompts, settings.eval
    whole = estimate_factors(settings, prompts, min(prompts, _PROMPTS))
    algorithm.prompts = min(prompts, _PROMPTS)
    iterations, settings.iterations = settings.iterations, 1
    eval_settings.problems = eval_settings.final_problems = _PROBLEMS
    with StopSignals() as stop, Reporter(1) as reporter:
        loop = Loop(parts, settings, None, reporter, stop)
        loop.run()
    console.print(OmegaConf.to_yaml(config).rstrip(), markup=False)
    console.print(_estimate(loop, whole, iterations))
    console.print("dry run passed; nothing was written")
    return 0


def estimate_factors(settings: RunConfig, prompts: int, tried: int) -> dict[str, float]:
    """How many times the seconds of the tiny iteration the whole run takes, by purpose.

    The tiny one evaluates 8 problems of each split twice (before and after); larger batches
    decode more tokens a second, so the estimate is an upper bound.
    """
    run = settings.iterations * prompts / tried
    evaluations = 1 + settings.iterations // settings.eval.every
    problems = evaluations * settings.eval.problems + 2 * settings.eval.final_problems
    return {"evaluation": problems / (4 * _PROBLEMS), "weights": settings.iterations, "": run}


def _estimate(loop: Loop, whole: dict[str, float], iterations: int) -> Table:
    table = Table(title=f"estimate for {iterations} iterations (an upper bound)")
    table.add_column("")
    table.add_column("", justify="right")
    total = 0.0
    for purpose, seconds in loop.ledger.seconds.items():
        share = seconds * whole.get(purpose, whole[""])
        total += share
        table.add_row(f"seconds on {purpose}", f"{share:,.0f}")
    table.add_row("time", clock(total))
    weights = _bytes(loop.parts.policy)
    learner = loop.learner
    state = sum(t.numel() * t.element_size() for s in learner.optimizer.state.values() for t in s.values())
    critic = 0 if learner.critic_loss is None else _bytes(learner.critic_loss)
    reference = 0 if learner.reference is None else weights
    for name, count in (
        ("policy", weights), ("reference", reference), ("critic", critic),
        ("gradients", weights + critic), ("optimiser", state), ("engine's copy", weights),
        ("a checkpoint on the disk", weights + critic + state), ("peak so far", _peak()),
    ):  # fmt: skip
        table.add_row(f"memory, {name}", f"{count / (1 << 20):,.1f} MiB")
    return table


def _bytes(module: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in module.parameters())


def _peak() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
