from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from envs.gsm8k import GSM8K
from rewards.answer import AnswerReward
from tests.conftest import ROOT
from vineenv.check import describe
from vineenv.errors import UsageError

SHARED = ROOT.parent / "shared" / "data" / "gsm8k"
ORIGINAL = {"question": "Two and 1,000?", "answer": "It is 2+1000 = <<2+1000=1002>>1002.\nSo:\n#### 1,002"}
OURS = {"problem": "Two and two?", "solution": "It is <<2+2=4>>4.", "answer": "4"}


def make(tokenizer: PreTrainedTokenizerFast, path: Path, **settings: object) -> GSM8K:
    values: dict[str, object] = {"prompt": "Q: {problem}\nA: ", "validation_size": 1, **settings}
    return GSM8K(
        tokenizer, AnswerReward(style="gsm8k"), path=str(path), max_new_tokens=600, context=3000, **values
    )  # ty: ignore[invalid-argument-type]


def write(folder: Path, train: list[object], test: list[object]) -> Path:
    for name, rows in (("train", train), ("test", test)):
        text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def test_both_layouts(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    env = make(tokenizer, write(tmp_path, [ORIGINAL, OURS], [OURS]))
    first = env.problem("train", 0)
    assert first.prompt == "Q: Two and 1,000?\nA: " and first.answer == "1002"
    assert first.solution == "It is 2+1000 = 1002.\nSo:\n#### 1002"
    assert env.problem("test", 0).solution == "It is 4.\n#### 4"
    assert (env.size("train"), env.size("validation"), env.size("test")) == (1, 1, 1)
    kept = make(tokenizer, tmp_path, calculator=True).problem("test", 0)
    assert kept.solution == "It is <<2+2=4>>4.\n#### 4"
    report = describe(env)
    assert report.overlap == 1 and "train: 1 rows, of the first 1: 0 repeated" in str(report)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([OURS, "{broken"], "train.jsonl: line 2: not JSON"),
        ([OURS, "[1]"], "line 2: expected an object with fields, found list"),
        ([OURS, {"problem": "x"}], "line 2: no field 'answer' or 'final_answer'; it has 'problem'"),
        ([OURS, {"problem": 3.5, "answer": None}], "line 2: field 'answer' must be text, not NoneType"),
        ([], "no rows"),
        ([OURS], "env.validation_size=1 must be between 1 and 0"),
    ],
)
def test_bad_data_names_file_line_and_field(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, rows: list[object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        make(tokenizer, write(tmp_path, rows, [OURS]))
    assert message in str(caught.value)


def test_parquet(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'vineenv[data]'")
    import pyarrow

    for split in ("train", "test"):
        parquet.write_table(pyarrow.Table.from_pylist([ORIGINAL] * 3), tmp_path / f"{split}.parquet")
    (tmp_path / "lines").mkdir()
    same = write(tmp_path / "lines", [ORIGINAL] * 3, [ORIGINAL] * 3)
    assert make(tokenizer, tmp_path).problem("train", 1) == make(tokenizer, same).problem("train", 1)
    (tmp_path / "test.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UsageError, match=r"test.parquet: not readable as parquet"):
        make(tokenizer, tmp_path)
    parquet.write_table(pyarrow.table({"question": ["a"], "answer": [None]}), tmp_path / "test.parquet")
    with pytest.raises(UsageError, match=r"test.parquet: row 0: field 'answer' must be text"):
        make(tokenizer, tmp_path)


def test_a_hub_name_that_cannot_be_had_says_why(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets", reason="needs datasets: pip install 'vineenv[data]'")
    asked = []

    def refuse(name: str, config: str | None, split: str) -> None:
        asked.append((name, config, split))
        raise ConnectionError("no route\nto the hub")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(
        UsageError, match=r"gsm8k:main: the train split cannot be had from the hub: no route$"
    ):
        make(tokenizer, Path("openai/gsm8k:main"))
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config, split: [OURS] * 3)
    assert make(tokenizer, Path("openai/gsm8k")).size("test") == 3
    assert asked == [("openai/gsm8k", "main", "train")]


def test_missing_files(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        make(tokenizer, tmp_path / "nowhere" / "at" / "all")
    (tmp_path / "trian.jsonl").write_text("")
    with pytest.raises(UsageError, match=r"Did you mean 'trian\.jsonl'"):
        make(tokenizer, tmp_path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs GSM8K in ../shared/data/gsm8k")
def test_real_gsm8k_is_whole_and_every_gold_answer_is_accepted(tokenizer: PreTrainedTokenizerFast) -> None:
    env = make(tokenizer, SHARED, validation_size=373)
    assert (env.size("train") + env.size("validation"), env.size("test")) == (7473, 1319)
    report = describe(env)
    assert report.empty_answers == {"train": 0, "validation": 0, "test": 0}
    dropped = steps = 0
    for split in ("train", "validation", "test"):
        problems = [env.problem(split, i) for i in range(env.size(split))]
        rewards = env.reward.grade_many([p.solution or "" for p in problems], problems)  # ty: ignore
        assert all(reward.status == "correct" for reward in rewards)
        for problem in problems:
            assert problem.solution is not None
            ids = env.encode(problem.solution)
            starts = env.segmenter(ids)
            pieces = [ids[a:b] for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]
            dropped += tuple(i for piece in pieces for i in piece) != ids or not all(pieces)
            steps += len(pieces)
    assert dropped == 0 and steps > 20_000
