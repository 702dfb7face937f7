"""A run that is left and gone on with ends as if nothing had been; what must not go on is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from algorithms.learner import Learner
from algorithms.resume import claim
from algorithms.run import run
from algorithms.stop import Stopped, StopSignals
from vineenv.engines.native import NativeEngine
from vineenv.errors import UsageError

SMALL = [
    "algo=ppo", "iterations=3", "algo.lr=1e-3", "algo.warmup=0", "eval.problems=4", "eval.final_problems=4",
    "eval.every=2", "samples=1", "algo.prompts=2", "algo.group_size=4", "algo.minibatch=4", "threads=1",
    "save_every=1", "env.min_steps=2", "env.max_steps=3", "env.max_new_tokens=40",
]  # fmt: skip


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """SIGINT as in a terminal's foreground: whoever started the tests may have had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopSignals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.received is None
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def left_behind(folder: Path) -> dict[str, Any]:
    """What two runs must have in common."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "metrics": [{k: v for k, v in line.items() if not k.startswith("seconds/")} for line in lines],
        "weights": (folder / "policy" / "model.safetensors").read_bytes(),
        "samples": (folder / "samples.txt").read_text(),
    }


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    assert run([*SMALL, f"run_dir={folder}"]) == 0
    return folder


@pytest.fixture
def copied(unbroken: Path, tmp_path: Path) -> Path:
    """A finished run that may be spoiled."""
    return Path(shutil.copytree(unbroken, tmp_path / "copied"))


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "checkpoints").glob("iteration_*"))


def test_a_signal_between_two_updates(
    unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, steps = Learner._step, []

    def step(self: Learner, minibatch: Any) -> Any:
        steps.append(1)
        if len(steps) == 4:
            signal.raise_signal(signal.SIGTERM)
        return whole(self, minibatch)

    monkeypatch.setattr(Learner, "_step", step)
    folder = tmp_path / "run"
    assert run([*SMALL, f"run_dir={folder}"]) == 128 + signal.SIGTERM
    out = capsys.readouterr().out
    assert "SIGTERM after 0 iterations" in out and "to go on: python -m algorithms.run algo=ppo" in out
    assert names(folder) == ["iteration_0000_update_0004"]  # the update under way was finished
    monkeypatch.undo()
    assert run([*SMALL, f"run_dir={folder}"]) == 0
    assert "going on from iteration_0000_update_0004: 0 of 3" in capsys.readouterr().out
    assert left_behind(folder) == left_behind(unbroken)


@pytest.mark.parametrize("call", [1, 4, 7])
def test_a_signal_while_sampling_or_evaluating(
    call: int, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, calls = NativeEngine.generate, []

    def generate(self: NativeEngine, *rest: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return whole(self, *rest)

    monkeypatch.setattr(NativeEngine, "generate", generate)
    folder = tmp_path / "run"
    assert run([*SMALL, f"run_dir={folder}"]) == 130
    assert len(calls) == call  # it did not wait for the rest
    assert run([*SMALL, f"run_dir={folder}"]) == 0
    assert left_behind(folder) == left_behind(unbroken)


def test_the_second_signal_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with StopSignals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.received == signal.SIGINT and not ended
        signal.raise_signal(signal.SIGTERM)
        assert ended == [143]
        with pytest.raises(Stopped):
            stop.check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_finished_run_is_not_run_again(
    copied: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "_step", None)
    assert run([*SMALL, f"run_dir={copied}"]) == 0
    assert left_behind(copied) == left_behind(unbroken)


def test_a_run_may_be_made_longer(copied: Path, tmp_path: Path) -> None:
    constant = [*SMALL, "algo.lr_decay=false"]
    short, whole = tmp_path / "short", tmp_path / "whole"
    assert run([*constant, "iterations=1", f"run_dir={short}"]) == 0
    assert run([*constant, "iterations=2", f"run_dir={short}"]) == 0
    assert run([*constant, "iterations=2", f"run_dir={whole}"]) == 0
    longer, at_once = left_behind(short), left_behind(whole)
    assert longer["weights"] == at_once["weights"]
    last, other = longer["metrics"][2], at_once["metrics"][2]
    evaluated = ("tokens/evaluation", "flops/evaluation", "engine/hit_rate")  # its first end was measured too
    assert {k: v for k, v in last.items() if k not in evaluated} == {
        k: v for k, v in other.items() if k not in evaluated
    }
    with pytest.raises(UsageError, match="iterations: 2 -> 1"):
        run([*constant, "iterations=1", f"run_dir={short}"])
    with pytest.raises(UsageError, match=r"iterations: 3 -> 4 \(the learning rate decays over them"):
        run([*SMALL, "iterations=4", f"run_dir={copied}"])


def test_another_configuration_is_refused_and_shown(copied: Path) -> None:
    before = (copied / "config.yaml").read_text()
    with pytest.raises(UsageError, match=r"algo\.lr: 0\.001 -> 0\.5\n  seed: 0 -> 1\nGive another run_dir"):
        run([*SMALL, "seed=1", "algo.lr=0.5", f"run_dir={copied}"])
    with pytest.raises(UsageError, match=r"target: 'algorithms\.ppo\.PPO' -> 'algorithms\.rloo\.RLOO'"):
        run([*SMALL, "algo=rloo", f"run_dir={copied}"])
    with pytest.raises(UsageError, match="is not empty"):
        run([*SMALL, "resume=never", f"run_dir={copied}"])
    assert (copied / "config.yaml").read_text() == before


def test_what_may_change_is_told(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SMALL, "keep=1", "iterations=4", "algo.lr=0.002", "resume=anyway", f"run_dir={copied}"]) == 0
    out = capsys.readouterr().out
    assert "keep: 2 -> 1" in out and "algo.lr: 0.001 -> 0.002" in out


def test_one_process_a_folder(tmp_path: Path) -> None:
    with claim(tmp_path), pytest.raises(UsageError, match="another process"), claim(tmp_path):
        pass
    with claim(tmp_path):
        pass


def test_a_damaged_checkpoint_falls_back(
    copied: Path, unbroken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = copied / "checkpoints" / "iteration_0003" / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-5] ^= 4
    state.write_bytes(content)
    assert run([*SMALL, f"run_dir={copied}"]) == 0
    out = capsys.readouterr().out
    assert "damaged checkpoint: iteration_0003: state.safetensors is not as it was written" in out
    assert "going on from iteration_0002" in out
    assert left_behind(copied) == left_behind(unbroken)
    assert "iteration_0003.damaged" in names(copied) and "iteration_0003" in names(copied)


def test_no_whole_checkpoint_is_refused(copied: Path) -> None:
    for name in names(copied):
        (copied / "checkpoints" / name / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match="no checkpoint is whole"):
        run([*SMALL, f"run_dir={copied}"])


def test_a_log_that_was_cut_is_refused(copied: Path) -> None:
    (copied / "metrics.jsonl").write_text("")
    with pytest.raises(UsageError, match=r"metrics\.jsonl has 0 bytes"):
        run([*SMALL, f"run_dir={copied}"])


def test_a_data_file_that_changed_under_the_run(tmp_path: Path) -> None:
    rows = [
        {"question": f"What is {i} + 1?", "answer": f"{i} + 1 = {i + 1}\n#### {i + 1}"} for i in range(12)
    ]
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "test"):
        (data / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = [
        "env=gsm8k", f"env.path={data}", "env.validation_size=2", "env.context=200",
        "env.max_new_tokens=40",
        *(s for s in SMALL if not s.startswith("env.")), f"run_dir={tmp_path / 'run'}",
    ]  # fmt: skip
    assert run([*arguments, "iterations=1"]) == 0
    rows[3]["answer"] = "#### 5"
    (data / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UsageError, match="the problems of env changed since the run was started"):
        run([*arguments, "iterations=1"])
