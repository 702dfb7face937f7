"""Sums in free order: generated problems with worked solutions, and known step truth.

A problem names numbers and asks for their total; they may be added in any order, one a line:

    23 J+1 E+5 D+9=?
    d+9=32
    j+1=33
    e+5=38
    #### 38

Which number comes next does not matter (a choice with real entropy but no value), whether
the line is right does, and a wrong line spoils all that follow. Long problems therefore
have many decisions to tell apart by one reward at the end.
"""

from __future__ import annotations

import hashlib
import random
import re
import string
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from vineenv.env import ReasoningEnv, RewardFunction
from vineenv.errors import UsageError
from vineenv.types import Problem, State

LINE = re.compile(r"([a-z])\+([0-9]+)=([0-9]+)")
# Shares of problem space, in 64ths: what a problem hashes to decides its split.
_SPLIT_OF_BUCKET = ("test",) * 8 + ("validation",) * 8 + ("train",) * 48


@dataclass(frozen=True)
class Slips:
    """How often a demonstration errs, so that a model trained on it has skills to improve.

    Attributes:
        total: mean share of lines with a wrong total; between 0 and twice this, depending on
            the units digit and the addend, so that there are easy sums and hard ones.
        repeat: share of lines that use a number again.
    """

    total: float = 0.0
    repeat: float = 0.0


