"""The microscope: what it says of a trajectory, and the page in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from algorithms.grpo import GRPO
from algorithms.learner import Learner
from algorithms.microscope import Specimens, describe
from algorithms.models import ModelSource
from algorithms.opened import load_critic
from algorithms.oracle import Oracle
from algorithms.run import run as train
from algorithms.view import page, run
from algorithms.vineppo import VinePPO
from envs.arithmetic import Arithmetic
from tests.algorithms.batches import COMMON
from vineenv.engines.native import NativeEngine
from vineenv.errors import UsageError
from vineenv.rollout import Sampling

VINE = {**COMMON, "K": 1, "every": 1, "max_states": 0, "budget": "remaining"}


@pytest.fixture(scope="module")
def policy() -> LlamaForCausalLM:
    return ModelSource(path="asset:tiny").load()  # ty: ignore[invalid-return-type]


@pytest.fixture
def specimens(sums: Arithmetic, policy: LlamaForCausalLM) -> Specimens:
    problems = [sums.problem("validation", i) for i in range(4)]
    return Specimens(sums, NativeEngine(policy), problems, group=3, K=5, sampling=Sampling(1.0), seed=1)


def test_the_page_says_what_was_sampled(specimens: Specimens, sums: Arithmetic) -> None:
    assert specimens.ask_oracle()
    methods = {"vineppo": VinePPO(**VINE), "grpo": GRPO(**COMMON), "oracle": Oracle(**COMMON)}
    data = describe(specimens, {name: specimens.credit(a) for name, a in methods.items()})
    assert data["methods"] == ["vineppo", "grpo", "oracle"] and len(data["items"]) == 12
    for item, trajectory in zip(data["items"], specimens.trajectories, strict=True):
        assert "".join(s["text"] for s in item["steps"]) == sums.decode(trajectory.state.response)
        assert item["reward"] == trajectory.reward.value
        values = [s["value"][0] for s in item["steps"]]
        for step, value in zip(item["steps"], values, strict=True):
            rewards = [reward for _, _, reward in data["vines"][step["vines"]]]
            assert len(rewards) == 5 and value == pytest.approx(np.mean(rewards), abs=1e-4)
            assert step["value"][1] <= value <= step["value"][2]
        change = np.diff([*values, item["reward"]])
        assert [s["credit"][0] for s in item["steps"]] == pytest.approx(list(change), abs=1e-3)
        assert item["steps"][-1]["right"] == (item["reward"] > 0)
    first = data["items"][0]
    joined = first["prompt"] + first["steps"][0]["text"]
    state = next(s for s in data["items"][0]["steps"][1:2])
    prompt_and_step = sums.encode(joined)
    assert ("validation/0", prompt_and_step) in specimens.vines
    assert len(data["vines"][state["vines"]]) == 5


def test_group_credit_is_the_same_at_every_step(specimens: Specimens) -> None:
    for row in specimens.credit(GRPO(**COMMON)):
        assert row == pytest.approx([row[0]] * len(row), abs=1e-5)


def test_a_wrong_step_is_where_the_oracle_says(specimens: Specimens, sums: Arithmetic) -> None:
    specimens.ask_oracle()
    data = describe(specimens, {})
    for item in data["items"]:
        rights = [s["right"] for s in item["steps"]]
        assert rights == sorted(rights, reverse=True)  # once wrong, always wrong


def test_nothing_in_the_data_ends_the_script_it_stands_in() -> None:
    bad = "</script><script>alert(1)</script><!-- \u2028"
    text = page({"title": bad})
    assert text.count("</script>") == 2 and "alert(1)" in text and "\u2028" not in text
    (inside,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(inside) == {"title": bad}


SMALL = [
    "algo=ppo", "iterations=2", "eval.problems=4", "eval.final_problems=4", "samples=0", "algo.prompts=2",
    "algo.group_size=4", "threads=1", "env.min_steps=2", "env.max_steps=3", "env.max_new_tokens=40",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view") / "run"
    assert train([*SMALL, f"run_dir={folder}"]) == 0
    return folder


def test_the_critic_of_a_run_is_the_one_it_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: LlamaForCausalLM
) -> None:
    made: list[Learner] = []
    whole = Learner.__init__

    def init(self: Learner, *rest: Any) -> None:
        whole(self, *rest)
        made.append(self)

    monkeypatch.setattr(Learner, "__init__", init)
    assert train([*SMALL, f"run_dir={tmp_path / 'run'}"]) == 0
    critic, own = load_critic(tmp_path / "run", policy), made[0].critic_loss
    assert critic is not None and own is not None
    ids = torch.arange(3, 15)[None]
    assert torch.equal(critic(ids), own.critic(ids)) and float(critic(ids).abs().sum()) > 0


def test_the_command(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([f"run={finished}", "problems=3", "K=2", "threads=1"]) == 0
    assert "12 trajectories" in capsys.readouterr().out
    text = (finished / "microscope.html").read_text()
    (inside,) = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(inside)["methods"] == ["vineppo", "grpo", "rloo", "oracle", "ppo"]
    assert "http" not in text.replace("http-equiv", "")


def test_bad_input_is_told_first(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.yaml: it is not the folder of a finished run"):
        run([f"run={tmp_path}"])
    with pytest.raises(UsageError, match="Did you mean `algo=vineppo`"):
        run([f"run={finished}", "algos=[vinepo]"])
    with pytest.raises(UsageError, match="K must be at least 1"):
        run([f"run={finished}", "K=0"])


# In a browser.


def made_up(count: int) -> dict[str, Any]:
    """Trajectories of three steps that differ in known ways."""
    items = []
    for i in range(count):
        drop = (i * 7 % count) / count
        values = [1.0, 1.0, 1.0 - drop]
        steps = [
            {
                "text": f"s{i}.{k} <b>&\n", "value": [v, 0.0, 1.0, 3], "credit": [0.1 * k, -0.1],
                "vines": k, "right": k < 2,
            }
            for k, v in enumerate(values)
        ]  # fmt: skip
        status = ("correct", "wrong", "error")[i % 3]
        items.append(
            {
                "problem": f"test/{i}", "prompt": "1+1=?\n", "answer": "2", "reward": values[-1],
                "status": status, "truncated": i % 5 == 0, "steps": steps,
            }
        )  # fmt: skip
    vines = [
        [[f"vine {k}.{n}", "correct" if n else "wrong", float(n > 0)] for n in range(3)] for k in range(3)
    ]
    return {"title": "made up", "K": 3, "methods": ["vineppo", "grpo"], "vines": vines, "items": items}


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    file = tmp_path / "page.html"
    file.write_text(page(made_up(500)), encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1300, "height": 800})
    faults: list[str] = []
    asked: list[str] = []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(f"file://{file}")
    yield tab
    tab.close()
    assert faults == [] and asked == [f"file://{file}"]


def current(tab: Any) -> str:
    return tab.locator("nav [aria-current=true]").inner_text().split()[0]


def test_sorting_and_filtering(opened: Any) -> None:
    assert opened.locator("nav button").count() == 500 and current(opened) == "test/0"
    opened.select_option("#sort", "drop")
    largest = max(range(500), key=lambda i: i * 7 % 500)
    assert opened.locator("nav button").first.inner_text().startswith(f"test/{largest}")
    for kind, count in (("right", 167), ("error", 166), ("truncated", 100), ("wrong", 333)):
        opened.select_option("#filter", kind)
        assert opened.locator("#count").inner_text() == f"{count} of 500"
    opened.select_option("#filter", "all")
    opened.fill("#find", "s123.0")
    assert opened.locator("#count").inner_text() == "1 of 500"
    opened.fill("#find", "no such text")
    assert "No trajectory is left" in opened.locator("main").inner_text()


def test_clicking_shows_vines_as_text(opened: Any) -> None:
    opened.locator("nav button").nth(2).click()
    assert current(opened) == "test/2"
    opened.locator("tr.step").nth(1).click()
    vines = opened.locator(".vines li")
    assert vines.count() == 3 and "vine 1.0" in vines.first.inner_text()
    assert opened.locator(".vines li.ok").count() == 2
    assert "s2.1 <b>&" in opened.locator("tr.step").nth(1).inner_text()  # not taken for markup
    opened.locator("tr.step").nth(1).click()
    assert opened.locator(".vines").count() == 0


def test_the_keyboard_reaches_everything(opened: Any) -> None:
    for key in ("j", "j", "k"):
        opened.keyboard.press(key)
    assert current(opened) == "test/1"
    for key in ("n", "n", "Enter"):
        opened.keyboard.press(key)
    assert "before step 3" in opened.locator("tr.open").inner_text()
    opened.keyboard.press("m")
    assert opened.locator("#method").input_value() == "1"
    opened.keyboard.press("/")
    opened.keyboard.type("s7.0")
    assert opened.locator("#count").inner_text() == "1 of 500"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_schemes(browser: Any, tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(made_up(20)), encoding="utf-8")
    context = browser.new_context(color_scheme=scheme)
    tab = context.new_page()
    tab.goto(f"file://{file}")
    script = """() => [...document.querySelectorAll('td,th,h1,.dim,.good,.bad')].map(n => {
      const lum = c => { const p = c.match(/[0-9.]+/g).map(Number).slice(0, 3).map(v => v / 255)
        .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
        return .2126 * p[0] + .7152 * p[1] + .0722 * p[2]; };
      const a = lum(getComputedStyle(n).color), b = lum(getComputedStyle(document.body).backgroundColor);
      return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); })"""
    assert min(tab.evaluate(script)) > 4.5  # WCAG 2 AA
    context.close()
