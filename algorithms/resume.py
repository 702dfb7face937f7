"""Whether a run folder goes on, and whether what is asked now is still the same run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from algorithms.checkpoint import Checkpoints
from algorithms.recorder import check_folder
from vineenv.env import SPLITS, ReasoningEnv
from vineenv.errors import UsageError

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None

# What may change when a run goes on: where it is, how it is watched, and how fast it computes.
FREE = (
    "run_dir", "resume", "dry_run", "samples", "save_every", "keep", "guards", "threads",
    "algo.microbatch", "engine",
)  # fmt: skip
_PACKAGES = ("torch", "transformers", "tensordict", "torchrl")
_PROBLEMS = 2000


@dataclass
class Resumption:
    """Where a run goes on.

    Attributes:
        state: of the checkpoint; empty for a start from the beginning.
        name: of the checkpoint, None without one.
        notes: what a person should know.
    """

    state: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    notes: list[str] = field(default_factory=list)


@contextmanager
def claim(folder: Path) -> Generator[None]:
    """Hold a run folder, made if need be, against other processes; an empty new one goes again.

    Raises:
        UsageError: it cannot be made or written, or another process runs in it.
    """
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{folder} cannot be written")
        descriptor = os.open(folder, os.O_RDONLY)
    except FileExistsError as error:
        raise UsageError(f"run_dir={folder} is a file; give a folder.") from error
    except OSError as error:
        raise UsageError(f"run_dir={folder} cannot be used: {error}.") from error
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _lock(descriptor: int, folder: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(f"run_dir={folder}: another process is running in it.") from error
    except OSError:  # a file system without locks
        return


def find_run(folder: Path, config: DictConfig, checkpoints: Checkpoints) -> Resumption:
    """Decide from a run folder and the configuration whether to start or go on.

    Raises:
        UsageError: the folder holds something else, a run that must not go on, one of another
            configuration, or checkpoints of which none is whole.
    """
    saved = folder / "config.yaml"
    saved.with_name("config.yaml.part").unlink(missing_ok=True)
    if config.resume == "never" or not saved.is_file():
        check_folder(folder)
        return Resumption()
    notes = compare_configs(_saved_config(saved), config)
    name, state, faults = checkpoints.newest_good()
    notes += [f"damaged checkpoint: {fault}" for fault in faults]
    if name is None and faults:
        raise UsageError(
            f"{folder}: no checkpoint is whole ({'; '.join(faults)}). Give another run_dir to start again."
        )
    if name is None:
        return Resumption(notes=[*notes, f"{folder} has no checkpoint yet: starting from the beginning"])
    return Resumption(state, name, [*notes, *_version_changes(state.get("versions", {}))])


def compare_configs(saved: Mapping[str, Any], config: DictConfig) -> list[str]:
    """Return a note for each key that changed and may.

    Raises:
        UsageError: one changed that may not, unless `resume=anyway`.
    """
    old, new = _flat(saved), _flat(OmegaConf.to_container(config, resolve=True))
    changed = {
        key: f"{key}: {_shown(old, key)} -> {_shown(new, key)}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key, _ABSENT) != new.get(key, _ABSENT)
    }
    if "iterations" in changed and new.get("algo.lr_decay"):
        changed["iterations"] += " (the learning rate decays over them: algo.lr_decay)"
    free = {key: told for key, told in changed.items() if _is_free(key, new, old)}
    bad = [told for key, told in changed.items() if key not in free]
    if bad and config.resume != "anyway":
        raise UsageError(
            f"run_dir={config.run_dir} holds a run with another configuration:\n  "
            + "\n  ".join(bad)
            + "\nGive another run_dir for a new run, the old values to go on, or resume=anyway."
        )
    quiet = ("run_dir", "resume", "dry_run")
    return [f"changed since the last start: {told}" for key, told in changed.items() if key not in quiet]


def data_digest(env: ReasoningEnv) -> str:
    """Digest of the problems of every split: of all, or of 2,000 evenly spaced ones."""
    digest = hashlib.blake2b(digest_size=16)
    for split in SPLITS:
        size = env.size(split)
        digest.update(f"{split} {size}\n".encode())
        for index in range(0, size, max(1, -(-size // _PROBLEMS))):
            problem = env.problem(split, index)
            digest.update(json.dumps([problem.id, problem.prompt, problem.answer]).encode())
    return digest.hexdigest()


def weights_digest(model: nn.Module) -> str:
    """Digest of a model's parameters and buffers."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_same(what: str, saved: str, now: str, config: DictConfig) -> list[str]:
    """Compare digests of what a run started from.

    Raises:
        UsageError: they differ, unless `resume=anyway`.
    """
    if saved == now:
        return []
    if config.resume != "anyway":
        raise UsageError(
            f"run_dir={config.run_dir}: {what} changed since the run was started. Put the old one back, "
            "give another run_dir for a new run, or resume=anyway."
        )
    return [f"{what} changed since the run was started"]


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for package in (*_PACKAGES, "vineenv"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a source tree
            found[package] = "unknown"
    return found


_ABSENT = object()


def _version_changes(saved: Mapping[str, str]) -> list[str]:
    now = versions()
    return [f"{k} was {saved[k]}, is {now[k]}" for k in sorted(now) if k in saved and saved[k] != now[k]]


def _is_free(key: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    if key == "iterations":  # a decaying learning rate depends on how long the run is to be
        return not new.get("algo.lr_decay") and new.get(key, 0) >= old.get(key, 0)
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


def _saved_config(file: Path) -> Mapping[str, Any]:
    try:
        loaded = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    except Exception as error:
        raise UsageError(f"{file} cannot be read, so the run cannot go on: {error}") from error
    if not isinstance(loaded, dict):
        raise UsageError(f"{file} is not the configuration of a run.")
    return {str(key): value for key, value in loaded.items()}


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(node, Mapping) or not node:
        return {prefix: node}
    out: dict[str, Any] = {}
    for key, value in node.items():
        out |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return out


def _shown(flat: Mapping[str, Any], key: str) -> str:
    return repr(flat[key]) if key in flat else "(absent)"
