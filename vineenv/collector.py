"""The TorchRL collector: an iteration's episodes, with vines where the algorithm asks for them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.collectors import BaseCollector

from vineenv.engines.base import Engine, Progress
from vineenv.env import ReasoningEnv
from vineenv.errors import UsageError
from vineenv.ledger import Ledger
from vineenv.rollout import Sampling, derive_seed, rollout
from vineenv.rows import build_rows, pad_states
from vineenv.types import Problem, Trajectory
from vineenv.vines import StateValues, Vines, choose_starts, grow_vines, prefix_state


class VineCollector(BaseCollector):
    """Yields one padded TensorDict an iteration (keys and shapes: `vineenv.rows`).

    Args:
        env: where the problems and rewards come from.
        engine: what samples.
        prompts: P, problems an iteration; each problem is used once an epoch.
        group_size: G, responses a problem.
        sampling: of responses and vines alike.
        vines: which states get continuations; None for none.
        oracle: ask the environment which prefixes are right.
        dynamic_rounds: how many more times problems are drawn in place of those whose responses all
            earn the same (DAPO, arXiv 2503.14476); what is thrown away is booked all the same.
        seed: of problems and samples; an iteration depends on it and its number alone.
        ledger: where tokens and seconds are booked.
        progress: told the finished rows of each call to the engine.
    """

    def __init__(
        self,
        env: ReasoningEnv,
        engine: Engine,
        *,
        prompts: int,
        group_size: int,
        sampling: Sampling,
        vines: Vines | None = None,
        oracle: bool = False,
        dynamic_rounds: int = 0,
        seed: int = 0,
        ledger: Ledger | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.env, self.engine, self.sampling = env, engine, sampling
        self.prompts, self.group_size, self.vines, self.oracle = prompts, group_size, vines, oracle
        self.dynamic_rounds, self.seed, self.ledger = dynamic_rounds, seed, ledger or Ledger()
        self.progress = progress
        self.iteration = self.position = 0
        self.trajectories: list[Trajectory] = []
        self.values: list[StateValues] = []

    def iterator(self) -> Iterator[TensorDict]:
        """Yield iterations without end; the caller stops."""
        while True:
            yield self.collect()

    def collect(self) -> TensorDict:
        """Sample one iteration; `trajectories` and `values` keep its episodes as objects."""
        problems = self._draw(self.prompts)
        played = self._respond(problems, "policy")
        for number in range(self.dynamic_rounds):
            flat = [i for i, group in enumerate(played) if len({t.reward.value for t in group}) == 1]
            if not flat:
                break
            others = self._respond(self._draw(len(flat)), f"policy, again {number}")
            for place, group in zip(flat, others, strict=True):
                played[place] = group
        self.trajectories = [t for group in played for t in group]
        groups = [i for i, group in enumerate(played) for _ in group]
        starts, extra = self._credit()
        batch = build_rows(self.trajectories, starts, groups)
        batch.update(extra)
        self.iteration += 1
        return batch

    def _respond(self, problems: list[Problem], purpose: str) -> list[list[Trajectory]]:
        """The responses to each problem, booked as the policy's."""
        with self.ledger.timed("policy", self.engine.stats):
            states = [self.env.initial_state(problem) for problem in problems]
            seed = self._seed(purpose)
            played = rollout(
                self.env, self.engine, states, self.group_size, self.sampling, seed, self.progress
            )
        self.ledger.add_tokens("policy", sum(len(t.state.written) for group in played for t in group))
        return played

    def _credit(self) -> tuple[list[tuple[int, ...]], dict[str, torch.Tensor]]:
        """Segment starts of every trajectory, and what is known of the states there."""
        self.values = []
        if self.vines is not None:
            with self.ledger.timed("vines", self.engine.stats):
                self.values, tokens = grow_vines(
                    self.env,
                    self.engine,
                    self.trajectories,
                    self.vines,
                    self.sampling,
                    self._seed("vines"),
                    self.progress,
                )
            self.ledger.add_tokens("vines", tokens)
            means = pad_states([v.means for v in self.values], 0.0, torch.float32)
            return [v.starts for v in self.values], {"mc_value": means}
        whole = Vines(K=1)
        starts = [choose_starts(self.env.step_starts(t.state, t.logprobs), whole) for t in self.trajectories]
        return starts, ask_oracle(self.env, self.trajectories, starts) if self.oracle else {}

    def _draw(self, count: int) -> list[Problem]:
        """The next problems in the order of their epoch; those that cannot be used are passed over."""
        size = self.env.size("train")
        order: dict[int, torch.Tensor] = {}
        problems: list[Problem] = []
        passed = 0
        while len(problems) < count:
            epoch, place = divmod(self.position, size)
            if epoch not in order:
                generator = torch.Generator().manual_seed(derive_seed(self.seed, "problems", epoch))
                order[epoch] = torch.randperm(size, generator=generator)
            problem = self.env.problem("train", int(order[epoch][place]))
            self.position += 1
            reason = self.env.defect(problem)
            if reason is None:
                problems.append(problem)
                passed = 0
                continue
            passed += 1
            warnings.warn(f"problem {problem.id!r} is passed over: {reason}", stacklevel=2)
            if passed >= 2 * size:  # whatever the order, every problem was among them
                raise UsageError(f"No problem of the train split can be used; the last: {reason}")
        return problems

    def _seed(self, purpose: str) -> int:
        return derive_seed(self.seed, purpose, self.iteration)

    # The rest of TorchRL's contract.

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Set the seed of all later iterations and return the next one."""
        self.seed = seed
        return seed if static_seed else seed + 1

    def state_dict(self, **_: Any) -> dict[str, Any]:
        """Everything the next iteration depends on."""
        return {
            "iteration": self.iteration,
            "position": self.position,
            "seed": self.seed,
            "ledger": self.ledger.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any], **_: Any) -> None:
        """Go on where `state_dict` was taken."""
        self.iteration, self.position = state_dict["iteration"], state_dict["position"]
        self.seed = state_dict["seed"]
        self.ledger.load_state_dict(state_dict["ledger"])

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Nothing to release: the engine belongs to the caller."""


def ask_oracle(
    env: ReasoningEnv, trajectories: Sequence[Trajectory], starts: Sequence[Sequence[int]]
) -> dict[str, torch.Tensor]:
    """What the environment knows of the states at segment starts: `on_track` and `steps_left` [B, S].

    Raises:
        UsageError: it knows nothing.
    """
    known = [
        [env.oracle(prefix_state(env, t, start)) for start in row]
        for t, row in zip(trajectories, starts, strict=True)
    ]
    return {
        "on_track": pad_states([[right for right, _ in row] for row in known], False, torch.bool),
        "steps_left": pad_states([[left for _, left in row] for row in known], 0, torch.int64),
    }
