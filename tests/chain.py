"""An environment with known values: `length` tokens, each right with the same probability."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from vineenv.env import ReasoningEnv
from vineenv.segment import Fixed
from vineenv.types import Problem, State


def letters_tokenizer(letters: Sequence[str] = "abcdef") -> PreTrainedTokenizerFast:
    """One token a letter, and an end-of-sequence token that the chain never needs."""
    vocab = {"<pad>": 0, "<eos>": 1} | {letter: i + 2 for i, letter in enumerate(letters)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>")


class Chain(ReasoningEnv):
    """Reward 1 if all of `length` tokens are among `right`.

    A policy that draws uniformly from V tokens is right with p = len(right) / V at each,
    so V(s) = p ** (tokens left) as long as all were right, and 0 afterwards.
    """

    def __init__(self, length: int = 6, right: str = "abcde") -> None:
        super().__init__(
            letters_tokenizer(),
            lambda text, _: float(len(text) == length and set(text) <= set(right)),
            max_new_tokens=length,
            context=32,
            segmenter=Fixed(letters_tokenizer(), size=1),
        )
        self.length, self.right = length, right

    def size(self, split: str) -> int:
        return 4

    def problem(self, split: str, index: int) -> Problem:
        return Problem(f"{split}/{index}", "abcdef"[index] + "f", answer=self.right)

    def decided(self, state: State) -> bool:
        return len(state.response) >= self.length

    def true_value(self, state: State) -> float:
        """V(s) under the uniform policy; an early end of sequence fails too."""
        if not set(self.decode(state.response)) <= set(self.right):
            return 0.0
        return (len(self.right) / self.vocab_size) ** (self.length - len(state.response))
