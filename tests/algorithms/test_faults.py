"""Faults put into a run: disks, gradients, rewards and engines that fail."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tensordict import TensorDict
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from algorithms import parts
from algorithms.guarded_reward import GuardedReward
from algorithms.guards import GuardConfig, Watch
from algorithms.learner import Learner
from algorithms.losses import PolicyLoss
from algorithms.models import ActionLogProbs
from algorithms.rloo import RLOO
from algorithms.run import run
from algorithms.supervise import SupervisedEngine
from tests.algorithms.batches import COMMON
from vineenv.engines.native import NativeEngine
from vineenv.errors import EngineDiedError, RunStoppedError, UsageError
from vineenv.types import Problem, Request, Reward

ROOT = Path(__file__).parents[2]
SMALL = [
    "algo=rloo", "iterations=2", "eval.problems=4", "eval.final_problems=4", "eval.every=9", "samples=1",
    "algo.prompts=2", "algo.group_size=4", "algo.minibatch=4", "threads=1", "save_every=1",
    "env.min_steps=2", "env.max_steps=3", "env.max_new_tokens=40",
]  # fmt: skip


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def in_mount(options: str, folder: Path, before: str, after: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command with its folder on a small file system of its own, seen by that process alone."""
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed: no file system can be made for the test")
    try_out = "mount -t tmpfs -o size=1m tmpfs /mnt"
    if subprocess.run(["unshare", "-rm", "sh", "-c", try_out], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets no process mount a file system of its own")
    command = f"{sys.executable} -m algorithms.run {' '.join(SMALL)} run_dir={folder}/run"
    script = f"mount -t tmpfs -o {options} tmpfs {folder} && {before} {command}; code=$?; {after} exit $code"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False, env=environment
    )


def test_a_full_disk(tmp_path: Path) -> None:
    """The log and one checkpoint fit; a second one does not, nor the policy at the end."""
    kept = tmp_path / "kept"
    disk = tmp_path / "disk"
    disk.mkdir()
    ended = in_mount("size=9000k", disk, "", f"cp -r {disk}/run {kept};")
    told = ended.stdout + ended.stderr
    assert "checkpoint iteration_0002 was not saved" in told and "bytes free" in told
    assert "The results could not be saved" in told and "The last checkpoint is iteration_0001" in told
    assert "Traceback (most" not in told and ended.returncode == 3
    assert [p.name for p in (kept / "checkpoints").iterdir() if p.is_dir()] == ["iteration_0001"]
    assert len(lines(kept)) == 3  # the run itself went on
    assert run([*SMALL, f"run_dir={kept}"]) == 0  # and from where there is room it ends well
    assert len(lines(kept)) == 3 and (kept / "policy" / "model.safetensors").is_file()


def test_a_read_only_folder(tmp_path: Path) -> None:
    ended = in_mount("ro", tmp_path, "")
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    assert f"run_dir={tmp_path}/run cannot be used" in ended.stderr


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        run([*SMALL, f"run_dir={tmp_path / 'run'}"])


# Gradients.


def spoil(monkeypatch: pytest.MonkeyPatch, which: Callable[[int], bool]) -> list[int]:
    """Give the gradients of some updates a nan."""
    whole, seen = Learner._step, []

    def step(self: Learner, minibatch: TensorDict) -> Any:
        seen.append(1)
        parameter = next(self.policy.parameters())
        hook = parameter.register_hook(lambda g: g * (math.nan if which(len(seen)) else 1.0))
        try:
            return whole(self, minibatch)
        finally:
            hook.remove()

    monkeypatch.setattr(Learner, "_step", step)
    return seen


def test_a_gradient_of_nan_is_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(monkeypatch, lambda number: number == 2)
    folder = tmp_path / "run"
    assert run([*SMALL, f"run_dir={folder}"]) == 0
    assert [line["skipped_updates"] for line in lines(folder)[1:]] == [1, 0]
    assert all(math.isfinite(line["loss_policy"]) for line in lines(folder)[1:])
    assert "1 updates were skipped" in capsys.readouterr().out
    weights = load_file(folder / "policy" / "model.safetensors")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())


def test_too_many_in_a_row_stop_the_run_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(monkeypatch, lambda number: number >= 2)
    folder = tmp_path / "run"
    arguments = [*SMALL, "guards.skipped=3", "algo.epochs=4", f"run_dir={folder}"]
    assert run(arguments) == 3
    out = capsys.readouterr().out
    assert "3 updates in a row had a loss or gradient that is not finite" in out and "to go on" in out
    assert sorted(p.name for p in (folder / "faults").iterdir()) == [
        "iteration_0001_01", "iteration_0001_02", "iteration_0001_03",
    ]  # fmt: skip
    monkeypatch.undo()
    assert run(arguments) == 0
    assert lines(folder)[1]["skipped_updates"] == 2  # the third is tried again


