"""The command, end to end, on the shipped model."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM, AutoTokenizer

from algorithms.loop import Loop
from algorithms.run import run
from vineenv.engines.native import NativeEngine

SMALL = [
    "iterations=2", "algo.lr=1e-3", "algo.warmup=0", "eval.problems=8", "eval.final_problems=8", "samples=1",
    "algo.prompts=2", "algo.group_size=4", "threads=1",
    "env.min_steps=2", "env.max_steps=3", "env.max_new_tokens=40",
]  # fmt: skip


USERS_FILES = {
    "my_algo.py": """
        from dataclasses import dataclass
        from algorithms.algorithm import Algorithm

        @dataclass(kw_only=True)
        class Constant(Algorithm):
            \"\"\"Return minus a constant.\"\"\"
            baseline: float

            def advantages(self, batch):
                whole = (batch["reward"][:, None] - self.baseline) * batch["mask"]
                return whole, whole
        """,
    "my_env.py": """
        from vineenv.env import ReasoningEnv
        from vineenv.types import Problem

        class Repeat(ReasoningEnv):
            def __init__(self, tokenizer, reward, *, word: str, **base):
                super().__init__(tokenizer, reward, **base)
                self.word = word

            def size(self, split):
                return 3

            def problem(self, split, index):
                return Problem(f"{split}/{index}", self.word * (index + 1), self.word)
        """,
    "my_reward.py": """
        def shortness(response, problem, *, most: int):
            return max(0.0, 1 - len(response) / most)
        """,
    "configs/env/repeat.yaml": "target: my_env.Repeat\nword: ab\nmax_new_tokens: 12\ncontext: 64\n",
    "configs/reward/short.yaml": "target: my_reward.shortness\nmost: 12\n",
    "configs/algo/constant.yaml": """
        target: my_algo.Constant
        baseline: 0.5
        prompts: 2
        group_size: 2
        temperature: 1.0
        epochs: 1
        minibatch: 4
        microbatch: 4
        lr: 0.0001
        warmup: 0
        max_grad_norm: 1.0
        clip: 0.2
        kl_coef: 0.0
        kl: k3
        scale: none
        reduction: token
        """,
}


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("algo", ["vineppo", "ppo", "grpo", "rloo", "oracle", "spo", "tempo", "gspo"])
def test_every_algorithm_runs_and_leaves_a_whole_folder(algo: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert run([f"algo={algo}", f"run_dir={folder}", *SMALL]) == 0
    start, middle, end = lines(folder)
    assert [line["iteration"] for line in (start, middle, end)] == [0, 1, 2]
    assert middle["first_ratio_error"] < 1e-4
    assert end["first_ratio_error"] < 1e-4
    assert middle["engine_gap"] < 1e-4
    assert end["engine_gap"] < 1e-4, "the engine serves the weights of the first update"
    assert {"reward", "kl", "clip_fraction", "entropy", "advantage_nonzero", "grad_norm"} <= end.keys()
    assert end["tokens/policy"] > 0 and end["seconds/training"] > 0
    assert ("tokens/vines" in end) == (algo in ("vineppo", "spo"))
    # Read by the policy, the reference and PPO's critic; learned from twice by all but the reference.
    read, trained = (3, 2) if algo == "ppo" else (2, 1)
    assert end["tokens/training"] / (2 * trained) == end["tokens/scoring"] / read
    assert end["flops/training"] / (2 * trained) == pytest.approx(3 * end["flops/scoring"] / read)
    assert "test/sampled" in start and "test/greedy_high" in end
    assert OmegaConf.load(folder / "config.yaml").algo.group_size == 4
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "A " in (folder / "samples.txt").read_text()
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert "reward" in events.Tags()["scalars"] and "advantage" in events.Tags()["histograms"]
    AutoModelForCausalLM.from_pretrained(folder / "policy")
    assert AutoTokenizer.from_pretrained(folder / "policy").eos_token == "<eos>"


@pytest.mark.parametrize("algo", ["restem", "dpo_positive", "dapo", "reinforce", "dr_grpo", "cispo"])
def test_methods_with_a_loss_of_their_own_run(algo: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert run([f"algo={algo}", f"run_dir={folder}", *SMALL, "algo.prompts=6"]) == 0
    *_, end = lines(folder)
    assert end["learned_share"] > 0 and end["loss_policy"] != 0 and end["grad_norm"] > 0


def test_vineppo_runs_on_the_tree_whose_words_end_without_an_end_of_sequence(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    tree = ["env=tree", "env.depth=2", "reward=leaf"]
    small = [setting for setting in SMALL if not setting.startswith("env.")]
    assert run(["algo=vineppo", f"run_dir={folder}", *tree, *small]) == 0
    assert lines(folder)[-1]["tokens/vines"] > 0


def test_without_rescoring_the_first_ratio_is_the_engines(tmp_path: Path) -> None:
    assert run(["algo=rloo", f"run_dir={tmp_path / 'run'}", *SMALL, "algo.rescore=false"]) == 0
    for line in lines(tmp_path / "run")[1:]:
        assert "engine_gap" not in line and 0 < line["first_ratio_error"] < 1e-4


def test_an_engine_with_old_weights_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = NativeEngine.load_weights
    monkeypatch.setattr(NativeEngine, "load_weights", lambda *given: None if given[-1] else load(*given))
    assert run(["algo=rloo", f"run_dir={tmp_path / 'run'}", *SMALL, "algo.lr=0.03"]) == 0
    assert "engine and trainer disagree" in capsys.readouterr().out


def test_same_seed_same_numbers(tmp_path: Path) -> None:
    kept = []
    for name in ("a", "b"):
        assert run(["algo=vineppo", f"run_dir={tmp_path / name}", *SMALL]) == 0
        timeless = [k for k in lines(tmp_path / name)[2] if not k.startswith("seconds/")]
        kept.append({k: lines(tmp_path / name)[2][k] for k in timeless})
    assert kept[0] == kept[1]


def test_a_used_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("kept")
    with pytest.raises(ValueError, match="is not empty"):
        run([f"run_dir={tmp_path}", *SMALL])


def test_interrupt_leaves_a_usable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Loop.iterate

    def interrupted(self: Loop, batch: object) -> object:
        whole(self, batch)  # ty: ignore[invalid-argument-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "iterate", interrupted)
    folder = tmp_path / "run"
    assert run(["algo=rloo", f"run_dir={folder}", *SMALL, "iterations=5"]) == 130
    assert len(lines(folder)) == 2 and (folder / "curve.png").exists()
    AutoModelForCausalLM.from_pretrained(folder / "policy")


def test_dry_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["algo=grpo", "dry_run=true", *SMALL]) == 0
    assert list(tmp_path.iterdir()) == []


def test_an_algorithm_an_environment_and_a_reward_are_one_file_and_one_config_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in USERS_FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    chosen = ["algo=constant", "env=repeat", "reward=short", "algo.baseline=0.25", "reward.most=20"]
    small = ["iterations=1", "eval.problems=2", "eval.final_problems=2", "run_dir=out", "threads=1"]
    assert run([*chosen, *small]) == 0
    assert 0 < lines(tmp_path / "out")[1]["reward"] < 1
