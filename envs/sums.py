"""Drawing, wording and solving the sums of `envs.arithmetic`."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from envs.generated import check_operations, check_steps, split_of
from vineenv.errors import UsageError

_NAMES = [
    "Ann",
    "Ben",
    "Cleo",
    "Dan",
    "Eve",
    "Finn",
    "Gia",
    "Hugo",
    "Ida",
    "Jon",
    "Kim",
    "Leo",
    "Mia",
    "Ned",
    "Ola",
    "Pia",
    "Quin",
    "Ron",
    "Sue",
    "Tom",
    "Uma",
    "Vic",
    "Wim",
    "Xia",
    "Yan",
    "Zoe",
]
_TRIES = 1_000


@dataclass(frozen=True)
class Sum:
    """A first number, what is added to it or taken from it, and numbers that do not count.

    Attributes:
        start: the first number.
        changes: by letter: `+5`, `-3` or `+3*4`, in the order of the text.
        distractors: by letter, numbers that are to be left out.
    """

    start: int
    changes: Mapping[str, str]
    distractors: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The answer."""
        return self.start + sum(map(value_of, self.changes.values()))

    @property
    def split(self) -> str:
        """Which split it belongs to, whatever the order of its numbers."""
        plain = sorted((k, int(v) if "*" not in v and v[0] == "+" else v) for k, v in self.changes.items())
        left_out = f"|{sorted(self.distractors)}" if self.distractors else ""
        return split_of(f"{self.start}|{plain}{left_out}")


@dataclass(frozen=True)
class Slips:
    """How often a demonstration errs, so that a model trained on it has skills to improve.

    Attributes:
        total: mean share of lines with a wrong total; between 0 and twice this, depending on
            the units digit and the change, so that there are easy sums and hard ones.
        repeat: share of lines that use a number again.
    """

    total: float = 0.0
    repeat: float = 0.0

    def __post_init__(self) -> None:
        for name, rate in (("slip_total", self.total), ("slip_repeat", self.repeat)):
            if not 0 <= rate <= 0.5:
                raise UsageError(f"env.{name}={rate} must lie between 0 and 0.5.")


@dataclass(frozen=True)
class Difficulty:
    """What sums are drawn: the knobs of `Arithmetic` of the same names."""

    min_steps: int
    max_steps: int
    max_start: int
    max_addend: int
    max_total: int
    operations: str = "+"
    distractors: int = 0

    def __post_init__(self) -> None:
        steps, letters = self.max_steps, len(string.ascii_lowercase)
        check_steps(self.min_steps, steps, letters)
        if not 0 <= self.distractors <= letters - steps:
            raise UsageError(
                f"env needs distractors >= 0 and max_steps + distractors <= {letters}, one letter each; "
                f"got max_steps={steps} distractors={self.distractors}."
            )
        check_operations(self.operations)
        if self.max_start < 10 or self.max_addend < 1:
            raise UsageError(
                "env needs max_start >= 10 and max_addend >= 1, "
                f"got max_start={self.max_start} max_addend={self.max_addend}."
            )
        if 10 + steps > self.max_total:
            raise UsageError(f"No sum of {steps} numbers stays below env.max_total={self.max_total}.")

    def draw(self, rng: random.Random, split: str, fewest: int) -> Sum | None:
        """Draw a sum of at least `fewest` numbers that belongs to a split; None after many tries."""
        for _ in range(_TRIES):
            drawn = self._draw(rng, fewest)
            if drawn is not None and drawn.split == split:
                return drawn
        return None

    def _draw(self, rng: random.Random, fewest: int) -> Sum | None:
        count = rng.randint(fewest, self.max_steps)
        start = rng.randint(10, min(self.max_start, self.max_total - count))
        names = rng.sample(string.ascii_lowercase[: max(18, count)], count)
        addends = [rng.randint(1, self.max_addend) for _ in names]
        while start + sum(addends) > self.max_total:
            place = rng.randrange(count)
            addends[place] = rng.randint(1, addends[place])
        changes = {name: self._sign(rng, n) for name, n in zip(names, addends, strict=True)}
        values = [value_of(change) for change in changes.values()]
        least, most = sum(v for v in values if v < 0), sum(v for v in values if v > 0)
        if start + least < 0 or start + most > self.max_total:
            return None
        unused = [name for name in string.ascii_lowercase if name not in changes]
        left_out = rng.sample(unused, self.distractors) if self.distractors else []
        return Sum(start, changes, {name: rng.randint(1, self.max_addend) for name in left_out})

    def _sign(self, rng: random.Random, number: int) -> str:
        sign = rng.choice(self.operations) if self.operations != "+" else "+"
        return f"+{number}*{rng.randint(2, 9)}" if sign == "*" else f"{sign}{number}"


