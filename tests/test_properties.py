"""Properties that hold for any input: configuration, data files and segmenters."""

from __future__ import annotations

import functools
import json
import operator
import string
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from algorithms.config import RunConfig, compose, group_names
from envs.data import Fields, load_rows
from vineenv.assets.tokenizer import build_tokenizer
from vineenv.errors import UsageError
from vineenv.segment import Fixed, GSM8KLines, LowProbability, Newline
from vineenv.segment_math import MathSentences

TOKENIZER = build_tokenizer()
FAST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=6,
)
WORDS = st.text(string.ascii_letters + string.digits + "._-+=:,[]{}$\"' \n/", max_size=20)


def keys(node: Any, prefix: str = "") -> list[str]:
    """Every dotted key of a configuration."""
    if not isinstance(node, dict) or not node:
        return [prefix]
    return [k for key, value in node.items() for k in keys(value, f"{prefix}.{key}" if prefix else str(key))]


KEYS = keys(OmegaConf.to_container(compose("config", RunConfig, [])))


@FAST
@given(st.lists(WORDS, max_size=3))
def test_any_arguments_compose_or_are_refused_in_words(arguments: list[str]) -> None:
    try:
        compose("config", RunConfig, arguments)
    except UsageError as error:
        assert str(error)


@FAST
@given(st.sampled_from(KEYS), WORDS)
def test_any_value_of_any_key_composes_or_is_refused_in_words(key: str, value: str) -> None:
    try:
        config = compose("config", RunConfig, [f"{key}={value}"])
    except UsageError as error:
        assert str(error)
    else:
        assert OmegaConf.is_struct(config)


@FAST
@given(
    st.sampled_from(group_names("algo")), st.integers(0, 10**6), st.floats(1e-9, 1.0), st.integers(0, 2**31)
)
def test_what_was_given_is_what_comes_back_and_saving_keeps_it(
    algo: str, iterations: int, lr: float, seed: int
) -> None:
    given_keys = [f"algo={algo}", f"iterations={iterations}", f"algo.lr={lr!r}", f"seed={seed}"]
    config = compose("config", RunConfig, given_keys)
    assert (config.iterations, config.algo.lr, config.seed) == (iterations, lr, seed)
    again = OmegaConf.create(OmegaConf.to_yaml(config))
    assert OmegaConf.to_container(again) == OmegaConf.to_container(config)


@FAST
@given(st.lists(st.fixed_dictionaries({"question": st.text(), "answer": st.text()}), min_size=1, max_size=5))
def test_rows_come_back_as_they_were_written(rows: list[dict[str, str]]) -> None:
    usable = all(row["question"].strip() and row["answer"].strip() for row in rows)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        try:
            loaded = load_rows(str(file), "train", Fields(("question",), ("answer",)))
        except UsageError as error:
            assert not usable and "train.jsonl" in str(error)
        else:
            assert [(row.problem, row.answer) for row in loaded] == [
                (r["question"], r["answer"]) for r in rows
            ]


@FAST
@given(st.lists(JSON.map(json.dumps) | st.text() | st.binary().map(repr), max_size=4))
def test_any_file_loads_or_is_refused_with_its_line(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.jsonl"
        file.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
        with pytest.raises(UsageError, match=r"train\.jsonl"):
            load_rows(str(file), "train", Fields(("question",), ("answer",)))


@FAST
@given(
    st.text(string.printable + "é√±\\$", max_size=120),
    st.lists(st.floats(-9, 0), min_size=400, max_size=400),
    st.sampled_from(["newline", "gsm8k", "maths", "fixed", "low"]),
)
def test_steps_of_any_text_tile_it(text: str, logprobs: list[float], kind: str) -> None:
    segmenter = {
        "newline": Newline(TOKENIZER),
        "gsm8k": GSM8KLines(TOKENIZER),
        "maths": MathSentences(TOKENIZER),
        "fixed": Fixed(TOKENIZER, size=3),
        "low": LowProbability(TOKENIZER),
    }[kind]
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    starts = segmenter(ids, logprobs[: len(ids)])
    assert starts[0] == 0 and starts == sorted(set(starts))
    assert all(0 <= start < max(len(ids), 1) for start in starts)
    parts = [ids[a:b] for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]
    assert functools.reduce(operator.iadd, parts, []) == ids
