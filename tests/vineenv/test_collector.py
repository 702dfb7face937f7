from __future__ import annotations

import pytest
import torch
from torchrl.collectors import BaseCollector

from tests.chain import Chain
from tests.conftest import make_llama
from vineenv.collector import VineCollector
from vineenv.engines.native import NativeEngine
from vineenv.errors import UsageError
from vineenv.rollout import Sampling
from vineenv.types import Problem, State
from vineenv.vines import Vines


class Echo(Chain):
    """Answers every second token of the policy with one of its own."""

    def respond(self, state: State) -> list[int]:
        own = len(state.response) - sum(b - a for a, b in state.foreign)
        return [7] if own % 2 == 0 else []

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return tuple(range(self.vocab_size))  # hand over after every token


def collector(env: Chain, seed: int = 0, vines: Vines | None = None, prompts: int = 3) -> VineCollector:
    engine = NativeEngine(make_llama(env.vocab_size, zero=True))
    return VineCollector(
        env, engine, prompts=prompts, group_size=4, sampling=Sampling(), vines=vines, seed=seed
    )  # fmt: skip


def test_rows_are_state_aligned() -> None:
    made = collector(Chain(length=6))
    assert isinstance(made, BaseCollector)
    batch = next(iter(made))
    for b, trajectory in enumerate(made.trajectories):
        tokens, prompt = trajectory.state.tokens, trajectory.state.prompt_length
        n = len(tokens) - 1
        assert batch["length"][b] == n
        assert batch["input_ids"][b, :n].tolist() == list(tokens[:-1])
        assert batch["action"][b, :n].tolist() == list(tokens[1:])
        assert batch["action"][b][batch["mask"][b]].tolist() == list(tokens[prompt:])
        assert torch.allclose(
            batch["sample_log_prob"][b][batch["mask"][b]], torch.tensor(trajectory.logprobs)
        )
        assert batch["step_id"][b, prompt - 1 : n].tolist() == list(range(n - prompt + 1))
        assert (batch["step_id"][b, : prompt - 1] == -1).all() and (batch["step_id"][b, n:] == -1).all()
        assert batch["reward"][b] == trajectory.reward.value
    assert batch["group"].tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_tokens_of_the_environment_are_in_the_row_but_not_in_the_mask() -> None:
    made = collector(Echo(length=9))
    batch = made.collect()
    foreign = 0
    for b, trajectory in enumerate(made.trajectories):
        for start, end in trajectory.state.foreign:
            assert trajectory.state.tokens[start:end] == (7,)
            assert not batch["mask"][b, start - 1 : end - 1].any()
            assert (batch["sample_log_prob"][b, start - 1 : end - 1] == 0).all()
            foreign += end - start
        assert int(batch["mask"][b].sum()) == len(trajectory.state.response) - len(trajectory.state.foreign)
    assert foreign > 10


def test_an_iteration_depends_on_seed_and_number_alone() -> None:
    first, second, other = collector(Chain()), collector(Chain()), collector(Chain(), seed=1)
    batches = [first.collect(), first.collect()]
    assert (second.collect()["input_ids"] == batches[0]["input_ids"]).all()
    second.load_state_dict({**second.state_dict(), "iteration": 1, "position": 3})
    assert torch.equal(second.collect()["action"], batches[1]["action"])
    assert not torch.equal(other.collect()["action"], batches[0]["action"])
    assert not torch.equal(batches[0]["action"], batches[1]["action"])


def test_problems_are_used_once_an_epoch() -> None:
    made = collector(Chain(), prompts=2)
    seen = []
    for _ in range(4):
        made.collect()
        seen += [t.state.problem.id for t in made.trajectories[::4]]
    assert sorted(seen[:4]) == sorted(seen[4:]) == [f"train/{i}" for i in range(4)]


def test_vine_values_and_their_tokens_are_in_the_batch_and_the_ledger() -> None:
    made = collector(Chain(length=6), vines=Vines(K=5, every=2))
    batch = made.collect()
    assert batch["mc_value"].shape == (12, 3)
    assert torch.allclose(batch["mc_value"][0], torch.tensor(made.values[0].means, dtype=torch.float32))
    assert made.ledger.tokens["vines"] > made.ledger.tokens["policy"] > 0
    assert made.ledger.seconds["vines"] > 0


class Checked:
    """A reward that finds the references of some problems unreadable."""

    def __init__(self, *bad: str) -> None:
        self.bad = bad

    def __call__(self, response: str, problem: Problem) -> float:
        return 0.0

    def check(self, problem: Problem) -> str | None:
        return "unreadable" if problem.id in self.bad else None


def test_problems_with_a_bad_reference_are_passed_over_and_told() -> None:
    env = Chain()
    env.reward = Checked("train/1", "train/3")
    made = collector(env, prompts=2)
    with pytest.warns(UserWarning, match="is passed over: unreadable"):
        made.collect()
        made.collect()
    assert {t.state.problem.id for t in made.trajectories} == {"train/0", "train/2"}
    env.reward = Checked(*(f"train/{i}" for i in range(4)))
    with pytest.raises(UsageError, match="No problem of the train split"), pytest.warns(UserWarning):
        collector(env).collect()
