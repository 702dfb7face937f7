"""What the guide to a new environment says, run as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

GUIDE = ROOT / "docs" / "new_environment.md"
ENVIRONMENTS = ROOT / "docs" / "environments.md"
BLOCK = re.compile(
    r"(?:^`(?P<file>[\w/.]+)`\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def test_the_guide_to_a_new_environment_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    ran = []
    for block in BLOCK.finditer(GUIDE.read_text()):
        text = block["text"]
        if block["file"]:
            path = tmp_path / block["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            continue
        lines = (
            [["-c", text]]
            if block["kind"] == "python"
            else [shlex.split(line)[1:] for line in text.splitlines()]
        )
        for arguments in lines:
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
            ran.append(arguments[:2])
    assert [a[1] for a in ran if a[0] == "-m"] == ["algorithms.check", "algorithms.sft", "algorithms.run"]
    assert (tmp_path / "start" / "model.safetensors").is_file() and list((tmp_path / "runs").glob("*/policy"))


def test_the_example_of_exact_values_runs() -> None:
    (example,) = [b["text"] for b in BLOCK.finditer(ENVIRONMENTS.read_text()) if b["kind"] == "python"]
    made: dict[str, object] = {}
    exec(compile(example, "environments.md", "exec"), made)
    assert {"values", "policy"} & set(made)
