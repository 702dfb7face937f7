from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import configs
from algorithms.config import RunConfig, compose, group_names, load_group
from algorithms.parts import build_algorithm, build_parts
from algorithms.sft import SftConfig
from algorithms.targets import resolve, schema
from vineenv.errors import UsageError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["algo=vinepo"], "Did you mean `algo=vineppo`"),
        (["env=mth"], "Did you mean `env=math`"),
        (["algo.k=3"], "Unknown key 'algo.k'. Did you mean 'algo.K'"),
        (["iteratons=3"], "Did you mean 'iterations'"),
        (["eval.evry=3"], "Did you mean 'eval.every'"),
        (["algo.K=many"], "algo.K: Value 'many' of type 'str' could not be converted to Integer"),
        (["iterations=-1"], "iterations=-1 must be at least 0"),
        (["iterations"], "'iterations' is not of the form key=value"),
        (["env.target=envs.arithmetic.Arithmetik"], "Did you mean 'envs.arithmetic.Arithmetic'"),
        (["env.target=nowhere.Env"], "there is no module 'nowhere'"),
        (["eval.every=0"], "must be at least 1"),
    ],
)
def test_bad_keys_are_told_with_the_nearest_match(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose("config", RunConfig, arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["algo.K=0"], "algo.K=0 must be at least 1"),
        (["algo=grpo", "algo.group_size=1"], "needs at least 2"),
        (["algo=rloo", "algo.group_size=1"], "needs at least 2"),
        (["algo=ppo", "algo.lam=1.5"], "algo.lam=1.5"),
        (["algo.lr=0"], "algo.lr=0.0 must be above 0"),
        (["algo.scale=rsm"], "Did you mean 'rms'"),
        (["env.train_size=0"], "empty"),
        (["env.min_steps=30"], "min_steps <= max_steps"),
        (["env.max_total=20"], "env.max_total=20"),
        (["env.max_new_tokens=30"], "worked solutions of the train split only 0 fit"),
        (["env.context=600"], "more than the model's 512 positions"),
        (["env.context=20", "env.max_new_tokens=10"], "its prompt has"),
        (["model.path=asset:tinny"], "Did you mean 'tiny'"),
        (["model.path=/nowhere/at/all"], "cannot be loaded"),
        (["model.dtype=float23"], "Did you mean 'float32'"),
    ],
)
def test_impossible_values_are_refused_before_any_weights_are_loaded(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("algorithms.models.ModelSource.load", refuse)
    with pytest.raises(UsageError) as caught:
        build_parts(compose("config", RunConfig, arguments))
    assert message in str(caught.value)


def test_command_line_error_is_one_message_and_exit_code_2() -> None:
    command = [sys.executable, "-m", "algorithms.run", "algo=vinepo"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(configs.__file__).parent.parent)
    assert done.returncode == 2 and "Did you mean `algo=vineppo`" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_shipped_file_composes_and_every_algorithm_builds() -> None:
    for group in ("algo", "env", "reward", "model", "engine"):
        assert group_names(group)
        for name in group_names(group):
            missing = OmegaConf.missing_keys(load_group(group, name))  # what only the user can know
            given = [f"{group}.{key}=somewhere" for key in missing]
            compose("config", RunConfig, [f"{group}={name}", *given])
    for name in group_names("algo"):
        build_algorithm(compose("config", RunConfig, [f"algo={name}"]).algo)
    compose("sft", SftConfig, [])


def test_the_result_is_struct_locked_and_complete() -> None:
    config = compose("config", RunConfig, ["algo.K=3", "env.max_steps=11"])
    assert config.algo.K == 3 and config.env.max_steps == 11
    assert config.env.data_seed == 0, "keys that no file gives are there with their defaults"
    assert OmegaConf.is_struct(config)
    with pytest.raises(Exception, match="typo"):
        config.algo.typo = 1


def test_schema_follows_keywords_passed_on_to_bases() -> None:
    names = {name for name, _, _ in schema(resolve("envs.arithmetic.Arithmetic"))}
    assert {"min_steps", "split", "segmenter", "render_mode", "max_new_tokens"} <= names
