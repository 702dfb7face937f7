"""Train on an environment's worked solutions: `python -m algorithms.sft env=math model=tiny`."""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from transformers import PreTrainedModel

from algorithms.command import main_command
from algorithms.config import compose, own_keys
from algorithms.console import progress_bar
from algorithms.evaluate import evaluate
from algorithms.parts import use_threads
from algorithms.targets import build
from vineenv.env import ReasoningEnv
from vineenv.errors import UsageError, unknown
from vineenv.ledger import Ledger
from vineenv.rollout import Sampling

IGNORED = -100


@dataclasses.dataclass(kw_only=True)
class SftConfig:
    """What supervised training takes beside its parts.

    `scratch` starts from the model's `arch` with random weights; `optimizer` is "muon" (Muon
    on the matrices of the blocks, AdamW elsewhere) or "adamw".
    """

    steps: int
    batch_size: int
    lr: float
    matrix_lr: float
    warmup: int
    optimizer: str
    scratch: bool
    problems: int
    out: str
    seed: int
    threads: int = 0

    def __post_init__(self) -> None:
        if self.optimizer not in ("muon", "adamw"):
            raise unknown("optimizer", self.optimizer, ("muon", "adamw"))
        if min(self.steps, self.batch_size, self.problems) < 1:
            raise UsageError("steps, batch_size and problems must be at least 1.")


def batches(env: ReasoningEnv, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield endless batches of demonstrations: ids and labels [B, T], right-padded.

    What the environment would append is read, not learned.
    """
    index = random.Random(seed).randrange(1 << 40)
    while True:
        states = [
            env.solved(problem, response)
            for problem, response in map(env.demonstration, range(index, index + batch_size))
        ]
        index += batch_size
        longest = max(len(state.tokens) + (not state.ended) for state in states)
        ids = torch.zeros(batch_size, longest, dtype=torch.int64)
        labels = torch.full_like(ids, IGNORED)
        for row, label, state in zip(ids, labels, states, strict=True):
            tokens = state.tokens if state.ended else (*state.tokens, env.eos_id)
            end = len(tokens)
            row[:end] = torch.tensor(tokens)
            label[state.prompt_length : end] = row[state.prompt_length : end]
            for left, right in state.foreign:
                label[left:right] = IGNORED
        yield ids, labels


def solution_loss(model: PreTrainedModel, ids: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log-likelihood of the response tokens of a batch [B, T]."""
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    targets = labels[:, 1:]
    kept = targets != IGNORED
    return nn.functional.cross_entropy(logits[kept].float(), targets[kept])


def build_optimizers(model: nn.Module, config: SftConfig) -> list[torch.optim.Optimizer]:
    """Return the optimisers of all parameters, each exactly once."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if config.optimizer == "adamw":
        return [torch.optim.AdamW([p for _, p in named], lr=config.lr, weight_decay=0.0)]
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name and "head" not in name]
    chosen = {id(p) for p in matrices}
    rest = [p for _, p in named if id(p) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=config.matrix_lr, weight_decay=0.0, adjust_lr_fn="original"),
        torch.optim.AdamW(rest, lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def train(model: PreTrainedModel, env: ReasoningEnv, config: SftConfig) -> float:
    """Train `model` in place; return the running mean of the loss at the end."""
    optimizers = build_optimizers(model, config)
    factor = lambda step: _warm_cosine(step, config.warmup, config.steps)  # noqa: E731
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, factor) for optimizer in optimizers]
    data, mean = batches(env, config.batch_size, config.seed), math.nan
    with progress_bar() as bar:
        task = bar.add_task("sft", total=config.steps)
        for step in range(config.steps):
            loss = solution_loss(model, *next(data))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer, schedule in zip(optimizers, schedules, strict=True):
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
            mean = loss.item() if step == 0 else 0.95 * mean + 0.05 * loss.item()
            bar.update(task, advance=1, description=f"sft  loss {mean:.4f}")
    return mean


def _warm_cosine(step: int, warmup: int, steps: int) -> float:
    return min(1.0, (step + 1) / max(warmup, 1)) * 0.5 * (1 + math.cos(math.pi * step / steps))


def run(arguments: list[str]) -> int:
    """Compose the configuration, train, evaluate, save."""
    config = compose("sft", SftConfig, arguments)
    own = own_keys(SftConfig, config)
    use_threads(own.threads)
    source = build(config.model)
    model, tokenizer = source.fresh(own.seed) if own.scratch else (source.load(), source.tokenizer())
    env = build(config.env, tokenizer, build(config.reward))
    loss = train(model, env, own)
    out = Path(own.out)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    print(f"loss {loss:.4f}; saved to {out}")
    report(model, env, config, own)
    return 0


def report(model: PreTrainedModel, env: ReasoningEnv, config: DictConfig, own: SftConfig) -> None:
    """Print held-out accuracy at temperature 1 and greedily."""
    engine = build(config.engine, model)
    for name, temperature in (("temperature 1", 1.0), ("greedy", 0.0)):
        score = evaluate(env, engine, "validation", own.problems, Sampling(temperature), own.seed, Ledger())
        print(f"{name:>14}: {score}")
    OmegaConf.save(config, Path(own.out) / "sft.yaml")


if __name__ == "__main__":
    sys.exit(main_command(run, "sft", SftConfig, __doc__ or ""))
