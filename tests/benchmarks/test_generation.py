"""The script that checks generated problems, on few of them."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.generation import main


def test_no_wrong_answer_and_no_overlap(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["generation", "4000"])
    main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["problems"], found["wrong"], found["overlap"]) == (4000, 0, 0)
    assert set(found["per_second"]) == {"sums", "mixed sums", "stories", "chains"}
