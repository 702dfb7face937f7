"""The run folder: configuration, metrics, samples, curve, policy."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torchrl.record.loggers.tensorboard import TensorboardLogger
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from algorithms.checkpoint import replace_text, save_policy, sync, sync_tree
from algorithms.plots import draw_curve
from vineenv.errors import UsageError

METRICS, SAMPLES, EVENTS = "metrics.jsonl", "samples.txt", "tensorboard"


class Recorder:
    """Writes everything that a run leaves behind; each line is on disk before the next iteration.

    Args:
        folder: an empty or new folder, or that of a run that goes on.
        config: the resolved configuration, saved as `config.yaml`.
        sizes: what `sizes` gave where the run goes on from: what was written later is cut off.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path, config: DictConfig, sizes: Mapping[str, int] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        replace_text(folder / "config.yaml", OmegaConf.to_yaml(config))
        cut_back(folder, sizes or {})
        self.tensorboard = TensorboardLogger(exp_name="tensorboard", log_dir=str(folder))
        self._metrics = (folder / METRICS).open("a", encoding="utf-8")
        self._samples = (folder / SAMPLES).open("a", encoding="utf-8")

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl` so far."""
        return read_lines(self.folder / METRICS)

    def sizes(self) -> dict[str, int]:
        """Bytes of each growing file."""
        self.tensorboard.experiment.flush()
        return {name: (self.folder / name).stat().st_size for name in growing_files(self.folder)}

    def sync(self) -> None:
        """Wait until the growing files are on the disk."""
        for name in growing_files(self.folder):
            sync(self.folder / name)

    def metrics(self, iteration: int, values: Mapping[str, Any]) -> None:
        """Add one line to `metrics.jsonl`, and the numbers to TensorBoard."""
        line = {"iteration": iteration, **values}
        self._metrics.write(json.dumps(_plain(line)) + "\n")
        self._metrics.flush()
        numbers = {k: float(v) for k, v in values.items() if isinstance(v, (int, float)) and math.isfinite(v)}
        self.tensorboard.log_metrics(numbers, step=iteration)

    def histogram(self, iteration: int, name: str, values: Tensor) -> None:
        """Add the distribution of `values` [N] to TensorBoard."""
        self.tensorboard.experiment.add_histogram(name, values.numpy(), iteration)

    def sample(self, iteration: int, text: str) -> None:
        """Add text to `samples.txt` and TensorBoard."""
        self._samples.write(f"=== iteration {iteration}\n{text}\n")
        self._samples.flush()
        # Markdown shows indented lines as they stand.
        block = "\n".join("    " + line for line in text.splitlines())
        self.tensorboard.experiment.add_text("samples", block, global_step=iteration)

    def curve(self) -> None:
        """Draw `curve.png` from the lines so far."""
        draw_curve(self.lines, self.folder / "curve.png")

    def policy(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str = "policy"
    ) -> Path:
        """Save a policy in Hugging Face format; a half-written one never has the final name."""
        target = self.folder / name
        part, old = (target.with_name(target.name + ending) for ending in (".part", ".old"))
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        save_policy(model, tokenizer, part)
        sync_tree(part)
        if target.exists():
            target.rename(old)
        part.rename(target)
        shutil.rmtree(old, ignore_errors=True)
        return target

    def summary(self, values: Mapping[str, Any]) -> None:
        """Write `summary.json`."""
        (self.folder / "summary.json").write_text(
            json.dumps(_plain(values), indent=2) + "\n", encoding="utf-8"
        )

    def close(self) -> None:
        """Flush and close the files."""
        self._metrics.close()
        self._samples.close()
        self.tensorboard.experiment.close()


def check_folder(folder: Path) -> None:
    """Refuse a run folder that already holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"run_dir={folder} already exists and is not empty; give another, or remove it first."
        )


def cut_back(folder: Path, sizes: Mapping[str, int]) -> None:
    """Cut the growing files of a run folder to the sizes given; those that are not named go.

    Raises:
        UsageError: a file is shorter than that, so it is not the one that was written.
    """
    there = {name: (folder / name).stat().st_size for name in growing_files(folder)}
    for name, size in sizes.items():
        if there.get(name, 0) < size:
            raise UsageError(
                f"{folder / name} has {there.get(name, 0):,} bytes, the checkpoint knows of {size:,}: it was "
                "changed or removed. Put it back, or give another run_dir."
            )
    for name, size in there.items():
        if name not in sizes:
            (folder / name).unlink()
        elif size > sizes[name]:
            os.truncate(folder / name, sizes[name])


def growing_files(folder: Path) -> list[str]:
    """Names of the files of a run folder that are only ever added to."""
    events = sorted(file.name for file in (folder / EVENTS).glob("*") if file.is_file())
    names = [METRICS, SAMPLES, *(f"{EVENTS}/{name}" for name in events)]
    return [name for name in names if (folder / name).is_file()]


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Read a `metrics.jsonl`, null as nan; a last line without its end does not count."""
    if not file.is_file():
        return []
    whole = file.read_text(encoding="utf-8").split("\n")[:-1]
    return [{k: math.nan if v is None else v for k, v in json.loads(line).items()} for line in whole]


def default_folder(algo: str, env: str, seed: int) -> Path:
    """A new folder under `runs/`, named for what runs in it."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{algo}-{env}-seed{seed}-{stamp}"


def _plain(value: Any) -> Any:
    """JSON has no nan: null says that there is no number."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
