"""The TorchRL loop: collect, estimate, optimise, push weights, log, evaluate."""

from __future__ import annotations

import time
from typing import Any

from tensordict import TensorDict

from algorithms.config import RunConfig
from algorithms.console import Reporter
from algorithms.evaluate import evaluate
from algorithms.learner import Learner, updates_per_iteration
from algorithms.parts import Parts
from algorithms.recorder import Recorder
from algorithms.samples import show
from vineenv.collector import VineCollector
from vineenv.ledger import Ledger
from vineenv.rollout import Sampling, derive_seed

# Rounding in bfloat16 gives about 1e-3 nats a token, in float32 1e-6.
_ENGINE_GAP = 0.01


class Loop:
    """One training run.

    Args:
        parts: what it runs on.
        config: how long, and what is evaluated.
        recorder: where it is written down; None writes nothing.
        reporter: what the person at the console sees.
    """

    def __init__(
        self, parts: Parts, config: RunConfig, recorder: Recorder | None, reporter: Reporter
    ) -> None:
        self.parts, self.config, self.recorder, self.reporter = parts, config, recorder, reporter
        self.ledger = Ledger()
        algorithm = parts.algorithm
        total = config.iterations * updates_per_iteration(algorithm)
        self.learner = Learner(
            parts.policy, algorithm, total, derive_seed(config.seed, "learner"), self.ledger
        )
        self.collector = VineCollector(
            parts.env,
            parts.engine,
            prompts=algorithm.prompts,
            group_size=algorithm.group_size,
            sampling=algorithm.sampling,
            vines=algorithm.vines,
            oracle=algorithm.needs_oracle,
            dynamic_rounds=algorithm.dynamic_rounds,
            seed=derive_seed(config.seed, "collector"),
            ledger=self.ledger,
            progress=reporter.rows,
        )
        self.done = 0
        self.started = time.perf_counter()

    def run(self) -> None:
        """Train for the configured number of iterations, measured on the test split before and after."""
        settings = self.config.eval
        self.reporter.say("evaluating the start policy")
        start = self.evaluate("eval", settings.split, settings.problems)
        self.record(0, {**start, **self.evaluate("test", settings.final_split, settings.final_problems)})
        episodes = iter(self.collector)
        while self.done < self.config.iterations:
            self.reporter.say(f"iteration {self.done + 1}: sampling")
            self.iterate(next(episodes))

    def iterate(self, batch: TensorDict) -> dict[str, float]:
        """Learn from one batch, serve the new weights, record."""
        self.reporter.say(f"iteration {self.done + 1}: learning")
        self.parts.engine.release()
        metrics = self.learner.learn(batch)
        if metrics.get("engine_gap_mean", 0.0) > _ENGINE_GAP:
            self.reporter.warn(
                f"engine and trainer disagree by {metrics['engine_gap_mean']:.2g} nats a token on the "
                "probability of what was sampled; is the engine serving these weights?"
            )
        with self.ledger.timed("weights"):
            self.parts.engine.load_weights(self.parts.policy, self.done + 1)
        self.done += 1
        settings = self.config.eval
        if self.done % settings.every == 0 or self.done == self.config.iterations:
            metrics.update(self.evaluate("eval", settings.split, settings.problems))
        if self.done == self.config.iterations:
            metrics.update(self.evaluate("test", settings.final_split, settings.final_problems))
        self.record(self.done, metrics)
        self._record_samples(batch)
        if self.recorder and self.config.save_every and self.done % self.config.save_every == 0:
            self.recorder.policy(
                self.parts.policy, self.parts.tokenizer, f"checkpoints/iteration_{self.done:04d}"
            )
        return metrics

    def evaluate(self, prefix: str, split: str, problems: int) -> dict[str, float]:
        """Held-out accuracy at temperature 1 and greedily, with 95 % intervals."""
        out: dict[str, float] = {}
        for name, temperature in (("sampled", 1.0), ("greedy", 0.0)):
            # The same random numbers every time, so that points of a curve can be compared.
            seed = derive_seed(self.config.seed, prefix, split)
            share = evaluate(
                self.parts.env, self.parts.engine, split, problems, Sampling(temperature), seed, self.ledger
            )
            low, high = share.interval
            out |= {
                f"{prefix}/{name}": share.value,
                f"{prefix}/{name}_low": low,
                f"{prefix}/{name}_high": high,
            }
        return out

    def record(self, iteration: int, metrics: dict[str, Any]) -> None:
        """Write an iteration's line with what has been spent so far, and show it."""
        spent: dict[str, float] = {f"tokens/{k}": v for k, v in self.ledger.tokens.items()}
        spent |= {f"seconds/{k}": round(v, 3) for k, v in self.ledger.seconds.items()}
        spent["seconds/total"] = round(time.perf_counter() - self.started, 3)
        spent["engine/hit_rate"] = self.parts.engine.stats.hit_rate
        spent |= {f"hit_rate/{k}": v for k, v in self.ledger.hit_rates.items()}
        if self.recorder:
            self.recorder.metrics(iteration, {**metrics, **spent})
        self.reporter.iteration(iteration, metrics, sum(self.ledger.tokens.values()))

    def _record_samples(self, batch: TensorDict) -> None:
        if self.recorder:
            self.recorder.histogram(self.done, "advantage", batch["raw_advantage"][batch["mask"]])
        count = min(self.config.samples, len(batch))
        if self.recorder and count:
            shown = [show(self.parts.env, self.collector.trajectories[i], batch[i]) for i in range(count)]
            self.recorder.sample(self.done, "\n".join(shown))
