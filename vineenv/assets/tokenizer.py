"""The tiny model's tokenizer: printable ASCII, single digits, a few merges for labels."""

from __future__ import annotations

import string

from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the character-level tokenizer of the shipped tiny model.

    Digits are never merged, so numbers are read and written digit by digit. The only
    merges are labels (" A", " A+", "a+") and the answer mark ("#### ").
    """
    pieces = [PAD, EOS, UNK, "\n", *(chr(code) for code in range(32, 127))]
    merges: list[tuple[str, str]] = [("#", "#"), ("##", "##"), ("####", " ")]
    merges += [(" ", letter) for letter in string.ascii_uppercase]
    merges += [(f" {letter}", "+") for letter in string.ascii_uppercase]
    merges += [(letter, "+") for letter in string.ascii_lowercase]
    pieces += [left + right for left, right in merges]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=UNK))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(token, special=True) for token in (PAD, EOS, UNK)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
