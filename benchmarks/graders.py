"""How fast answers are graded, against math-verify in the same run: `python benchmarks/graders.py`.

One process, one thread. Every answer is new, so no cache helps. math-verify is imported if it is installed
here; otherwise name an interpreter that has it: `--math-verify-python PATH`. The last line is a JSON object;
`vs_math_verify` is the smaller of the two ratios, null where math-verify is not to be had.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

REPEATS = 3
SIZES = {"ours": 20_000, "math_verify": 400}
HOSTILE = [
    r"9^{9^{9}}", r"10^{10^{10}}", "100000000!", r"\binom{1000000000}{500000000}", "(x+y+z+w+1)^{400}",
    r"\sin(10^{10^{10}})", r"\sum_{k=1}^{10^{12}} \frac{1}{k^2}", r"\int_0^1 x^{x^x} dx", "9!!!!!",
    "2**9999999999",
    "7" * 6000, "1+" * 700 + "1", r"\frac{1}{1+" * 300 + "1" + "}" * 300, r"\tan(" * 60 + "x" + ")" * 60,
    "__import__('os').system('true')", "x^" * 400 + "x", "\\boxed{" * 500, r"\prod_{n=1}^{100000000} n",
]  # fmt: skip

Pair = tuple[str, str]
Grade = Callable[[str, str], object]
Make = Callable[[int, random.Random], list[Pair]]


def integers(count: int, source: random.Random) -> list[Pair]:
    """Return responses with a boxed integer, right two times in three, and their references."""
    values = [source.randint(-(10**6), 10**6) for _ in range(count)]
    return [(rf"So the total is $\boxed{{{n + (n % 3 == 0)}}}$.", str(n)) for n in values]


def fractions(count: int, source: random.Random) -> list[Pair]:
    r"""Return responses with a boxed `\frac`, right two times in three, and their references."""
    values = [(source.randint(1, 10**4), source.randint(2, 10**3)) for _ in range(count)]
    return [
        (rf"So it is $\boxed{{\frac{{{n + (n % 3 == 0)}}}{{{d}}}}}$.", rf"\frac{{{n}}}{{{d}}}")
        for n, d in values
    ]


def rate(grade: Grade, make: Make, count: int) -> float:
    """Return the best rate of a few repeats, in grades a second."""
    best = 0.0
    for repeat in range(REPEATS):
        pairs = make(count, random.Random(repeat))
        start = time.perf_counter()
        for response, reference in pairs:
            grade(response, reference)
        best = max(best, count / (time.perf_counter() - start))
    return best


def rates(grade: Grade, count: int) -> dict[str, float]:
    """Return the rates of a grader on integers and on fractions."""
    return {"integers": rate(grade, integers, count), "fractions": rate(grade, fractions, count)}


def math_verify_rates(interpreter: str | None) -> dict[str, float] | None:
    """Measure math-verify here, or in another interpreter; None where it is not to be had."""
    if interpreter is not None:
        command = [interpreter, str(Path(__file__).resolve()), "--only-math-verify"]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return json.loads(out.splitlines()[-1])
    if importlib.util.find_spec("math_verify") is None:
        return None
    from math_verify import parse, verify  # ty: ignore[import-not-found]

    return rates(
        lambda response, gold: verify(parse(rf"\boxed{{{gold}}}"), parse(response)), SIZES["math_verify"]
    )


def hostile_ratio() -> float:
    """Return the throughput with 1 % hostile answers among 10,000 over that without."""
    from rewards import grade

    return rate(grade, mixed, 10_000) / rate(grade, ordinary, 10_000)


def ordinary(count: int, source: random.Random) -> list[Pair]:
    """Return as many integers as fractions."""
    return integers(count // 2, source) + fractions(count // 2, source)


def mixed(count: int, source: random.Random) -> list[Pair]:
    """Return ordinary answers, one in a hundred replaced by a hostile one with a new reference."""
    pairs = ordinary(count, source)
    for place, at in enumerate(source.sample(range(count), count // 100)):
        pairs[at] = rf"\boxed{{{HOSTILE[place % len(HOSTILE)]}}}", str(source.randint(10**6, 10**9))
    return pairs


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--math-verify-python", help="an interpreter that has math-verify")
    parser.add_argument("--only-math-verify", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.only_math_verify:
        print(json.dumps(math_verify_rates(None)))
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from rewards import grade

    grade(r"\boxed{x}", "y")
    ours = rates(grade, SIZES["ours"])
    theirs = math_verify_rates(options.math_verify_python)
    for kind, value in ours.items():
        print(f"{kind:<10} {value:>10,.0f}/s" + (f"   math-verify {theirs[kind]:>8,.0f}/s" if theirs else ""))
    ratio = round(min(ours[kind] / theirs[kind] for kind in ours), 1) if theirs else None
    figures = {
        "integers_per_s": round(ours["integers"]),
        "fractions_per_s": round(ours["fractions"]),
        "vs_math_verify": ratio,
        "hostile_ratio": round(hostile_ratio(), 3),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
