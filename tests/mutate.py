"""Break estimators, losses and vines, one place at a time, and see whether a test notices.

    python tests/mutate.py [how many, default 60]

Mutants are made from the syntax tree: an operator, a comparison or a number is replaced by
another, or a comparison turned round. A seeded sample of all of them is tried, two at a time,
each in a copy of the project. The last line is one JSON object: `mutants`, `killed`, `survivors`.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.progress import track

ROOT = Path(__file__).parent.parent
TESTS = {
    "algorithms/estimators.py": [
        "test_estimators.py",
        "test_methods.py",
        "test_critic.py",
        "test_exactness.py",
    ],
    "algorithms/losses.py": ["test_losses.py", "test_methods.py", "test_critic.py"],
    "algorithms/credit.py": ["test_critic.py", "test_run.py"],
    "algorithms/dpo_positive.py": ["test_methods.py"],
    "vineenv/vines.py": [
        "../vineenv/test_vines.py",
        "../vineenv/test_allocation.py",
        "../envs/test_calculator.py",
        "test_exactness.py",
    ],
    "vineenv/allocation.py": ["../vineenv/test_allocation.py", "test_exactness.py"],
    "vineenv/rows.py": ["../vineenv/test_collector.py", "../vineenv/test_vines.py", "test_exactness.py"],
}
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or,
    ast.Or: ast.And, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.BitAnd: ast.BitOr,
}  # fmt: skip
# Bounds against overflow and division by zero, which no finite case reaches.
_IGNORED = ("eps", "_MAX_LOG_RATIO", "1e-", ".clamp(min=1)", "raise ", "warnings.warn", "UsageError")


@dataclass(frozen=True)
class Mutant:
    """One changed place of one file."""

    file: str
    line: int
    what: str
    source: str


def mutants(file: str) -> Iterator[Mutant]:
    """All mutants of a file, in the order of their places."""
    text = (ROOT / file).read_text()
    lines, tree = text.splitlines(), ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    places = {id(node) for function in functions for stmt in function.body for node in ast.walk(stmt)}
    nodes = list(ast.walk(tree))
    for number, node in enumerate(nodes):
        line = getattr(node, "lineno", 0)
        if id(node) not in places or any(word in lines[line - 1] for word in _IGNORED):
            continue
        for what, change in _changes(node):
            changed = copy.deepcopy(tree)
            change(list(ast.walk(changed))[number])
            yield Mutant(file, line, f"{lines[line - 1].strip()}  [{what}]", ast.unparse(changed))


def _changes(node: ast.AST) -> Iterator[tuple[str, object]]:
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        swap = SWAPS[type(node.op)]
        yield f"{type(node.op).__name__} -> {swap.__name__}", lambda n: setattr(n, "op", swap())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        other = SWAPS[type(node.ops[0])]
        yield f"{type(node.ops[0]).__name__} -> {other.__name__}", lambda n: setattr(n, "ops", [other()])
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield f"{node.value} -> {node.value + 1}", lambda n: setattr(n, "value", n.value + 1)


def is_killed(mutant: Mutant, copies: list[Path]) -> bool:
    """Whether a test fails on the mutant; `copies` are projects that nobody else is using now."""
    project = copies.pop()
    try:
        (project / mutant.file).write_text(mutant.source)
        tests = [str(Path("tests/algorithms") / name) for name in TESTS[mutant.file]]
        environment = {**os.environ, "PYTHONPATH": str(project), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        run = subprocess.run(command, cwd=project, env=environment, capture_output=True, timeout=600)
        return run.returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        shutil.copy(ROOT / mutant.file, project / mutant.file)
        copies.append(project)


def main() -> None:
    """Try a sample and say which mutants nothing noticed."""
    every = [mutant for file in TESTS for mutant in mutants(file)]
    count = min(int(sys.argv[1]) if len(sys.argv) > 1 else 60, len(every))
    chosen = random.Random(0).sample(every, count)
    with tempfile.TemporaryDirectory() as scratch:
        copies = []
        for number in range(2):
            copies.append(Path(scratch) / str(number))
            ignored = shutil.ignore_patterns(".git", "runs", "build", ".ci-venv", "__pycache__", "*.egg-info")
            shutil.copytree(ROOT, copies[-1], ignore=ignored)
        with ThreadPoolExecutor(2) as pool:
            done = pool.map(lambda mutant: is_killed(mutant, copies), chosen)
            killed = list(track(done, f"{count} of {len(every)} mutants", total=count))
    survivors = [f"{m.file}:{m.line}: {m.what}" for m, dead in zip(chosen, killed, strict=True) if not dead]
    print("\n".join(["survivors:", *survivors]))
    print(json.dumps({"mutants": count, "killed": sum(killed), "survivors": survivors}))


if __name__ == "__main__":
    main()
