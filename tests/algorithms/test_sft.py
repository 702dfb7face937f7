from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from algorithms.command import help_text
from algorithms.config import RunConfig
from algorithms.diagnose import DiagnoseConfig
from algorithms.sft import IGNORED, SftConfig, batches, build_optimizers, run, solution_loss
from envs.arithmetic import Arithmetic
from envs.tree import Tree
from rewards.leaf import leaf
from tests.chain import letters_tokenizer
from tests.conftest import make_llama
from vineenv.errors import UsageError


def settings(**changes: object) -> SftConfig:
    values: dict[str, object] = {
        "steps": 5, "batch_size": 8, "lr": 3e-3, "matrix_lr": 0.02, "warmup": 2, "optimizer": "muon",
        "scratch": True, "problems": 4, "out": "unused", "seed": 0,
    }  # fmt: skip
    return SftConfig(**{**values, **changes})  # ty: ignore[invalid-argument-type]


def test_only_the_response_and_its_end_are_learned(sums: Arithmetic) -> None:
    ids, labels = next(batches(sums, 4, seed=0))
    for row, label in zip(ids.tolist(), labels.tolist(), strict=True):
        learned = [token for token in label if token != IGNORED]
        text = sums.tokenizer.decode(row)
        prompt, _, response = text.partition("=?\n")
        assert sums.tokenizer.decode(learned) == response.split("<pad>")[0] and learned[-1] == sums.eos_id
        assert label[: len(sums.encode(prompt + "=?\n"))] == [IGNORED] * len(sums.encode(prompt + "=?\n"))


def test_a_solution_that_decides_the_task_is_learned_without_an_end() -> None:
    env = Tree(letters_tokenizer("abc"), leaf, depth=4)
    ids, labels = next(batches(env, 4, seed=0))
    for row, label in zip(ids, labels, strict=True):
        words = [env.decode(part.tolist()) for part in (row[-4:], label[label != IGNORED])]
        assert words[0] == words[1] and len(words[0]) == 4
        assert env.eos_id not in row.tolist()


def test_a_demonstration_without_room_is_refused() -> None:
    env = Tree(letters_tokenizer("abc"), leaf, depth=4)
    env.demonstration = lambda index: (env.problem("train", 0), "aaaaa")  # ty: ignore[invalid-assignment]
    with pytest.raises(UsageError, match="leave room"):
        next(batches(env, 1, seed=0))


def test_loss_is_the_mean_negative_log_likelihood_of_the_response(sums: Arithmetic) -> None:
    model = make_llama(len(sums.tokenizer))
    ids, labels = next(batches(sums, 3, seed=1))
    with torch.no_grad():
        logp = model(input_ids=ids).logits.log_softmax(-1)
        terms = [
            -logp[b, t - 1, ids[b, t]]
            for b in range(3)
            for t in range(1, ids.shape[1])
            if labels[b, t] != IGNORED
        ]
        mean = torch.stack(terms).mean().item()
        assert solution_loss(model, ids, labels).item() == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_every_parameter_has_exactly_one_optimiser(sums: Arithmetic, optimizer: str) -> None:
    model = make_llama(len(sums.tokenizer))
    held = [
        id(p)
        for o in build_optimizers(model, settings(optimizer=optimizer))
        for group in o.param_groups
        for p in group["params"]
    ]
    assert sorted(held) == sorted(id(p) for p in model.parameters())


def test_the_command_leaves_a_model_that_opens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model"
    arguments = ["steps=3", "batch_size=4", "problems=4", f"out={out}", "threads=1"]
    assert run(arguments) == 0
    assert "greedy" in capsys.readouterr().out
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.config.vocab_size == len(tokenizer) and (out / "sft.yaml").exists()


def test_bad_settings() -> None:
    with pytest.raises(UsageError, match="Did you mean 'muon'"):
        settings(optimizer="moun")
    with pytest.raises(UsageError, match="at least 1"):
        settings(steps=0)


def test_help_shows_keys_without_a_value() -> None:
    assert "path: ???" in help_text("config", RunConfig, "Train.", ["env=gsm8k"])
    assert "run: ???" in help_text("diagnose", DiagnoseConfig, "Look.", [])


def test_help_names_groups_choices_and_keys() -> None:
    text = help_text("config", RunConfig, "Train.", ["algo=ppo"])
    assert re.search(r"algo=\S*\|grpo\|\S*\|vineppo", text)
    assert "critic_lr:" in text and "iterations: 25" in text