def value_of(change: str) -> int:
    """What a change adds: 5 for `+5`, -3 for `-3`, 12 for `+3*4`."""
    number, _, times = change.partition("*")
    return int(number) * int(times or 1)


def in_symbols(problem: Sum) -> str:
    """Write `23 J+1 E-5 Q:7=?`: Q does not count."""
    items = [f" {letter.upper()}{change}" for letter, change in problem.changes.items()]
    items = _spread(items, [f" {letter.upper()}:{n}" for letter, n in problem.distractors.items()])
    return f"{problem.start}{''.join(items)}=?\n"


def in_words(problem: Sum) -> str:
    """Write the sum as a short story; people's initials are the letters of the solution."""
    changes = [_tell(_name(letter), change) for letter, change in problem.changes.items()]
    others = [f" {_name(letter)} has {n} hats." for letter, n in problem.distractors.items()]
    story = "".join(_spread(changes, others))
    return f"A box holds {problem.start} apples.{story} How many apples are in the box?\n"


WORDINGS = {"symbols": in_symbols, "words": in_words}


def demonstrate(
    problem: Sum, rng: random.Random, slips: Slips, max_total: int, free_order: float = 1.0
) -> str:
    """Write a worked solution; slips carry on into the lines after them.

    Args:
        problem: the sum.
        rng: where order and slips come from.
        slips: how often lines err.
        max_total: totals are kept between 0 and this.
        free_order: chance that the next number is a random one instead of the first unused one.
    """
    order, lines, total = _order(list(problem.changes), rng, free_order), [], problem.start
    for place, name in enumerate(order):
        used = order[rng.randrange(place)] if place and rng.random() < slips.repeat else name
        total = _add(total, value_of(problem.changes[used]), rng, slips, max_total)
        lines.append(f"{used}{problem.changes[used]}={total}\n")
    return "".join(lines) + f"#### {total}"


def _order(names: list[str], rng: random.Random, free_order: float) -> list[str]:
    shuffled = names.copy()
    rng.shuffle(shuffled)
    if free_order >= 1:
        return shuffled
    order, listed = [], names.copy()
    while listed:
        following = [name for name in shuffled if name in listed]
        chosen = following[0] if rng.random() < free_order else listed[0]
        listed.remove(chosen)
        order.append(chosen)
    return order


def _add(total: int, change: int, rng: random.Random, slips: Slips, max_total: int) -> int:
    # (7u + 13d) mod 10 spreads hard and easy sums over all digits; its mean over them is 4.5.
    hardness = ((7 * (total % 10) + 13 * change) % 10) / 4.5
    right = max(0, min(total + change, max_total))
    if rng.random() >= slips.total * hardness:
        return right
    wrong = right + rng.choice((-1, 1)) * rng.randint(1, 12)
    return max(10, min(wrong, max_total))


def _spread(items: Sequence[str], others: Sequence[str]) -> list[str]:
    """Put the others among the items, at even distances: their places say nothing."""
    out = list(items)
    for i, other in enumerate(others):
        out.insert((i + 1) * len(out) // (len(others) + 1), other)
    return out


def _name(letter: str) -> str:
    return _NAMES[ord(letter) - ord("a")]


def _tell(name: str, change: str) -> str:
    number, _, times = change[1:].partition("*")
    if times:
        return f" {name} adds {number} bags of {times}."
    return f" {name} {'adds' if change[0] == '+' else 'takes'} {number}."
