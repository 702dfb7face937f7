"""How fast problems are generated, and whether every gold answer is what the text says.

    python benchmarks/generation.py 100000

The text of each prompt is read with a pattern of its own and added up by sympy. Its last line is one
JSON object: `problems`, `wrong`, `overlap` (texts in more than one split), `per_second`.
"""

from __future__ import annotations

import argparse
import json
import re
import time

from rich.progress import track
from sympy import Integer

from envs.arithmetic import Arithmetic
from envs.calculator import Calculator
from vineenv.assets.tokenizer import build_tokenizer
from vineenv.env import SPLITS, ReasoningEnv
from vineenv.types import Problem

_ITEM = re.compile(r" ([A-Z])([+-])([0-9]+)(?:\*([0-9]+))?(?= |=)")
_STORY = re.compile(r" [A-Z][a-z]+ (adds|takes) ([0-9]+)(?: bags of ([0-9]+))?\.")
_CHANGE = re.compile(r" ([+*-])([0-9]+)(?= |=)")


def told_by_symbols(prompt: str) -> Integer:
    """Add up `23 J+1 E-5=?`."""
    total = Integer(prompt.split(" ", 1)[0])
    for _, sign, number, times in _ITEM.findall(prompt):
        total += Integer(f"{sign}{number}") * Integer(times or 1)
    return total


def told_by_story(prompt: str) -> Integer:
    """Add up `A box holds 23 apples. Jon adds 1. ...`."""
    start = re.search(r"[0-9]+", prompt)
    assert start is not None
    total = Integer(start[0])
    for verb, number, times in _STORY.findall(prompt):
        total += (1 if verb == "adds" else -1) * Integer(number) * Integer(times or 1)
    return total


def told_by_chain(prompt: str) -> Integer:
    """Work out `27 *6 +84=?` from left to right."""
    total = Integer(prompt.split(" ", 1)[0])
    for sign, number in _CHANGE.findall(prompt):
        total = total * Integer(number) if sign == "*" else total + Integer(f"{sign}{number}")
    return total


def families() -> dict[str, tuple[ReasoningEnv, object]]:
    """The generated environments, each with the reader of its text."""
    tokenizer, mixed = build_tokenizer(), {"operations": "+-*", "distractors": 2, "max_total": 199}
    no_reward = lambda response, problem: 0.0  # noqa: E731
    return {
        "sums": (Arithmetic(tokenizer, no_reward), told_by_symbols),
        "mixed sums": (Arithmetic(tokenizer, no_reward, **mixed), told_by_symbols),  # ty: ignore
        "stories": (Arithmetic(tokenizer, no_reward, wording="words", **mixed), told_by_story),  # ty: ignore
        "chains": (Calculator(tokenizer, no_reward, min_steps=4, max_steps=8), told_by_chain),
    }


def generate(env: ReasoningEnv, count: int, label: str) -> tuple[dict[str, list[Problem]], float]:
    """Draw `count` problems, 80 % training; return them by split, and how many a second."""
    shares = {"train": 0.8, "validation": 0.1, "test": 0.1}
    start = time.perf_counter()
    drawn = {
        split: [env.problem(split, i) for i in track(range(int(count * shares[split])), f"{label} {split}")]
        for split in SPLITS
    }
    return drawn, count / (time.perf_counter() - start)


def main() -> None:
    """Generate and check every family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", type=int, nargs="?", default=100_000)
    count = parser.parse_args().problems
    wrong = overlap = 0
    rates = {}
    for name, (env, read) in families().items():
        drawn, rates[name] = generate(env, count // 4, name)
        wrong += sum(read(p.prompt) != Integer(p.answer) for ps in drawn.values() for p in ps)  # ty: ignore
        texts = [{p.prompt for p in drawn[split]} for split in SPLITS]
        overlap += len(texts[0] & texts[1]) + len(texts[0] & texts[2]) + len(texts[1] & texts[2])
        print(f"{name}: {rates[name]:,.0f} problems a second, {wrong} wrong so far, overlap {overlap}")
    per_second = {name: round(rate) for name, rate in rates.items()}
    print(json.dumps({"problems": count, "wrong": wrong, "overlap": overlap, "per_second": per_second}))


if __name__ == "__main__":
    main()
