import asyncio
import json
import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rewards
from rewards import grading
from rewards.extract import EXTRACTORS
from tests.rewards.shared_data import CASES, needs_cases

STYLES = ["boxed", "gsm8k", "plain", "paper"]
MIXED = [
    (r"\boxed{(x+1)^2}", "x^2+2x+1", "boxed", True),
    (r"\boxed{x^2+1}", "(x+1)^2", "boxed", False),
    ("#### 1,234", "1234", "gsm8k", True),
    ("Answer: pi/2", r"\frac{\pi}{2}", "plain", True),
    (r"\boxed{x<3}", r"(-\infty,3)", "boxed", True),
    (r"\boxed{9^{9^9}}", "5", "boxed", False),
]


def cases() -> list[dict]:
    return [json.loads(line) for line in CASES.read_text().strip().split("\n")]


def verdicts(rows: list[tuple[str, str, str, bool]]) -> list[bool]:
    return [rewards.grade(response, reference, style).value > 0 for response, reference, style, _ in rows]


def fresh(index: int) -> list[tuple[str, str, str, bool]]:
    """Mixed rows that no cache knows."""
    return [
        (rf"\boxed{{x+{index}}}", f"{index}+x", "boxed", True),
        (rf"\boxed{{x+{index}}}", "x-1", "boxed", False),
    ]


@needs_cases
def test_accuracy_on_the_shared_cases() -> None:
    rows = [case for case in cases() if not case.get("debatable")]
    wrong = [
        case["id"]
        for case in rows
        if (rewards.grade(case["completion"], case["reference"], case["style"]).value > 0) != case["expected"]
    ]
    assert wrong == []


@needs_cases
def test_verdicts_do_not_depend_on_which_side_is_the_reference() -> None:
    wrap = {"boxed": r"\boxed{%s}", "gsm8k": "#### %s", "plain": "Answer: %s"}
    changed = []
    for case in cases():
        answer = EXTRACTORS[case["style"]](case["completion"])
        if answer is None or "\n" in answer:
            continue
        forward = rewards.grade(case["completion"], case["reference"], case["style"])
        back = rewards.grade(wrap[case["style"]] % case["reference"], answer, case["style"])
        if (forward.value > 0) != (back.value > 0):
            changed.append(case["id"])
    assert changed == []


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "bad",
    [None, b"\\boxed{5}", 5, ["5"], "", "\ud83d", "\\boxed{\ud83d}", "{" * 10**6, "\\boxed{" * 10**5, "\x00"],
)
def test_bad_input_gets_a_status(style: str, bad: object) -> None:
    assert rewards.grade(bad, "5", style).value == 0  # type: ignore[arg-type]
    assert rewards.grade("\\boxed{5}\n#### 5\nAnswer: 5", bad, style).status in ("gold_error", "wrong")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "reference", [None, b"5", "", "  ", "{" * 10**6, r"\frac{1}{", "nan", r"\frac{5}{0}"]
)
def test_a_bad_reference_is_a_gold_error(reference: object) -> None:
    assert rewards.grade(r"\boxed{5}", reference).status == "gold_error"  # type: ignore[arg-type]
    assert rewards.grade(f"Answer: {reference}", reference, "plain").value == 0  # type: ignore[arg-type]


def test_an_unknown_style_is_named() -> None:
    with pytest.raises(ValueError, match=r"'latex'.*boxed, gsm8k, plain, paper"):
        rewards.grade("", "5", "latex")


def test_statuses() -> None:
    assert rewards.grade(r"\boxed{6}", "5").status == "wrong"
    assert rewards.grade("6", "5").status == "no_answer"
    assert rewards.grade(r"\boxed{\frac{}{}}", "5").status == "unparsed"
    assert rewards.grade("Answer: 48*17", "816", "plain").status == "unparsed"
    assert rewards.grade(r"\boxed{5}", "5") == rewards.grade(r"it is \boxed{5}.", "5")
    assert rewards.grade(r"\boxed{5}", "5").extracted == "5"


def test_the_paper_style_is_lenient_and_the_others_are_not() -> None:
    for response, reference in [(r"\boxed{0.28}", "28"), (r"\boxed{3.1415}", "3.1419"), ("perhaps 5", "5")]:
        assert rewards.grade(response, reference, "paper").status == "correct"
        assert rewards.grade(response, reference, "boxed").value == 0


def test_from_eight_threads() -> None:
    rows = MIXED + [row for index in range(20) for row in fresh(index)]
    with ThreadPoolExecutor(8) as threads:
        for result in threads.map(verdicts, [rows] * 8):
            assert result == [expected for *_, expected in rows]


def test_under_asyncio() -> None:
    rows = MIXED + fresh(100)

    async def gather() -> list[list[bool]]:
        direct = verdicts(rows)
        return [direct, *await asyncio.gather(*(asyncio.to_thread(verdicts, rows) for _ in range(4)))]

    assert asyncio.run(gather()) == [[expected for *_, expected in rows]] * 5


def server_id() -> int:
    server = grading.shared_pool()._server
    assert server is not None
    return server.process.pid


def _child(queue: multiprocessing.SimpleQueue) -> None:
    queue.put((verdicts(MIXED + fresh(200)), server_id()))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_a_child_process_and_afterwards_in_the_parent(method: str) -> None:
    expected = [row[3] for row in MIXED + fresh(200)]
    assert verdicts(MIXED + fresh(201)) == expected
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    found, its_server = queue.get()
    assert found == expected
    assert its_server != server_id()
    child.join(30)
    assert child.exitcode == 0
    assert verdicts(MIXED + fresh(202)) == expected


def test_importing_rewards_is_cheap_and_grading_numbers_needs_no_algebra() -> None:
    code = (
        "import sys, rewards; assert 'rewards.grading' not in sys.modules; "
        "assert rewards.grade('#### 5', '5', 'gsm8k').value == 1; "
        "assert rewards.grade(r'\\boxed{x}', 'x').value == 1; "
        "assert not {'sympy', 'mpmath'} & set(sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root).returncode == 0


def test_grading_leaves_no_process_behind() -> None:
    code = (
        "import rewards; rewards.grade(r'\\boxed{x}', 'y'); from rewards import grading; "
        "pool = grading.shared_pool(); print(pool._server.process.pid, pool._idle[0].process_id)"
    )
    root = Path(__file__).resolve().parents[2]
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    assert [pid for pid in out.split() if Path(f"/proc/{pid}").exists()] == []


def test_no_code_in_an_answer_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = tmp_path / "canary"
    monkeypatch.chdir(tmp_path)
    attacks = [
        f"__import__('os').system('touch {canary}')",
        f"open('{canary}','w')",
        rf"[c for c in ().__class__.__base__.__subclasses__()][0]*\pi+open('{canary}','w')",
        f"exec(\"open('{canary}','w').close()\")",
    ]
    for attack in attacks:
        for style, form in [("boxed", r"\boxed{%s}"), ("plain", "Answer: %s"), ("gsm8k", "#### %s")]:
            for reference in ("0", r"2\pi", "None"):
                assert rewards.grade(form % attack, reference, style).value == 0
    assert not canary.exists()


def test_a_timeout_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    grader = grading.Grader("boxed", grading.shared_pool())
    replies = iter(["timeout", "correct"])
    monkeypatch.setattr(grading.shared_pool(), "judge", lambda *_: next(replies))
    assert grader.grade(r"\boxed{x+y}", "y+x").status == "timeout"
    assert grader.grade(r"\boxed{x+y}", "y+x").status == "correct"
    assert grader.grade(r"\boxed{x+y}", "y+x").status == "correct"
