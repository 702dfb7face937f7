from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from torchrl.envs import GymWrapper
from torchrl.envs.utils import check_env_specs

from vineenv import ENVIRONMENTS
from vineenv.errors import UsageError


def padded(env: gymnasium.Env, ids: tuple[int, ...]) -> np.ndarray:
    return np.array([*ids, *[-1] * (env.action_space.shape[0] - len(ids))])


ROWS = [{"question": f"What is {i} and {i}?", "answer": f"It is\n#### {2 * i}"} for i in range(600)]
BOXED = [{"problem": r["question"], "solution": f"It is $\\boxed{{{r['answer'][10:]}}}$."} for r in ROWS]


def make(name: str, folder: Path, **settings: Any) -> gymnasium.Env:
    """Make an environment by its name, with a data set in a folder where it wants one."""
    if name == "vineenv/ReasoningGym-v0":
        pytest.importorskip("reasoning_gym", reason="needs reasoning-gym: pip install 'vineenv[gym]'")
    if name in ("vineenv/GSM8K-v0", "vineenv/MathProblems-v0"):
        rows = ROWS if name == "vineenv/GSM8K-v0" else BOXED
        for split in ("train", "test"):
            (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        settings["path"] = str(folder)
    return gymnasium.make(name, **settings)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_make_and_check(name: str, tmp_path: Path) -> None:
    env = make(name, tmp_path, render_mode="ansi")
    check_env(env.unwrapped)
    observation, info = env.reset(options={"problem": "test/0", "prefix": "a"})
    assert observation["length"] > 1 and info["problem"] == "test/0"
    assert env.render().endswith("a")  # ty: ignore[unresolved-attribute]
    check_env_specs(GymWrapper(env))


def test_a_data_set_needs_its_path() -> None:
    with pytest.raises(UsageError, match=r"needs path: gymnasium.make\(..., path=...\)"):
        gymnasium.make("vineenv/GSM8K-v0")


def test_settings_override_the_file() -> None:
    env = gymnasium.make("vineenv/Tree-v0", depth=2, branching=5).unwrapped
    assert env.problem("test", 0).answer[0] in "abcde" and len(env.problem("test", 0).answer) == 2  # ty: ignore


def test_vectorised_episodes_are_the_single_ones() -> None:
    vector = gymnasium.make_vec("vineenv/Math-v0", num_envs=3, vectorization_mode="sync")
    single = gymnasium.make("vineenv/Math-v0")
    observations, _ = vector.reset(seed=[0, 1, 2])
    actions = []
    for i in range(3):
        alone, info = single.reset(seed=i)
        assert np.array_equal(observations["tokens"][i], alone["tokens"])
        env = single.unwrapped
        solution = env.problem("train", int(info["problem"].split("/")[1])).solution  # ty: ignore
        actions.append(padded(single, (*env.encode(solution), env.eos_id)))  # ty: ignore
    _, rewards, terminated, truncated, _ = vector.step(np.stack(actions))
    assert rewards.tolist() == [1, 1, 1] and terminated.all() and not truncated.any()


def test_torchrl_wraps_it_and_resets_it_to_a_prefix() -> None:
    env = GymWrapper(gymnasium.make("vineenv/Math-v0"))
    check_env_specs(env)
    start = env.reset(options={"problem": "test/0", "prefix": [5, 6]})
    inner = gymnasium.make("vineenv/Math-v0").unwrapped
    prompt = inner.encode(inner.problem("test", 0).prompt)  # ty: ignore
    length = int(start["length"].argmax()) if start["length"].numel() > 1 else int(start["length"])
    assert start["tokens"][:length].tolist() == [*prompt, 5, 6]