def test_the_dump_gives_the_same_loss_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, lambda number: number == 1)
    folder = tmp_path / "run"
    assert run([*SMALL, "iterations=1", f"run_dir={folder}"]) == 0
    (dump,) = (folder / "faults").iterdir()
    facts = json.loads((dump / "facts.json").read_text())
    minibatch = load_file(dump / "minibatch.safetensors")
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder / "policy"))
    model.load_state_dict(load_file(dump / "policy.safetensors"), strict=False)
    algorithm = RLOO(**{**COMMON, "kl_coef": 0.2})
    batch = TensorDict(minibatch, batch_size=[len(minibatch["length"])])
    loss = PolicyLoss(ActionLogProbs(model.eval()), algorithm)(batch)["loss_policy"]
    assert float(loss.detach()) == pytest.approx(float(facts["losses"]["loss_policy"]), abs=1e-6)
    assert facts["parameters"]


# Signs of a training gone wrong.


def watch(**changes: float) -> Watch:
    settings = {
        "skipped": 5, "approx_kl": 1.0, "ratio_error": 100.0, "patience": 2, "collapse": 0.3,
        "reward_seconds": 0.0,
    }  # fmt: skip
    return Watch(GuardConfig(**{**settings, **changes}))  # ty: ignore[invalid-argument-type]


@pytest.mark.parametrize("key", ["approx_kl", "ratio_error"])
def test_a_policy_that_runs_away_is_told_and_then_stopped(key: str) -> None:
    guard = watch()
    assert "moved far in one iteration" in guard.warnings({key: 1e3})[0]
    assert guard.warnings({key: 0.0}) == []
    guard.warnings({key: 1e3})
    with pytest.raises(RunStoppedError, match=rf"2 iterations in a row.*guards\.{key}=0 turns this off"):
        guard.warnings({key: 1e3})
    off = watch(**{key: 0.0})
    assert [off.warnings({key: 1e3}) for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({"reward": 0.1}, "fell to 0.1; it has been 0.8"),
        ({"reward": 0.5, "advantage_nonzero": 0.0}, "every advantage of this iteration is zero"),
        ({"reward": 0.5, "equal_groups": 1.0}, "all rewards are equal"),
    ],
)
def test_what_small_batches_do_by_chance_is_told_when_it_lasts(metrics: dict[str, float], told: str) -> None:
    guard = watch()
    assert guard.warnings({"reward": 0.8}) == []
    said = [guard.warnings(metrics) for _ in range(14)]
    assert [i for i, texts in enumerate(said) if texts] == [2, 12] and told in said[2][0]
    guard.warnings({"reward": 0.8})
    assert guard.warnings(metrics) == []


def test_what_was_said_is_remembered_over_a_resume() -> None:
    guard, other = watch(), watch()
    for reward in (0.8, 0.1, 0.1, 0.1):
        guard.warnings({"reward": reward})
    other.load_state_dict(json.loads(json.dumps(guard.state_dict())))
    assert other.warnings({"reward": 0.1}) == [] and other.best_reward == 0.8


def test_limits_must_make_sense() -> None:
    with pytest.raises(UsageError, match=r"guards\.patience=-1"):
        watch(patience=-1)


# Rewards.

PROBLEM = Problem("train/7", "1+1", "2")


def test_a_reward_that_raises_is_named_and_counted() -> None:
    def picky(response: str, problem: Problem) -> float:
        return 1.0 if response == "2" else 1 / 0

    said: list[str] = []
    reward = GuardedReward(picky, 0, said.append)
    graded = reward.grade_many(["2", "3", "4"], [PROBLEM] * 3)
    assert [g.status for g in graded] == ["correct", "error", "error"]
    assert reward.state_dict() == {"reward/errors": 2, "reward/timeouts": 0}
    (text,) = said
    assert "picky raised ZeroDivisionError" in text and "'train/7'" in text and "'3'" in text


@pytest.mark.parametrize("bad", [math.nan, math.inf, "1"])
def test_what_is_no_number_is_an_error(bad: Any) -> None:
    reward = GuardedReward(lambda response, problem: bad, 0, lambda text: None)
    assert reward("2", PROBLEM) == Reward(0.0, "error") and reward.errors == 1


