"""A small token tree in which every value can be worked out: see `vineenv.exact`.

An episode is `depth` letters, each one of `branching`; what the word pays is drawn with the
problem. Any other token ends the episode and pays nothing. The prompt only names the problem.
"""

from __future__ import annotations

import itertools
import random
import string
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from envs.generated import GeneratedEnv
from vineenv.env import SPLITS, RewardFunction, as_reward
from vineenv.errors import UsageError, unknown
from vineenv.segment import Fixed
from vineenv.types import Problem, Reward, State

WHERE = ("anywhere", "first", "last")
MOST_WORDS = 100_000


class Tree(GeneratedEnv):
    """Words of letters, some of which pay.

    Args:
        tokenizer: has each letter as one token.
        reward: see `ReasoningEnv`; `reward=leaf` pays what the problem says.
        branching: letters to choose from.
        depth: letters of a word.
        good: share of the choices that pay 1; at least one word does.
        where: which choices decide: words are drawn one by one ("anywhere"), or a letter is, and the
            words that have it "first" or "last" pay.
        decoy: what every word pays that begins with one letter, the decoy, of which no word pays
            more; 0 is none. Above the mean of the other words it misleads the first step: the
            letter looks best to a policy that then chooses at random, and is not.
        train_size: see `GeneratedEnv`, as are `heldout_size` and `data_seed`.
        heldout_size: see `GeneratedEnv`.
        data_seed: see `GeneratedEnv`.
        split: see `ReasoningEnv`, as is `render_mode`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        reward: RewardFunction,
        *,
        branching: int = 3,
        depth: int = 4,
        good: float = 0.2,
        where: str = "anywhere",
        decoy: float = 0.0,
        train_size: int = 64,
        heldout_size: int = 64,
        data_seed: int = 0,
        split: str = "train",
        render_mode: str | None = None,
    ) -> None:
        letters = string.ascii_lowercase[:branching]
        if not 2 <= branching <= 26 or depth < 1 or branching**depth > MOST_WORDS:
            raise UsageError(
                f"env needs 2 <= branching <= 26, depth >= 1 and at most {MOST_WORDS:,} words, "
                f"got {branching=} {depth=}."
            )
        if where not in WHERE:
            raise unknown("env.where", where, WHERE)
        if not 0 < good <= 1 or not 0 <= decoy < 1:
            raise UsageError(f"env needs 0 < good <= 1 and 0 <= decoy < 1, got {good=} {decoy=}.")
        self.letters, self.depth, self.good, self.where, self.decoy = letters, depth, good, where, decoy
        self.name_length = len(_in_letters(3 * max(train_size, heldout_size), letters, 0))
        super().__init__(
            tokenizer,
            reward,
            split=split,
            train_size=train_size,
            heldout_size=heldout_size,
            data_seed=data_seed,
            max_new_tokens=depth,
            context=self.name_length + depth + 1,
            segmenter=Fixed(tokenizer, size=1),
            render_mode=render_mode,
        )
        tokens = [self.encode(letter) for letter in letters]
        if bad := [letter for letter, ids in zip(letters, tokens, strict=True) if len(ids) != 1]:
            raise UsageError(f"env.branching={branching}: {', '.join(bad)} are not single tokens here.")
        self.actions = tuple(ids[0] for ids in tokens)
        self._stop_ids = tuple(i for i in range(self.vocab_size) if i not in self.actions)
        best = self.problem("train", 0)
        if as_reward(reward(best.answer, best)).value <= 0:
            raise UsageError(f"This reward pays nothing for {best.answer!r}, the best word: use reward=leaf.")

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Every token that is no letter of the tree."""
        return self._stop_ids

    def decided(self, state: State) -> bool:
        """Whether the word is whole, or something else was written."""
        response = state.response
        return len(response) >= self.depth or any(token not in self.actions for token in response)

    def problem(self, split: str, index: int) -> Problem:
        """Draw the tree of a problem; `meta["pays"]` says what each word pays."""
        rng = random.Random(f"{self.data_seed}/tree/{split}/{index}")
        pays = self._draw(rng)
        best = max(pays, key=lambda word: pays[word])
        name = _in_letters(3 * index + SPLITS.index(split), self.letters, self.name_length)
        return Problem(f"{split}/{index}", name, best, best, {"pays": pays})

    def oracle(self, state: State) -> tuple[bool, int]:
        """Whether the best word can still be written, and how many letters are left."""
        pays = state.problem.meta.get("pays")
        if pays is None:
            return super().oracle(state)
        begun = self.decode(state.response)
        best = max((pay for word, pay in pays.items() if word.startswith(begun)), default=-1.0)
        return best == max(pays.values()), max(1, self.depth - len(state.response))

    def _grade(self, ended: Sequence[tuple[tuple[State, bool, bool], str]]) -> list[Reward]:
        # Text does not tell the token "ab", which is no letter of the tree, from "a" and "b".
        letters = [all(token in self.actions for token in moved[0].response) for moved, _ in ended]
        return super()._grade(
            [(moved, text if kept else "") for kept, (moved, text) in zip(letters, ended, strict=True)]
        )

    def _draw(self, rng: random.Random) -> dict[str, float]:
        words = ["".join(word) for word in itertools.product(self.letters, repeat=self.depth)]
        decoy = rng.choice(self.letters) if self.decoy else None
        others = [word for word in words if word[0] != decoy]
        key = {"anywhere": lambda word: word, "first": lambda word: word[0], "last": lambda word: word[-1]}
        deciding = sorted({key[self.where](word) for word in others})
        paying = {choice for choice in deciding if rng.random() < self.good} or {rng.choice(deciding)}
        pays = {word: float(key[self.where](word) in paying) for word in words}
        if decoy is not None:
            pays.update({word: self.decoy for word in words if word[0] == decoy})
        return pays


def _in_letters(number: int, letters: str, length: int) -> str:
    """Write a number with letters as digits, filled up to a length."""
    digits = ""
    while number or not digits:
        number, digit = divmod(number, len(letters))
        digits = letters[digit] + digits
    return digits.rjust(length, letters[0])
