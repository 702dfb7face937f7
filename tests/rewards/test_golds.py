"""Every reference accepts itself and refuses a value beside it."""

import json
import random
from fractions import Fraction

import rewards
from tests.rewards.shared_data import GSM8K, needs_gsm8k

GENERATED = 20_000


@needs_gsm8k
def test_every_gsm8k_answer_accepts_itself_and_refuses_its_neighbours() -> None:
    golds = [
        json.loads(line)["answer"]
        for name in ("train", "test")
        for line in (GSM8K / f"{name}.jsonl").read_text().strip().split("\n")
    ]
    assert len(golds) == 8792
    for gold in golds:
        assert rewards.grade(f"So it is this.\n#### {gold}", gold, "gsm8k").value == 1, gold
        for wrong in (int(gold) + 1, f"{gold}1", f"{gold}.5", f"-{gold}" if gold != "0" else "1"):
            assert rewards.grade(f"#### {wrong}", gold, "gsm8k").value == 0, (wrong, gold)


def written(value: Fraction, source: random.Random) -> str:
    """Write a number in one of the ways that references use."""
    sign, size = "-" if value < 0 else "", abs(value)
    if size.denominator == 1:
        return source.choice(
            [f"{value}", f"{sign}{int(size):,}", f"{sign}{int(size)}.0", f"${sign}{int(size)}"]
        )
    fraction = rf"\frac{{{size.numerator}}}{{{size.denominator}}}"
    whole, rest = divmod(size.numerator, size.denominator)
    mixed = rf"{whole}\frac{{{rest}}}{{{size.denominator}}}" if whole else fraction
    return sign + source.choice([fraction, f"{size.numerator}/{size.denominator}", mixed])


def test_generated_answers_accept_themselves_and_refuse_a_perturbed_value() -> None:
    source = random.Random(7)
    shapes = {"boxed": r"Thus \boxed{%s}.", "gsm8k": "Thus\n#### %s", "plain": "Thus.\nAnswer: %s"}
    for _ in range(GENERATED):
        value = Fraction(source.randint(-(10**6), 10**6), source.choice([1, 1, 1, 2, 3, 7, 10, 12, 100]))
        gold, again = written(value, source), written(value, source)
        beside = written(value + source.choice([1, -1, Fraction(1, 1000), value or 1]), source)
        style = source.choice(list(shapes))
        assert rewards.grade(shapes[style] % again, gold, style).value == 1, (again, gold, style)
        assert rewards.grade(shapes[style] % beside, gold, style).value == 0, (beside, gold, style)


def test_generated_expressions_accept_themselves_and_refuse_a_perturbed_value() -> None:
    source = random.Random(8)
    for _ in range(150):
        a, b, c = (source.randint(1, 99) for _ in range(3))
        shapes = [
            (f"{a}x^2+{b}x+{c}", f"{c}+x({a}x+{b})"),
            (rf"\frac{{{a}\sqrt{{{b}}}}}{{{c}}}", rf"{a}\sqrt{{{b}}}/{c}"),
            (f"({a},{b})", f"({a}.0, {b})"),
            (f"{a},{b},{c + 100}", f"{c + 100},{a},{b}"),
            (f"x<{a}", rf"(-\infty,{a})"),
            (f"y={a}x+{b}", f"{a}x-y+{b}=0"),
        ]
        gold, again = source.choice(shapes)
        wrong = gold.replace(str(a), str(a + 100), 1)
        assert rewards.grade(rf"\boxed{{{again}}}", gold).value == 1, (again, gold)
        assert rewards.grade(rf"\boxed{{{wrong}}}", gold).value == 0, (wrong, gold)