def test_one_bad_response_of_a_batch_does_not_take_the_others_with_it() -> None:
    class Together:
        def grade_many(self, responses: list[str], problems: list[Problem]) -> list[float]:
            return [1 / int(response) for response in responses]

        def __call__(self, response: str, problem: Problem) -> float:
            return 1 / int(response)

    reward = GuardedReward(Together(), 0, lambda text: None)
    assert [g.value for g in reward.grade_many(["1", "0", "2"], [PROBLEM] * 3)] == [1.0, 0.0, 0.5]


def test_a_reward_that_always_raises_stops_the_run() -> None:
    reward = GuardedReward(lambda response, problem: 1 / 0, 0, lambda text: None)
    with pytest.raises(RunStoppedError, match="failed on all of 8 responses"):
        reward.grade_many(["a"] * 8, [PROBLEM] * 8)


def test_a_reward_that_sleeps_is_cut_off() -> None:
    def slow(response: str, problem: Problem) -> float:
        try:
            time.sleep(60 if response == "sleep" else 0)
        except Exception:
            time.sleep(60)
        return 1.0

    reward, began = GuardedReward(slow, 0.05, lambda text: None), time.perf_counter()
    graded = reward.grade_many(["sleep", "2"], [PROBLEM] * 2)
    assert [g.status for g in graded] == ["timeout", "correct"] and reward.timeouts == 1
    with pytest.raises(RunStoppedError, match=r"more than 0\.05 s on 5 in a row"):
        reward.grade_many(["sleep"] * 6, [PROBLEM] * 6)
    assert time.perf_counter() - began < 10


def test_a_run_tells_of_its_rewards_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "moody.py").write_text(
        "def moody(response, problem):\n    return 1.0 if sum(map(ord, response)) % 3 else 1 / 0\n"
    )
    (tmp_path / "configs" / "reward").mkdir(parents=True)
    (tmp_path / "configs" / "reward" / "moody.yaml").write_text("target: moody.moody\n")
    folder = tmp_path / "run"
    assert run([*SMALL, "reward=moody", f"run_dir={folder}"]) == 0
    assert lines(folder)[-1]["reward/errors"] > 0


# Engines.


class Mortal(NativeEngine):
    """Dies in chosen calls, counted over all that were built."""

    calls = 0
    deaths: tuple[int, ...] = ()

    def generate(self, requests: Any, progress: Any = None) -> Any:
        Mortal.calls += 1
        if Mortal.calls in Mortal.deaths:
            raise EngineDiedError("one of its processes ended")
        return super().generate(requests, progress)


def test_an_engine_that_dies_is_started_again(llama: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mortal, "calls", 0)
    monkeypatch.setattr(Mortal, "deaths", (2,))
    said: list[str] = []
    engine = SupervisedEngine(Mortal, llama, said.append)
    ask = [Request((1, 2, 3), n=3, max_new_tokens=5, seed=4)]
    first = engine.generate(ask)
    asked = engine.stats.prompt_tokens
    assert engine.generate(ask) == first  # the request carries its seed
    assert engine.restarts == 1 and "the engine failed in generate" in said[0]
    assert engine.stats.prompt_tokens == 2 * asked


def test_an_engine_that_dies_again_stops_the_run_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = parts.build

    def build(node: Any, *given: Any, **keywords: Any) -> Any:
        return Mortal(*given) if "engines" in str(node.target) else whole(node, *given, **keywords)

    monkeypatch.setattr(parts, "build", build)
    monkeypatch.setattr(Mortal, "calls", 0)
    monkeypatch.setattr(Mortal, "deaths", (6, 7))
    folder = tmp_path / "run"
    assert run([*SMALL, f"run_dir={folder}"]) == 3
    out = capsys.readouterr().out
    assert "starting it again" in out and "once more after a restart" in out
    monkeypatch.setattr(Mortal, "deaths", ())
    assert run([*SMALL, f"run_dir={folder}"]) == 0
    assert "going on from" in capsys.readouterr().out and len(lines(folder)) == 3


def test_bad_requests_and_final_words_pass_through(llama: nn.Module) -> None:
    class Stubborn(NativeEngine):
        def generate(self, requests: Any, progress: Any = None) -> Any:
            raise RunStoppedError("the server refused")

    engine = SupervisedEngine(NativeEngine, llama, pytest.fail)
    with pytest.raises(ValueError, match="n is 0"):
        engine.generate([Request((1,), n=0)])
    with pytest.raises(RunStoppedError, match="the server refused"):
        SupervisedEngine(Stubborn, llama, pytest.fail).generate([Request((1,))])
