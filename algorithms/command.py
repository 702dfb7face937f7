"""What every command does around its work: help, readable errors, exit codes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable

from omegaconf import OmegaConf
from transformers.utils.logging import disable_progress_bar

from algorithms.config import compose, group_names, search_path
from vineenv.errors import RunStoppedError, UsageError

USAGE, STOPPED, INTERRUPTED = 2, 3, 130


def main_command(run: Callable[[list[str]], int], root: str, schema: type, purpose: str) -> int:
    """Run a command on `sys.argv`; return its exit code.

    0 is success, 2 bad input and 3 a run that cannot go on (told in one message), 130 an interrupt.
    """
    arguments = sys.argv[1:]
    disable_progress_bar()  # of transformers, which draws one for every file it opens
    try:
        if any(a in ("-h", "--help", "help") for a in arguments):
            print(help_text(root, schema, purpose, [a for a in arguments if "=" in a]))
            return 0
        return run(arguments)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except RunStoppedError as error:
        print(f"error: {error}", file=sys.stderr)
        return STOPPED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def help_text(root: str, schema: type, purpose: str, arguments: list[str]) -> str:
    """Describe a command: purpose, groups with their choices, every key with its value."""
    config = compose(root, schema, arguments, complete=False)
    shipped = OmegaConf.load(
        next(p / f"{root}.yaml" for p in search_path() if (p / f"{root}.yaml").is_file())
    )
    groups = [f"  {group}={'|'.join(group_names(group))}" for group in shipped.defaults]
    if groups:
        groups = ["Groups (a file each under configs/; your own ./configs is searched first):", *groups, ""]
    return "\n".join(
        [
            purpose.strip(),
            "",
            inspect.cleandoc(schema.__doc__ or ""),
            "",
            *groups,
            "Keys, as they would be used with these arguments; change one with dotted.key=value:",
            OmegaConf.to_yaml(config).rstrip(),
        ]
    )
