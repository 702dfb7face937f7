r"""GSM8K: grade-school word problems, answer after `####` (Cobbe et al. 2021, arXiv 2110.14168).

A row, in the layout of the original files (the answer holds the solution) or with fields of
its own:

    {"question": "Weng earns $12 an hour…", "answer": "Weng earns 12/60 = $<<12/60=0.2>>0.2…\n#### 10"}
    {"problem": "Weng earns $12 an hour…", "solution": "Weng earns 12/60…", "answer": "10"}
"""

from __future__ import annotations

import re
from typing import Any

from transformers import PreTrainedTokenizerBase

from envs.data import Fields, Row, find_file, load_rows
from vineenv.env import ReasoningEnv, RewardFunction
from vineenv.errors import UsageError
from vineenv.segment import GSM8KLines
from vineenv.types import Problem

_CALCULATOR = re.compile(r"<<[^<>]*>>")
_MARK = "####"


class GSM8K(ReasoningEnv):
    """GSM8K from a folder with `train` and `test` files, or a hub name.

    Args:
        tokenizer: see `ReasoningEnv`.
        reward: see `ReasoningEnv`; `reward=exact` grades the text after the last `####`.
        path: folder, or hub name.
        prompt: how a question is put; `{problem}` stands for it.
        validation_size: the last rows of `train` are the validation split.
        calculator: keep the calculator marks `<<12/60=0.2>>` in worked solutions.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        reward: RewardFunction,
        *,
        path: str,
        prompt: str,
        validation_size: int,
        calculator: bool = False,
        **base: Any,
    ) -> None:
        base["segmenter"] = base.get("segmenter") or GSM8KLines(tokenizer)
        super().__init__(tokenizer, reward, **base)
        if "{problem}" not in prompt:
            raise UsageError(f"env.prompt={prompt!r} has no {{problem}} for the question.")
        train = load_rows(find_file(path, "train"), "train", Fields())
        test = load_rows(find_file(path, "test"), "test", Fields())
        if not 1 <= validation_size < len(train):
            raise UsageError(f"env.validation_size={validation_size} must be between 1 and {len(train) - 1}.")
        self.rows = {"train": train[:-validation_size], "validation": train[-validation_size:], "test": test}
        self.prompt, self.calculator = prompt, calculator

    def size(self, split: str) -> int:
        """How many problems the split has."""
        return len(self.rows[split])

    def problem(self, split: str, index: int) -> Problem:
        """Return row `index` of a split."""
        row = self.rows[split][index]
        solution, answer = split_answer(row)
        if solution is not None and not self.calculator:
            solution = _CALCULATOR.sub("", solution)
        worked = None if solution is None else f"{solution}\n{_MARK} {answer}"
        return Problem(
            f"{split}/{index}", self.prompt.replace("{problem}", row.problem), answer, worked, row.meta
        )


def split_answer(row: Row) -> tuple[str | None, str]:
    """Worked solution and final answer of a row, in either layout.

    Raises:
        UsageError: the row has neither a solution field nor a `####` in its answer.
    """
    if row.solution is not None:
        return row.solution.rpartition(_MARK)[0].rstrip("\n") or row.solution, row.answer.strip()
    solution, mark, answer = row.answer.rpartition(_MARK)
    if not mark:
        return None, row.answer.strip()
    return solution.rstrip("\n"), answer.strip().replace(",", "")