class Arithmetic(ReasoningEnv):
    """Generated sums in free order.

    Args:
        tokenizer: see `ReasoningEnv`.
        reward: see `ReasoningEnv`.
        min_steps: fewest numbers to add.
        max_steps: most numbers to add, at most 26 (one letter each).
        max_start: largest first number; the smallest is 10.
        max_addend: largest number to add.
        max_total: no total is larger.
        train_size: problems of the training split.
        heldout_size: problems of the validation and of the test split.
        slip_total: see `Slips`; of demonstrations only.
        slip_repeat: see `Slips`; of demonstrations only.
        demo_min_steps: half of the demonstrations have from this many numbers on; short ones
            are learned first.
        data_seed: another seed gives another set of problems.
        max_new_tokens: see `ReasoningEnv`, as are the further keywords.
        context: see `ReasoningEnv`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        reward: RewardFunction,
        *,
        min_steps: int = 10,
        max_steps: int = 12,
        max_start: int = 29,
        max_addend: int = 9,
        max_total: int = 99,
        train_size: int = 100_000,
        heldout_size: int = 5_000,
        slip_total: float = 0.0,
        slip_repeat: float = 0.0,
        demo_min_steps: int = 2,
        data_seed: int = 0,
        max_new_tokens: int = 96,
        context: int = 256,
        **base: Any,
    ) -> None:
        super().__init__(tokenizer, reward, max_new_tokens=max_new_tokens, context=context, **base)
        if not 1 <= min_steps <= max_steps <= 26:
            raise UsageError(f"env needs 1 <= min_steps <= max_steps <= 26, got {min_steps=} {max_steps=}.")
        if max_start < 10 or max_addend < 1:
            raise UsageError(
                f"env needs max_start >= 10 and max_addend >= 1, got {max_start=} {max_addend=}."
            )
        if 10 + max_steps > max_total:
            raise UsageError(f"No sum of {max_steps} numbers stays below env.max_total={max_total}.")
        for name, rate in (("slip_total", slip_total), ("slip_repeat", slip_repeat)):
            if not 0 <= rate <= 0.5:
                raise UsageError(f"env.{name}={rate} must lie between 0 and 0.5.")
        for name, size in (("train_size", train_size), ("heldout_size", heldout_size)):
            if size < 1:
                raise UsageError(f"env.{name}={size}: the data would be empty; at least 1.")
        self.min_steps, self.max_steps = min_steps, max_steps
        self.max_start, self.max_addend, self.max_total = max_start, max_addend, max_total
        self.train_size, self.heldout_size, self.data_seed = train_size, heldout_size, data_seed
        self.slips, self.demo_min_steps = Slips(slip_total, slip_repeat), min(demo_min_steps, min_steps)

    def size(self, split: str) -> int:
        """How many problems the split has."""
        return self.train_size if split == "train" else self.heldout_size

    def problem(self, split: str, index: int) -> Problem:
        """Draw problem `index` of a split; what it hashes to keeps the splits disjoint."""
        rng = random.Random(f"{self.data_seed}/{split}/{index}")
        start, addends = self._draw(rng, split, self.min_steps)
        solution = demonstrate(start, addends, rng, Slips(), self.max_total)
        return _pose(f"{split}/{index}", start, addends, solution)

    def demonstration(self, index: int) -> tuple[Problem, str]:
        """Return a training problem, half of the time a shorter one, solved with slips."""
        rng = random.Random(f"{self.data_seed}/demonstration/{index}")
        fewest = self.demo_min_steps if rng.random() < 0.5 else self.min_steps
        start, addends = self._draw(rng, "train", fewest)
        response = demonstrate(start, addends, rng, self.slips, self.max_total)
        return _pose(f"train/demo-{index}", start, addends, response), response

    def oracle(self, state: State) -> tuple[bool, int]:
        """Whether every line so far is right, and how many lines are left, the last one included.

        A line is right if its number is in the problem, unused and copied as it stands, and
        its total is the right one. An unfinished line is not judged.
        """
        if "addends" not in state.problem.meta:
            return super().oracle(state)
        *lines, _ = self.decode(state.response).split("\n")
        total, unused = state.problem.meta["start"], dict(state.problem.meta["addends"])
        for line in lines:
            match = LINE.fullmatch(line)
            if not match or unused.pop(match[1], None) != int(match[2]):
                return False, max(len(unused), 0) + 1
            total += int(match[2])
            if int(match[3]) != total:
                return False, len(unused) + 1
        return True, len(unused) + 1

    def _draw(self, rng: random.Random, split: str, fewest: int) -> tuple[int, dict[str, int]]:
        while True:
            count = rng.randint(fewest, self.max_steps)
            start = rng.randint(10, min(self.max_start, self.max_total - count))
            names = rng.sample(string.ascii_lowercase[: max(18, count)], count)
            addends = [rng.randint(1, self.max_addend) for _ in names]
            while start + sum(addends) > self.max_total:
                place = rng.randrange(count)
                addends[place] = rng.randint(1, addends[place])
            drawn = dict(zip(names, addends, strict=True))
            if split_of(start, drawn) == split:
                return start, drawn


def _pose(name: str, start: int, addends: dict[str, int], solution: str) -> Problem:
    prompt = f"{start}" + "".join(f" {letter.upper()}+{n}" for letter, n in addends.items()) + "=?\n"
    answer = str(start + sum(addends.values()))
    return Problem(name, prompt, answer, solution, {"start": start, "addends": addends})


def split_of(start: int, addends: dict[str, int]) -> str:
    """Which split a problem belongs to, whatever the order of its numbers."""
    canonical = f"{start}|{sorted(addends.items())}".encode()
    return _SPLIT_OF_BUCKET[hashlib.blake2b(canonical, digest_size=1).digest()[0] % len(_SPLIT_OF_BUCKET)]


def demonstrate(start: int, addends: dict[str, int], rng: random.Random, slips: Slips, max_total: int) -> str:
    """Write a worked solution in a random order; slips carry on into the lines after them."""
    order, lines, total = list(addends), [], start
    rng.shuffle(order)
    for place, name in enumerate(order):
        used = order[rng.randrange(place)] if place and rng.random() < slips.repeat else name
        total = _add(total, addends[used], rng, slips, max_total)
        lines.append(f"{used}+{addends[used]}={total}\n")
    return "".join(lines) + f"#### {total}"


def _add(total: int, addend: int, rng: random.Random, slips: Slips, max_total: int) -> int:
    # (7u + 13d) mod 10 spreads hard and easy sums over all digits; its mean over them is 4.5.
    hardness = ((7 * (total % 10) + 13 * addend) % 10) / 4.5
    right = min(total + addend, max_total)
    if rng.random() >= slips.total * hardness:
        return right
    wrong = right + rng.choice((-1, 1)) * rng.randint(1, 12)
    return max(10, min(wrong, max_total))
