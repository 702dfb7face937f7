"""The run folder: configuration, metrics, samples, curve, policy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torchrl.record.loggers.tensorboard import TensorboardLogger
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from algorithms.plots import draw_curve
from vineenv.errors import UsageError


class Recorder:
    """Writes everything that a run leaves behind; each line is on disk before the next iteration.

    Args:
        folder: an empty or new folder.
        config: the resolved configuration, saved as `config.yaml`.

    Raises:
        UsageError: the folder already holds a run.
    """

    def __init__(self, folder: Path, config: DictConfig) -> None:
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        OmegaConf.save(config, folder / "config.yaml")
        self.tensorboard = TensorboardLogger(exp_name="tensorboard", log_dir=str(folder))
        self.lines: list[dict[str, Any]] = []
        self._metrics = (folder / "metrics.jsonl").open("w", encoding="utf-8")
        self._samples = (folder / "samples.txt").open("w", encoding="utf-8")

    def metrics(self, iteration: int, values: Mapping[str, Any]) -> None:
        """Add one line to `metrics.jsonl`, and the numbers to TensorBoard."""
        line = {"iteration": iteration, **values}
        self.lines.append(line)
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
        part = target.with_name(target.name + ".part")
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        if target.exists():
            target.rename(target.with_name(target.name + ".old"))
        part.rename(target)
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
