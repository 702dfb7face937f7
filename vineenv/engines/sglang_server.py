"""A SGLang server that an engine can use by its URL, on a GPU or on the portable path.

    python -m vineenv.engines.sglang_server --model-path FOLDER --port 30000

Further arguments are those of `sglang.launch_server`; they win over ours. On a machine without CUDA the
arguments known to work there are added. The model's own end token is switched off, as where a row ends is
the request's business, and every position of its context is usable.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vineenv.engines import sglang_portable
from vineenv.engines.sglang_local import MARGIN, check_installed
from vineenv.errors import UsageError


def flags(arguments: Mapping[str, Any]) -> list[str]:
    """Write arguments as the command line has them."""
    out: list[str] = []
    for name, value in arguments.items():
        flag = f"--{name.replace('_', '-')}"
        out += [flag] if value is True else [flag, str(value)]
    return out


def server_arguments(given: Sequence[str], portable: Mapping[str, Any]) -> list[str]:
    """Our arguments, then the given ones.

    Raises:
        UsageError: there is no model folder among them.
    """
    try:
        folder = Path(given[given.index("--model-path") + 1])
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (ValueError, IndexError, OSError) as error:
        raise UsageError(f"--model-path needs a folder with a Hugging Face model: {error}") from error
    ours = {
        **portable,
        "skip_tokenizer_init": True,
        "skip_server_warmup": True,
        "context_length": config.get("text_config", config)["max_position_embeddings"] + MARGIN,
        "json_model_override_args": json.dumps({"eos_token_id": None}),
        "dtype": config.get("dtype") or "auto",
        "log_level": "warning",
    }
    return [*flags(ours), *given]


def main(given: Sequence[str]) -> None:
    """Start a server and serve until told to stop."""
    check_installed()
    arguments = server_arguments(given, sglang_portable.prepare())
    os.environ.setdefault("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "1")
    from sglang.launch_server import run_server  # ty: ignore[import-not-found]
    from sglang.srt.server_args import prepare_server_args  # ty: ignore[import-not-found]

    run_server(prepare_server_args(arguments))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UsageError as error:
        sys.exit(f"error: {error}")
