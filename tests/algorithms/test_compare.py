from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from algorithms.compare import parse_budget, run
from algorithms.comparison import Curve, summarise
from algorithms.comparison_plots import draw_comparison
from algorithms.contenders import Method, Run, parse_sweep
from algorithms.report import build_tables, to_html
from vineenv.errors import UsageError


def curve(method: str, seed: int, final: float, cost: float) -> Curve:
    return Curve(
        method=method, seed=seed, iterations=[0, 5, 10], accuracy=[0.1, 0.2, 0.2 + final - 0.3],
        tokens=[0, 5 * cost, 10 * cost], seconds=[0, cost, 2 * cost],
        flops=[0, 50 * cost, 1e2 * cost], kl=[0.0, 0.01, 0.02], reward=[math.nan, 0.3, 0.4],
        start=0.1, final=final, greedy=1.0, split={"policy": 6.0, "training": 3.0, "total": 10.0},
        total_seconds=10.0,
    )  # fmt: skip


CURVES = [
    curve("dear", 0, 0.50, 100), curve("dear", 1, 0.52, 100),
    curve("cheap", 0, 0.44, 10), curve("cheap", 1, 0.46, 10),
]  # fmt: skip


def test_summary_by_hand() -> None:
    summary = summarise(CURVES)
    assert (summary["equal_tokens"], summary["equal_seconds"]) == (100, 20)
    dear, cheap = summary["methods"]["dear"], summary["methods"]["cheap"]
    assert dear["final"]["value"] == pytest.approx(0.51) and dear["final_each"] == [0.50, 0.52]
    # At 100 tokens the dear one is a tenth of its way: a fifth of the way from .1 to .2.
    assert dear["at_equal_tokens"]["value"] == pytest.approx(0.12)
    assert cheap["at_equal_tokens"]["value"] == pytest.approx((0.34 + 0.36) / 2)
    assert dear["area_by_iterations"]["value"] == pytest.approx((0.15 * 5 + (0.2 + 0.41) / 2 * 5) / 10)
    (difference,) = summary["differences"]
    assert difference["difference"]["value"] == pytest.approx(0.06)
    assert difference["difference"]["low"] == pytest.approx(0.06), "both seeds differ by the same"
    assert difference["probability_of_improvement"] == 1.0
    # Halfway from .1 to the best mean, .41, is .255, on the way from .2 to .34 and to .36.
    reached = cheap["to_target"]["iterations"]
    assert reached["mean"] == pytest.approx(5 + 5 * (0.055 / 0.14 + 0.055 / 0.16) / 2) and reached["of"] == 2
    assert dear["unaccounted"] == pytest.approx(0.1) and dear["train_minus_test"]["value"] == pytest.approx(
        -0.11
    )
    assert summarise(CURVES, target=0.9)["methods"]["dear"]["to_target"]["tokens"]["mean"] is None


def test_html_escapes_what_it_shows(tmp_path: Path) -> None:
    draw_comparison(CURVES, summarise(CURVES), tmp_path / "c.png")
    bad = [curve("<script>alert(1)</script>", 0, 0.5, 10)]
    page = to_html(build_tables(summarise(bad)), "x & <y>", (tmp_path / "c.png").read_bytes())
    assert "<script" not in page and "x &amp; &lt;y&gt;" in page and "http" not in page


def test_the_report_opens_in_a_browser(browser: Any, tmp_path: Path) -> None:
    draw_comparison(CURVES, summarise(CURVES), tmp_path / "c.png")
    page = to_html(build_tables(summarise(CURVES)), "the command", (tmp_path / "c.png").read_bytes())
    (tmp_path / "report.html").write_text(page)
    tab, faults = browser.new_page(), []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("requestfailed", lambda request: faults.append(request.url))
    tab.goto(f"file://{tmp_path / 'report.html'}")
    assert tab.locator("table").count() == 6 and "dear - cheap" in tab.inner_text("body")
    assert tab.evaluate("document.querySelector('img').naturalWidth") > 400
    assert faults == []
    tab.close()


def test_the_command_runs_reports_and_reuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = [
        "env=sums_short", "algo.prompts=2", "algo.group_size=4", "eval.problems=8", "eval.final_problems=8",
        "samples=0", "algos=[rloo,grpo]", "seeds=1", "budget=iterations:1", f"out={tmp_path}", "workers=2",
        "pass_problems=3", "pass_samples=4",
    ]  # fmt: skip
    assert run(small) == 0
    first = json.loads((tmp_path / "summary.json").read_text())
    assert set(first["methods"]) == {"rloo", "grpo", "oracle"} and first["methods"]["rloo"]["iterations"] == 1
    report = (tmp_path / "report.md").read_text()
    assert (tmp_path / "curves.png").is_file() and "## Headroom" in report and "oracle - " in report
    assert list(first["methods"]["oracle"]["passes"])[:2] == ["pass@1", "pass@2"]
    (tmp_path / "runs" / "grpo-0" / "summary.json").unlink()  # as if it had been killed just before
    before = (tmp_path / "runs" / "rloo-0" / "metrics.jsonl").stat().st_mtime_ns
    assert run(small) == 0 and "2 of 3 runs are there already" in capsys.readouterr().out
    assert (tmp_path / "runs" / "rloo-0" / "metrics.jsonl").stat().st_mtime_ns == before
    assert "going on from iteration_0001" in (tmp_path / "runs" / "grpo-0.log").read_text()
    again = json.loads((tmp_path / "summary.json").read_text())
    assert again["methods"]["grpo"]["final"] == first["methods"]["grpo"]["final"]


def test_names_of_folders_hold_no_signs(tmp_path: Path) -> None:
    (label, override), *rest = parse_sweep("algo.K:1,3")
    assert (label, override) == (" K=1", "algo.K=1") and len(rest) == 1
    folder = Run(Method("vineppo/../x K=1", []), 3, tmp_path).folder
    assert folder.parent == tmp_path and folder.name == "vineppo-..-x-K=1-3"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["algos=[vinepo]"], "Did you mean `algo=vineppo`"),
        (["budget=token:3e6"], "Did you mean 'tokens'"),
        (["budget=tokens:many"], "comes a number from 1 on"),
        (["seeds=0"], "seeds=0 must be at least 1"),
        (["algos=[rloo]", "algo.K=3"], "Unknown key 'algo.K'"),
        (["sweep=algo.K"], "not of the form key:value"),
        (["algos=[]"], "algos is empty"),
    ],
)
def test_bad_input_is_refused_before_any_run(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run([f"out={tmp_path / 'never'}", *arguments])
    assert not (tmp_path / "never").exists()


def test_budgets() -> None:
    assert parse_budget("tokens:3e6") == ("tokens", 3e6) and parse_budget("iterations:7") == ("iterations", 7)
