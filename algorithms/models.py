"""Language models: loading them, log-probabilities of actions, and the critic."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from vineenv.assets.tokenizer import build_tokenizer
from vineenv.errors import UsageError, unknown

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_LOGIT_CHUNK = 1 << 26  # elements of one chunk of logits: 256 MiB in float32


class ModelSource:
    """Where a model and its tokenizer come from; nothing is loaded before it is asked for.

    Args:
        path: a local folder, a hub name, or `asset:NAME` for one shipped with the package.
        arch: a Hugging Face configuration to start from scratch (`model_type` and its sizes),
            with the shipped character tokenizer.
        dtype: "float32" or "bfloat16".
    """

    def __init__(self, *, path: str, arch: dict[str, Any] | None = None, dtype: str = "float32") -> None:
        if dtype not in DTYPES:
            raise unknown("model.dtype", dtype, DTYPES)
        self.arch, self.dtype = arch, DTYPES[dtype]
        self.path = path

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer of `path`."""
        return self._load(AutoTokenizer)

    def config(self) -> PretrainedConfig:
        """Load the configuration of `path`, without weights."""
        return self._load(AutoConfig)

    def load(self) -> PreTrainedModel:
        """Load the model of `path`, in evaluation mode: dropout would make ratios differ from 1."""
        return self._load(AutoModelForCausalLM, dtype=self.dtype, use_safetensors=True).eval()

    def fresh(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return a randomly initialised model of `arch`, and its tokenizer."""
        if not self.arch:
            raise UsageError("Training from scratch needs model.arch; this model has none.")
        tokenizer = build_tokenizer()
        ids = {
            "pad_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "bos_token_id": None,
        }
        config = AutoConfig.for_model(**self.arch, vocab_size=len(tokenizer), **ids)
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=self.dtype).eval(), tokenizer

    def _load(self, auto: Any, **options: Any) -> Any:
        folder = _asset(self.path.removeprefix("asset:")) if self.path.startswith("asset:") else self.path
        try:
            return auto.from_pretrained(folder, trust_remote_code=False, **options)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UsageError(
                f"model.path={self.path!r} cannot be loaded: {reason} "
                "Give a folder with a Hugging Face model, a hub name, or choose model=tiny."
            ) from error


def _asset(name: str) -> str:
    folder = Path(str(files("vineenv.assets"))) / name
    if not (folder / "config.json").is_file():
        known = [p.parent.name for p in folder.parent.glob("*/config.json")]
        raise unknown("shipped model", name, known)
    return str(folder)


def multiplied_parameters(model: PreTrainedModel) -> int:
    """How many weights a token is multiplied with: all but the tables that it is only looked up in.

    A head that shares the input embedding's table is multiplied with, so it counts once.
    """
    head = model.get_output_embeddings()
    shared = None if head is None else head.weight
    looked_up = {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, nn.Embedding) and module.weight is not shared
    }
    return sum(p.numel() for p in model.parameters() if id(p) not in looked_up)


def load_weights(model: PreTrainedModel, folder: Path) -> None:
    """Give a model the weights that `save_pretrained` wrote of it."""
    saved = type(model).from_pretrained(folder, dtype=model.dtype, use_safetensors=True)
    model.load_state_dict(saved.state_dict())


class ActionLogProbs(nn.Module):
    """A causal language model as the log-probabilities of the actions in state-aligned rows.

    The rows are padded on the right, so a causal model needs no attention mask: no real
    position ever sees padding. Only masked positions get logits, in chunks of bounded size.

    Args:
        model: the language model, shared, not copied.
        temperature: the logits are divided by it, as in sampling; 0 counts as 1.
    """

    def __init__(self, model: PreTrainedModel, temperature: float = 1.0) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature or 1.0
        self.split = _head_is_last(model)

    def forward(self, input_ids: Tensor, action: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of the masked actions.

        Args:
            input_ids: [B, T] tokens of the states.
            action: [B, T] next tokens.
            mask: [B, T] bool, which of them count.

        Returns:
            Two float32 tensors [N], N the number of masked positions, in row order.
        """
        if self.split:
            hidden = self.model.base_model(input_ids=input_ids, use_cache=False).last_hidden_state[mask]
        else:
            hidden = self.model(input_ids=input_ids, use_cache=False).logits[mask]
        targets = action[mask]
        size = max(1, _LOGIT_CHUNK // self.model.config.get_text_config().vocab_size)
        chunks = [self._score(h, a) for h, a in zip(hidden.split(size), targets.split(size), strict=True)]
        logprob, entropy = zip(*chunks, strict=True)
        return torch.cat(logprob), torch.cat(entropy)

    def _score(self, hidden: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.model.get_output_embeddings()(hidden) if self.split else hidden
        logp = torch.log_softmax(logits.float() / self.temperature, dim=-1)
        entropy = -(logp.exp() * logp).sum(-1)
        return logp.gather(-1, action[:, None]).squeeze(-1), entropy


@torch.no_grad()
def _head_is_last(model: PreTrainedModel) -> bool:
    """Whether logits are the output embedding of the last hidden state, nothing after it."""
    if model.get_output_embeddings() is None:
        return False
    probe = torch.arange(4, device=model.device)[None]
    hidden = model.base_model(input_ids=probe, use_cache=False).last_hidden_state
    whole = model(input_ids=probe, use_cache=False).logits
    return torch.allclose(model.get_output_embeddings()(hidden), whole, atol=1e-5, rtol=1e-4)


class Critic(nn.Module):
    """The policy's body, or a copy of it, with a linear head: the value of every state of a row.

    The head starts at zero, so that the first advantages are the returns. (The paper's code draws
    it from N(0, 1/(d+1)); on normalised hidden states that is noise of the size of the reward.)
    """

    def __init__(self, body: nn.Module, width: int, *, shared: bool = False) -> None:
        super().__init__()
        self.body, self.shared = body, shared
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def own_parameters(self) -> list[nn.Parameter]:
        """Those that are not the policy's."""
        return list(self.head.parameters() if self.shared else self.parameters())

    def forward(self, input_ids: Tensor) -> Tensor:
        """Values [B, T] in float32 of the states of `input_ids` [B, T]."""
        hidden = self.body(input_ids=input_ids, use_cache=False).last_hidden_state
        return self.head(hidden.float()).squeeze(-1)
