"""The TorchRL loop: collect, estimate, optimise, push weights, log, evaluate."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Any

from tensordict import TensorDict

from algorithms.checkpoint import Checkpoints, checkpoint_name
from algorithms.config import RunConfig
from algorithms.console import Reporter
from algorithms.evaluate import evaluate
from algorithms.guards import UpdateGuard, Watch
from algorithms.learner import Learner, updates_per_iteration
from algorithms.models import multiplied_parameters
from algorithms.parts import Parts
from algorithms.randomness import random_states, set_random_states
from algorithms.recorder import Recorder
from algorithms.samples import show
from algorithms.stop import StopSignals
from vineenv.collector import VineCollector
from vineenv.errors import RunStoppedError
from vineenv.ledger import Ledger
from vineenv.rollout import Sampling, derive_seed

# Rounding in bfloat16 gives about 1e-3 nats a token, in float32 1e-6.
_ENGINE_GAP = 0.01
_BEST = "eval/sampled"


class Loop:
    """One training run.

    It can be left at any optimiser step, and while sampling or evaluating, without loss: `marked`
    then holds where everything but the weights stood when they last changed.

    Args:
        parts: what it runs on.
        config: how long, and what is evaluated.
        recorder: where it is written down; None writes nothing.
        reporter: what the person at the console sees.
        stop: says when to leave.
        checkpoints: where state is saved; None saves nothing.
    """

    def __init__(
        self,
        parts: Parts,
        config: RunConfig,
        recorder: Recorder | None,
        reporter: Reporter,
        stop: StopSignals,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.parts, self.config, self.recorder, self.reporter = parts, config, recorder, reporter
        self.stop, self.checkpoints = stop, checkpoints
        self.ledger = Ledger()
        self.multiplied = multiplied_parameters(parts.policy)
        algorithm = parts.algorithm
        total = config.iterations * updates_per_iteration(algorithm)
        self.learner = Learner(
            parts.policy, algorithm, total, derive_seed(config.seed, "learner"), self.ledger
        )
        faults = None if recorder is None else recorder.folder / "faults"
        self.learner.guard = UpdateGuard(config.guards.skipped, faults, parts.policy)
        self.watch = Watch(config.guards)
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
        self.best: float | None = None
        self.marked: dict[str, Any] | None = None
        self.samples: str | None = None
        self.saved: str | None = None
        self.identity: dict[str, Any] = {}
        self.elapsed, self.started = 0.0, time.perf_counter()

    def run(self) -> None:
        """Train for the configured number of iterations, measured on the test split before and after."""
        settings = self.config.eval
        self.reporter.begin(self.done, sum(self.ledger.tokens.values()))
        if self.marked is None:
            self.reporter.say("evaluating the start policy")
            with self.stop.at_once():
                start = self.evaluate("eval", settings.split, settings.problems)
                start |= self.evaluate("test", settings.final_split, settings.final_problems)
            self.record(0, start)
            self.mark()
        if self.learner.cursor is not None:
            self.iterate(self.learner.cursor.batch)
        episodes = iter(self.collector)
        while self.done < self.config.iterations:
            self.reporter.say(f"iteration {self.done + 1}: sampling")
            with self.stop.at_once():
                batch = next(episodes)
            self.iterate(batch)

    def iterate(self, batch: TensorDict) -> dict[str, float]:
        """Learn from one batch, serve the new weights, record."""
        self.reporter.say(f"iteration {self.done + 1}: learning")
        self.learner.guard.iteration = self.done + 1
        self.parts.engine.release()
        try:
            metrics = self.learner.learn(batch, lambda: self._after_update(batch))
        except RunStoppedError:
            self.keep_pending(batch)
            raise
        self.keep_pending(batch)
        if metrics.get("engine_gap_mean", 0.0) > _ENGINE_GAP:
            self.reporter.warn(
                f"engine and trainer disagree by {metrics['engine_gap_mean']:.2g} nats a token on the "
                "probability of what was sampled; is the engine serving these weights?"
            )
        with self.ledger.timed("weights"):
            self.parts.engine.load_weights(self.parts.policy, self.done + 1)
        number, settings = self.done + 1, self.config.eval
        with self.stop.at_once():
            if number % settings.every == 0 or number == self.config.iterations:
                metrics.update(self.evaluate("eval", settings.split, settings.problems))
            if number == self.config.iterations:
                metrics.update(self.evaluate("test", settings.final_split, settings.final_problems))
        metrics.update(self.parts.reward.state_dict())
        text, self.samples = self.samples, None
        self.done, self.learner.cursor = number, None
        self.record(number, metrics)
        if self.recorder:
            self.recorder.histogram(number, "advantage", batch["raw_advantage"][batch["mask"]])
            if text:
                self.recorder.sample(number, text)
        self._watch(metrics)
        self._save_when_due(metrics)
        return metrics

    def _watch(self, metrics: dict[str, float]) -> None:
        try:
            for warning in self.watch.warnings(metrics):
                self.reporter.warn(warning)
        finally:
            self.mark()

    def _after_update(self, batch: TensorDict) -> None:
        """Leave here if asked to; what is done of the batch can be kept."""
        if self.stop.received is not None:
            self.keep_pending(batch)
            self.stop.check()

    def keep_pending(self, batch: TensorDict) -> None:
        """Mark a point inside an iteration, with its batch and the samples to be shown of it."""
        if self.samples is None:
            self.samples = self._samples(batch)
        self.mark()

    def mark(self) -> None:
        """Note where everything stands that changes while the weights do not."""
        self.marked = {
            "done": self.done,
            "best": self.best,
            "collector": self.collector.state_dict(),
            "engine": asdict(self.parts.engine.stats),
            "reward": self.parts.reward.state_dict(),
            "watch": self.watch.state_dict(),
            "random": random_states(),
            "sizes": self.recorder.sizes() if self.recorder else {},
            "elapsed": self.elapsed + time.perf_counter() - self.started,
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything but the policy, at the last mark."""
        assert self.marked is not None, "nothing is marked before the start has been evaluated"
        return {**self.marked, "learner": self.learner.state_dict(), "samples": self.samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken; the policy has its weights of then."""
        self.done, self.best, self.elapsed = state["done"], state["best"], state["elapsed"]
        self.learner.load_state_dict(state["learner"])
        self.collector.load_state_dict(state["collector"])
        self.parts.engine.load_weights(self.parts.policy, self.done)
        self.parts.engine.stats = replace(self.parts.engine.stats, **state["engine"])
        self.parts.reward.load_state_dict(state["reward"])
        self.watch.load_state_dict(state["watch"])
        self.samples = state["samples"]
        set_random_states(state["random"])
        self.mark()

    def save(self, best: float | None = None) -> str | None:
        """Save a checkpoint of the last mark, as the best if told so; return its name.

        A disk that refuses is told of; the run goes on, and None is returned.
        """
        if self.checkpoints is None or self.marked is None:
            return None
        cursor = self.learner.cursor
        name = checkpoint_name(self.marked["done"], cursor.seen if cursor else 0)
        try:
            if self.recorder:
                self.recorder.sync()
            if name != self.saved:
                state = {**self.identity, **self.state_dict()}
                self.checkpoints.save(name, self.parts.policy, self.parts.tokenizer, state)
                self.saved = name
            if best is not None:
                self.checkpoints.mark_best(name, _BEST, best)
            self.checkpoints.retire()
        except OSError as error:
            self.reporter.warn(f"checkpoint {name} was not saved: {error}")
            return None
        return name

    def _save_when_due(self, metrics: dict[str, float]) -> None:
        value, every = metrics.get(_BEST), self.config.save_every
        better = value is not None and (self.best is None or value > self.best)
        if better:
            self.best = value
            self.mark()
        due = bool(every) and (better or self.done % every == 0)
        if due or self.done == self.config.iterations:
            self.save(value if better else None)

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
        spent |= {f"flops/{k}": v for k, v in self.ledger.flops(self.multiplied).items()}
        spent["seconds/total"] = round(self.elapsed + time.perf_counter() - self.started, 3)
        spent["engine/hit_rate"] = self.parts.engine.stats.hit_rate
        spent |= {f"hit_rate/{k}": v for k, v in self.ledger.hit_rates.items()}
        if self.recorder:
            self.recorder.metrics(iteration, {**metrics, **spent})
        self.reporter.iteration(iteration, metrics, sum(self.ledger.tokens.values()))

    def _samples(self, batch: TensorDict) -> str:
        count = min(self.config.samples, len(batch)) if self.recorder else 0
        return "\n".join(show(self.parts.env, self.collector.trajectories[i], batch[i]) for i in range(count))
