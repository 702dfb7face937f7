"""The import rule of the architecture, read off the source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = {"vineenv", "envs", "rewards", "algorithms", "configs"}
ALLOWED = {
    "vineenv": {"vineenv"},
    "rewards": {"rewards", "vineenv.types"},
    "envs": {"envs", "vineenv", "rewards"},
    "algorithms": {"algorithms", "vineenv", "configs"},
}


def imported(source: str) -> set[str]:
    """Full names of the modules that a source imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide what is imported"
            names.add(node.module or "")
    return names


def violations(package: str, source: str) -> set[str]:
    ours = {name for name in imported(source) if name.split(".")[0] in OURS}
    return {n for n in ours if not any(n == ok or n.startswith(f"{ok}.") for ok in ALLOWED[package])}


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_packages_import_only_what_they_may(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    found = {str(f.relative_to(ROOT)): violations(package, f.read_text()) for f in files}
    assert {name: bad for name, bad in found.items() if bad} == {}


def test_the_rule_notices_a_breach() -> None:
    assert violations("vineenv", "def f():\n    from algorithms.ppo import PPO") == {"algorithms.ppo"}
    assert violations("rewards", "import vineenv.env") == {"vineenv.env"}
    assert violations("rewards", "from vineenv.types import Reward") == set()
