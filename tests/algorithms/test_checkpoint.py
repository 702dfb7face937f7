"""Checkpoints: round trips, what damage looks like, what stays, and what a full disk does."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from algorithms import checkpoint
from algorithms.checkpoint import Checkpoints, DamagedError, LowDiskError, checkpoint_name, replace_text
from algorithms.randomness import random_states, seed_all, set_random_states
from algorithms.tree import pack, unpack

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TENSORS = st.lists(st.integers(-9, 9), max_size=4).map(torch.tensor)
TREES = st.recursive(
    SCALARS | TENSORS,
    lambda below: (
        st.lists(below, max_size=3)
        | st.lists(below, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), below, max_size=3)
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.fixture
def kept(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", 2)


def save(kept: Checkpoints, number: int, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> str:
    state = {"done": number, "moments": [torch.full((3,), float(number))], "by_number": {0: (1, "a")}}
    return kept.save(checkpoint_name(number), model, tokenizer, state).name


@settings(max_examples=300, deadline=None)
@given(TREES)
def test_state_survives_json_and_safetensors(tree: Any) -> None:
    tensors: dict[str, torch.Tensor] = {}
    plain = json.loads(json.dumps(pack({"state": tree}, tensors)))
    assert same(unpack(plain, tensors), {"state": tree})


def test_what_is_not_plain_data_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a\.b\.1: Random is not plain data"):
        pack({"a": {"b": [0, random.Random()]}}, {})


def test_a_checkpoint_comes_back(
    kept: Checkpoints, llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    name = save(kept, 3, llama, tokenizer)
    state = kept.load(name)
    assert state["done"] == 3 and state["by_number"] == {0: (1, "a")}
    assert torch.equal(state["moments"][0], torch.full((3,), 3.0))
    again = LlamaForCausalLM.from_pretrained(kept.folder / name / "policy")
    assert all(torch.equal(a, b) for a, b in zip(llama.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(
    "file", ["state.json", "state.safetensors", "policy/model.safetensors", "manifest.json"]
)
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_damage_is_noticed_and_the_one_before_is_taken(
    how: str, file: str, kept: Checkpoints, llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    first, second = (save(kept, number, llama, tokenizer) for number in (1, 2))
    place = kept.folder / second / file
    content = bytearray(place.read_bytes())
    if how == "gone":
        place.unlink()
    elif how == "cut":
        place.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 1
        place.write_bytes(content)
    with pytest.raises(DamagedError, match=second):
        kept.load(second)
    name, state, faults = kept.newest_good()
    assert name == first and state["done"] == 1
    assert len(faults) == 1 and second in faults[0]


def test_a_file_too_many_is_damage(
    kept: Checkpoints, llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    name = save(kept, 1, llama, tokenizer)
    (kept.folder / name / "policy" / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(DamagedError, match="not those of its manifest"):
        kept.load(name)


def test_the_newest_and_the_best_stay(
    kept: Checkpoints, llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    for number in range(1, 6):
        save(kept, number, llama, tokenizer)
        if number == 2:
            kept.mark_best(checkpoint_name(2), "accuracy", 0.5)
        kept.retire()
    assert kept.names() == ["iteration_0002", "iteration_0004", "iteration_0005"]
    assert kept.best() == {"checkpoint": "iteration_0002", "metric": "accuracy", "value": 0.5}


def test_names_sort_by_iteration_and_update(tmp_path: Path) -> None:
    for name in (
        "iteration_10000",
        "iteration_9999",
        "iteration_9999_update_0002",
        "iteration_9999_update_0010",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "iteration_10001.part").mkdir()
    assert Checkpoints(tmp_path, 2).names() == [
        "iteration_9999", "iteration_9999_update_0002", "iteration_9999_update_0010", "iteration_10000",
    ]  # fmt: skip


def test_a_full_disk_leaves_nothing_behind(
    kept: Checkpoints,
    llama: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save(kept, 1, llama, tokenizer)

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", refuse)
    with pytest.raises(OSError, match="No space left"):
        save(kept, 2, llama, tokenizer)
    assert [p.name for p in kept.folder.iterdir()] == ["iteration_0001"]


def test_no_save_is_begun_without_room(
    kept: Checkpoints,
    llama: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(LowDiskError, match="1,000 bytes free"):
        save(kept, 1, llama, tokenizer)
    assert list(kept.folder.iterdir()) == []


def test_a_small_file_is_the_old_one_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "best.json"
    replace_text(file, "old")

    def die(_: Path) -> None:
        raise OSError("killed here")

    monkeypatch.setattr(checkpoint, "sync", die)
    with pytest.raises(OSError, match="killed here"):
        replace_text(file, "new")
    assert file.read_text() == "old"


def test_every_generator_goes_on() -> None:
    seed_all(3)
    random.random(), np.random.rand(3), torch.rand(3)
    tensors: dict[str, torch.Tensor] = {}
    plain = json.loads(json.dumps(pack(random_states(), tensors)))
    expected = random.random(), np.random.rand(3).tolist(), torch.rand(3).tolist()
    seed_all(4)
    set_random_states(unpack(plain, tensors))
    assert (random.random(), np.random.rand(3).tolist(), torch.rand(3).tolist()) == expected
