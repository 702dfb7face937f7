"""Sums in free order: generated problems with worked solutions, and known step truth.

A problem names numbers and asks for their total; they may be added in any order, one a line:

    23 J+1 E+5 D+9=?                       A box holds 23 apples. Jon adds 1. Eve adds 5. ...
    d+9=32
    j+1=33
    e+5=38
    #### 38

Which number comes next does not matter (a choice with real entropy but no value), whether
the line is right does, and a wrong line spoils all that follow. Long problems therefore
have many decisions to tell apart by one reward at the end.
"""

from __future__ import annotations

import random
import re
from typing import Any

from transformers import PreTrainedTokenizerBase

from envs.generated import GeneratedEnv
from envs.sums import WORDINGS, Difficulty, Slips, Sum, demonstrate, value_of
from vineenv.env import RewardFunction
from vineenv.errors import UsageError, unknown
from vineenv.types import Problem, State

LINE = re.compile(r"([a-z])([+-][0-9*]+)=(-?[0-9]+)")


class Arithmetic(GeneratedEnv):
    """Generated sums in free order.

    Args:
        tokenizer: see `ReasoningEnv`.
        reward: see `ReasoningEnv`.
        min_steps: fewest numbers to add.
        max_steps: most numbers to add, at most 26 (one letter each).
        max_start: largest first number; the smallest is 10.
        max_addend: largest number to add; with `max_start` and `max_total` it sets the digits.
        max_total: no total is larger.
        operations: kinds of change, of `+-*`; `*` adds a product, as `+3*4`.
        distractors: numbers in the text that do not count.
        wording: "symbols" or "words".
        slip_total: see `Slips`; of demonstrations only.
        slip_repeat: see `Slips`; of demonstrations only.
        free_order: chance, at each line of a demonstration, that a random number comes next and
            not the first unused one; the entropy of the choices that do not matter.
        demo_min_steps: half of the demonstrations have from this many numbers on; short ones
            are learned first.
        max_new_tokens: see `ReasoningEnv`, as are the further keywords, and `GeneratedEnv`.
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
        operations: str = "+",
        distractors: int = 0,
        wording: str = "symbols",
        slip_total: float = 0.0,
        slip_repeat: float = 0.0,
        free_order: float = 1.0,
        demo_min_steps: int = 2,
        max_new_tokens: int = 96,
        context: int = 256,
        **base: Any,
    ) -> None:
        super().__init__(tokenizer, reward, max_new_tokens=max_new_tokens, context=context, **base)
        if wording not in WORDINGS:
            raise unknown("env.wording", wording, WORDINGS)
        if not 0 <= free_order <= 1:
            raise UsageError(f"env.{free_order=} must lie between 0 and 1.")
        self.difficulty = Difficulty(
            min_steps, max_steps, max_start, max_addend, max_total, operations, distractors
        )
        self.wording, self.free_order = WORDINGS[wording], free_order
        self.slips, self.demo_min_steps = Slips(slip_total, slip_repeat), min(demo_min_steps, min_steps)

    def problem(self, split: str, index: int) -> Problem:
        """Draw problem `index` of a split; what it hashes to keeps the splits disjoint."""
        rng = random.Random(f"{self.data_seed}/{split}/{index}")
        drawn = self._draw(rng, split, self.difficulty.min_steps)
        return self._pose(f"{split}/{index}", drawn, self._solve(drawn, rng, Slips()))

    def demonstration(self, index: int) -> tuple[Problem, str]:
        """Return a training problem, half of the time a shorter one, solved with slips."""
        rng = random.Random(f"{self.data_seed}/demonstration/{index}")
        fewest = self.demo_min_steps if rng.random() < 0.5 else self.difficulty.min_steps
        drawn = self._draw(rng, "train", fewest)
        response = self._solve(drawn, rng, self.slips)
        return self._pose(f"train/demo-{index}", drawn, response), response

    def oracle(self, state: State) -> tuple[bool, int]:
        """Whether every line so far is right, and how many lines are left, the last one included.

        A line is right if its number is in the problem, unused and copied as it stands, and
        its total is the right one. An unfinished line is not judged.
        """
        problem = state.problem.meta.get("sum")
        if not isinstance(problem, Sum):
            return super().oracle(state)
        *lines, _ = self.decode(state.response).split("\n")
        total, unused = problem.start, dict(problem.changes)
        for line in lines:
            match = LINE.fullmatch(line)
            if not match or unused.pop(match[1], None) != match[2]:
                return False, len(unused) + 1
            total += value_of(match[2])
            if int(match[3]) != total:
                return False, len(unused) + 1
        return True, len(unused) + 1

    def _draw(self, rng: random.Random, split: str, fewest: int) -> Sum:
        drawn = self.difficulty.draw(rng, split, fewest)
        if drawn is None:
            raise UsageError(f"Hardly any sum keeps within 0 and env.max_total with {self.difficulty}.")
        return drawn

    def _solve(self, problem: Sum, rng: random.Random, slips: Slips) -> str:
        return demonstrate(problem, rng, slips, self.difficulty.max_total, self.free_order)

    def _pose(self, name: str, problem: Sum, solution: str) -> Problem:
        return Problem(
            name,
            self.wording(problem),
            str(problem.total),
            solution,
            {"sum": problem, "level": len(problem.changes)},
        )
