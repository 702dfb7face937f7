import json
from pathlib import Path

import pytest

from rewards import check, grading

CASES = [
    {
        "id": "a",
        "kind": "k",
        "completion": r"\boxed{5}",
        "reference": "5",
        "style": "boxed",
        "expected": True,
    },
    {
        "id": "b",
        "kind": "k",
        "completion": r"\boxed{5}",
        "reference": "6",
        "style": "boxed",
        "expected": True,
    },
    {"id": "c", "kind": "l", "completion": "#### 5", "reference": "5", "style": "gsm8k", "expected": False},
    {"id": "d", "completion": "#### 6", "reference": "5", "style": "gsm8k", "expected": False},
    {"id": "e", "completion": "5", "reference": "5", "style": "boxed", "expected": True, "debatable": True},
]


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list) -> tuple[str, dict]:
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert check.main([str(path)]) == 0
    out = capsys.readouterr().out
    return out, json.loads(out.splitlines()[-1])


def test_the_last_line_leaves_the_debatable_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, last = run(tmp_path, capsys, CASES)
    assert list(last) == ["accuracy", "false_positive_rate", "crashes", "slowest_s", "grades_per_s", "wrong"]
    assert last["accuracy"] == 0.5
    assert last["false_positive_rate"] == 0.5
    assert last["wrong"] == ["b", "c"]
    assert last["crashes"] == 0
    assert "k                  2     1       0       1" in out
    assert "no_answer 1" in out


def test_a_crash_is_counted_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(grading, "grade", crash)
    _, last = run(tmp_path, capsys, CASES)
    assert last["crashes"] == 5
    assert last["wrong"] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"completion": ""}', "cases.jsonl:1: no field reference, style, expected"),
        ("\n{", "cases.jsonl:2: not JSON"),
        (json.dumps({**CASES[0], "style": "tex"}), "No style 'tex'"),
    ],
)
def test_a_bad_file_is_refused_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(text)
    with pytest.raises(SystemExit):
        check.main([str(path)])
    assert message in capsys.readouterr().err
