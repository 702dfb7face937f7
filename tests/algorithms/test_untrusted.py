"""What may come from strangers is read as data: nothing in it runs, hangs, or is taken for markup."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from algorithms.config import RunConfig, compose
from algorithms.console import console, warn
from algorithms.guarded_reward import GuardedReward
from algorithms.models import ModelSource
from algorithms.parts import build_parts
from envs.data import Fields, load_rows
from vineenv.errors import UsageError
from vineenv.types import Problem

TINY = Path(__file__).parents[2] / "vineenv" / "assets" / "tiny"


class Runs:
    """Leaves a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.write_text, (self.file, "ran")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def test_a_configuration_runs_nothing_by_itself(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "configs" / "env"
    group.mkdir(parents=True)
    (group / "evil.yaml").write_text(f"target: !!python/object/apply:os.system ['touch {trace}']\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="not readable as YAML"):
        compose("config", RunConfig, ["env=evil"])
    assert not trace.exists()


@pytest.mark.parametrize(
    ("key", "target", "message"),
    [
        ("env", "subprocess.Popen", "python's own library"),
        ("reward", "os.system", "python's own library"),
        ("env", "algorithms.rloo.RLOO", "not a class derived from"),
        ("algo", "envs.arithmetic.Arithmetic", "not a class derived from"),
        ("model", "envs.arithmetic.Arithmetic", "not a class derived from"),
    ],
)
def test_a_target_of_the_wrong_kind_is_not_called(
    key: str, target: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs" / key).mkdir(parents=True)
    needed = "prompts group_size temperature epochs minibatch microbatch lr warmup max_grad_norm clip kl_coef"
    settings = dict.fromkeys([*needed.split(), "kl", "scale", "reduction"], 1) if "rloo" in target else {}
    (tmp_path / "configs" / key / "odd.yaml").write_text(json.dumps({"target": target, **settings}))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        build_parts(compose("config", RunConfig, [f"{key}=odd"]))


def test_settings_that_a_target_does_not_have_are_told() -> None:
    with pytest.raises(UsageError, match=r"env\.slip_total is no setting of algorithms\.rloo\.RLOO"):
        compose("config", RunConfig, ["env.target=algorithms.rloo.RLOO"])


def test_a_data_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    for name in ("train.jsonl", "train.json"):
        (tmp_path / name).write_bytes(b'{"question": "q", "answer": "1"}\n\xff\xfe')
        with pytest.raises(UsageError, match="not UTF-8 text"):
            load_rows(str(tmp_path / name), "train", Fields(("question",), ("answer",)))


def test_code_that_comes_with_a_model_is_not_run(folder: Path, trace: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.EvilConfig", "AutoModelForCausalLM": "evil.Evil"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(trace)!r}, 'w')\n")
    with pytest.raises(UsageError, match="cannot be loaded"):
        ModelSource(path=str(folder)).load()
    assert not trace.exists()


def test_weights_in_a_pickle_are_refused(folder: Path, trace: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Runs(trace)))
    with pytest.raises(UsageError, match="cannot be loaded"):
        ModelSource(path=str(folder)).load()
    assert not trace.exists()


@pytest.mark.parametrize("line", ["[" * 100_000, '{"question": "q", "answer": ' + "1" * 100_000 + "}"])
def test_a_data_file_made_to_break_the_parser_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(line)
    with pytest.raises(UsageError, match=r"train\.jsonl"):
        load_rows(str(file), "train", Fields(("question",), ("answer",)))


def test_responses_are_not_taken_for_markup() -> None:
    reward = GuardedReward(lambda response, problem: 1 / 0, 0, warn)
    with console.capture() as seen:
        reward("[/bold][link=http://x]\\[", Problem("[red]p", "", ""))
    assert "[/bold][link=http://x]" in seen.get() and "[red]p" in seen.get()
