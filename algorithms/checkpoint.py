"""Checkpoints: whole or not there at all, checked before they are believed, without pickle.

A checkpoint is a folder `iteration_0012` (or `iteration_0012_update_0003`, inside an iteration):

    policy/             the policy and its tokenizer, in Hugging Face format
    state.json          everything else that is not a tensor
    state.safetensors   everything else that is
    manifest.json       size and BLAKE2b of every other file

It is written under another name, synced to the disk and renamed, so that the final name never
stands on half a checkpoint; the manifest tells a disk's own faults.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from algorithms.tree import pack, unpack

_NAME = re.compile(r"iteration_(\d+)(?:_update_(\d+))?")
_PART = ".part"
_SPARE = 1 << 20


class DamagedError(Exception):
    """A checkpoint is not what its manifest says."""


class LowDiskError(OSError):
    """There is not room enough for a checkpoint; none was begun."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: where they are; made when the first is saved.
        keep: how many of the newest stay; the best so far stays as well.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def names(self) -> list[str]:
        """Names of the finished checkpoints, oldest first."""
        if not self.folder.is_dir():
            return []
        found = [p.name for p in self.folder.iterdir() if p.is_dir() and not p.is_symlink()]
        return sorted((name for name in found if _NAME.fullmatch(name)), key=_order)

    def save(
        self,
        name: str,
        policy: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        state: Mapping[str, Any],
    ) -> Path:
        """Write a checkpoint; when this returns it is on the disk.

        Raises:
            LowDiskError: the disk has less room than it takes.
            OSError: the disk refused; what was begun is removed again.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clear_parts()
        tensors: dict[str, Tensor] = {}
        plain = pack(state, tensors)
        self._check_room([*tensors.values(), *policy.state_dict().values()])
        part, target = self.folder / f"{name}{_PART}", self.folder / name
        try:
            save_policy(policy, tokenizer, part / "policy")
            with _disk_errors(target):
                save_file(_unshared(tensors), part / "state.safetensors")
            (part / "state.json").write_text(json.dumps(plain), encoding="utf-8")
            manifest = {file: _fingerprint(part / file) for file in _files(part)}
            (part / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
            sync_tree(part)
            part.rename(target)
            sync(self.folder)
        except OSError:
            shutil.rmtree(part, ignore_errors=True)
            raise
        return target

    def load(self, name: str) -> dict[str, Any]:
        """Return the state of a checkpoint, once every file is what the manifest says.

        Raises:
            DamagedError: it is not, or it cannot be read.
        """
        self.verify(name)
        folder = self.folder / name
        try:
            tensors = load_file(folder / "state.safetensors")
            return unpack(json.loads((folder / "state.json").read_text(encoding="utf-8")), tensors)
        except (OSError, ValueError, KeyError, RecursionError, SafetensorError) as error:
            raise DamagedError(f"{name}: {error}") from error

    def verify(self, name: str) -> None:
        """Compare every file of a checkpoint with its manifest.

        Raises:
            DamagedError: naming the first file that is missing, extra, or not as it was written.
        """
        folder = self.folder / name
        try:
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DamagedError(f"{name}: manifest.json cannot be read") from error
        there = [file for file in _files(folder) if file != "manifest.json"]
        if not isinstance(manifest, dict) or sorted(manifest) != there:
            raise DamagedError(f"{name}: its files are not those of its manifest")
        for file, expected in manifest.items():
            if _fingerprint(folder / file) != expected:
                raise DamagedError(f"{name}: {file} is not as it was written")

    def newest_good(self) -> tuple[str | None, dict[str, Any], list[str]]:
        """Return the newest checkpoint that is whole, its state, and what was wrong with newer ones."""
        faults: list[str] = []
        for name in reversed(self.names()):
            try:
                return name, self.load(name), faults
            except DamagedError as error:
                faults.append(str(error))
        return None, {}, faults

    def set_aside(self, after: str) -> None:
        """Give what is newer than checkpoint `after` another name, so that the run can pass there again."""
        for name in [n for n in self.names() if _order(n) > _order(after)]:
            aside = self.folder / f"{name}.damaged"
            shutil.rmtree(aside, ignore_errors=True)
            (self.folder / name).rename(aside)

    def best(self) -> dict[str, Any] | None:
        """What `mark_best` wrote last."""
        try:
            found = json.loads((self.folder / "best.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def mark_best(self, name: str, metric: str, value: float) -> None:
        """Point `best.json` at a checkpoint."""
        pointer = {"checkpoint": name, "metric": metric, "value": value}
        replace_text(self.folder / "best.json", json.dumps(pointer) + "\n")

    def retire(self) -> None:
        """Remove all but the newest `keep` and the best."""
        best = self.best() or {}
        for name in self.names()[: -self.keep]:
            if name != best.get("checkpoint"):
                going = self.folder / f"{name}{_PART}"
                (self.folder / name).rename(going)
                shutil.rmtree(going, ignore_errors=True)

    def _check_room(self, tensors: list[Tensor]) -> None:
        need = sum(t.numel() * t.element_size() for t in tensors) + _SPARE
        free = shutil.disk_usage(self.folder).free
        if free < need:
            raise LowDiskError(f"{self.folder} has {free:,} bytes free, a checkpoint takes about {need:,}")

    def _clear_parts(self) -> None:
        for part in self.folder.glob(f"iteration_*{_PART}"):
            shutil.rmtree(part, ignore_errors=True)


def checkpoint_name(iteration: int, update: int = 0) -> str:
    """Name of the checkpoint after `iteration` iterations and `update` minibatches of the next."""
    return f"iteration_{iteration:04d}" + (f"_update_{update:04d}" if update else "")


def save_policy(policy: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a policy in Hugging Face format.

    Raises:
        OSError: the disk refused.
    """
    with _disk_errors(folder):
        policy.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def _disk_errors(target: Path) -> Generator[None]:
    """Raise OSError where safetensors' writer tells a full disk in its own words."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(f"{target}: {error}") from error


def replace_text(file: Path, text: str) -> None:
    """Write a small file so that it is the old one or the new one, never a mixture."""
    part = file.with_name(file.name + _PART)
    part.write_text(text, encoding="utf-8")
    sync(part)
    part.replace(file)
    sync(file.parent)


def sync(path: Path) -> None:
    """Wait until a file's or folder's own content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """`sync` of a folder and all below it, the leaves first."""
    for file in _files(folder):
        sync(folder / file)
    for below in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
        sync(below)
    sync(folder)


def _order(name: str) -> tuple[int, int]:
    match = _NAME.fullmatch(name)
    assert match is not None
    return int(match[1]), int(match[2] or 0)


def _files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def _fingerprint(file: Path) -> list[Any]:
    try:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=32))
        return [file.stat().st_size, digest.hexdigest()]
    except OSError as error:
        raise DamagedError(f"{file.name} cannot be read: {error}") from error


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that each own their memory, as safetensors wants them."""
    seen: set[int] = set()
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        out[name] = tensor if place not in seen and whole else tensor.clone()
        seen.add(place)
    return out
