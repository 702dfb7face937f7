"""Any task of the reasoning-gym package (Stojanovski et al. 2025, arXiv 2505.24760), by name.

Rewards compare the whole answer (`reward=text`). The package's own scorers are not used: they
give part of the reward to wrong answers, read `1,200` as 1, and one uses today's date.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from envs.generated import GeneratedEnv
from vineenv.env import RewardFunction
from vineenv.errors import UsageError, unknown
from vineenv.types import Problem

_TRIES = 100
_SEEDS = {"train": 0, "validation": 1, "test": 2}
MARK = "####"


class ReasoningGym(GeneratedEnv):
    """One task, with splits that share no question.

    Args:
        tokenizer: see `ReasoningEnv`.
        reward: see `ReasoningEnv`; `reward=text` compares what follows the last `####`.
        task: name of the task, as `chain_sum`.
        settings: the task's own knobs, as `{max_terms: 3}`.
        prompt: how a question is put; `{problem}` stands for it.
        heldout_size: see `GeneratedEnv`, as are the further keywords.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        reward: RewardFunction,
        *,
        task: str,
        prompt: str,
        settings: dict[str, Any] = {},  # noqa: B006 (a default that the configuration copies)
        heldout_size: int = 500,
        **base: Any,
    ) -> None:
        super().__init__(tokenizer, reward, heldout_size=heldout_size, **base)
        if "{problem}" not in prompt:
            raise UsageError(f"env.prompt={prompt!r} has no {{problem}} for the question.")
        self.prompt = prompt
        self._data = {
            split: _create(task, 3 * self.data_seed + seed, _TRIES * self.size(split), settings)
            for split, seed in _SEEDS.items()
        }
        self._found: dict[tuple[str, int], int] = {}

    def problem(self, split: str, index: int) -> Problem:
        """Return problem `index` of a split.

        Raises:
            UsageError: the task has too few questions to keep the splits apart.
        """
        entry = self._data[split][self._place(split, index)]
        # Only gsm_symbolic works its answers out; its last line may say 8.0 where the answer is 8.
        worked = str(entry["metadata"].get("answer_cot", "")).rpartition(MARK)[0]
        solution = f"{worked}{MARK} {entry['answer']}"
        prompt = self.prompt.replace("{problem}", str(entry["question"]))
        return Problem(f"{split}/{index}", prompt, str(entry["answer"]), solution)

    def _place(self, split: str, index: int) -> int:
        """Index of the first item, in steps of the split's size, whose question no earlier split holds."""
        key = split, index
        if key not in self._found:
            taken = self._taken(split)
            places = (index + step * self.size(split) for step in range(_TRIES))
            found = next((p for p in places if self._data[split][p]["question"] not in taken), None)
            if found is None:
                raise UsageError(
                    f"The task has too few questions to keep {self.heldout_size} of them out of the {split} "
                    "split: make env.heldout_size smaller, or the task harder by env.settings."
                )
            self._found[key] = found
        return self._found[key]

    def _taken(self, split: str) -> frozenset[str]:
        if split == "test":
            return frozenset()
        return self._test if split == "validation" else self._test | self._validation

    @functools.cached_property
    def _test(self) -> frozenset[str]:
        return self._questions("test")

    @functools.cached_property
    def _validation(self) -> frozenset[str]:
        return self._questions("validation")

    def _questions(self, split: str) -> frozenset[str]:
        data = self._data[split]
        return frozenset(data[self._place(split, i)]["question"] for i in range(self.size(split)))


def _create(task: str, seed: int, size: int, settings: Mapping[str, Any]) -> Any:
    try:
        from reasoning_gym import create_dataset
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise UsageError("This environment needs reasoning-gym: pip install 'vineenv[gym]'.") from error
    if task not in DATASETS:
        raise unknown("env.task", task, DATASETS)
    try:
        return create_dataset(task, seed=seed, size=size, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise UsageError(f"env.settings={dict(settings)} for task {task!r}: {error}") from error
