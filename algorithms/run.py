"""Train a policy: `python -m algorithms.run algo=vineppo env=math`.

Exit codes: 0 finished, 2 bad input, 3 the engine cannot go on, 130 interrupted (after the last two the
run folder is complete up to there).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from algorithms.command import INTERRUPTED, STOPPED, main_command
from algorithms.config import RunConfig, compose, own_keys
from algorithms.console import Reporter, console, print_summary
from algorithms.loop import Loop
from algorithms.parts import Parts, build_parts, use_threads
from algorithms.recorder import Recorder, check_folder, default_folder
from vineenv.errors import RunStoppedError


def run(arguments: list[str]) -> int:
    """Compose the configuration, build the parts, run the loop."""
    config = compose("config", RunConfig, arguments)
    settings = own_keys(RunConfig, config)
    folder = Path(settings.run_dir) if settings.run_dir else _new_folder(config)
    check_folder(folder)
    use_threads(settings.threads)
    torch.manual_seed(settings.seed)
    parts = build_parts(config)
    if settings.dry_run:
        return dry_run(config, parts)
    return train(config, settings, parts, folder)


def train(config: DictConfig, settings: RunConfig, parts: Parts, folder: Path) -> int:
    """Run the loop; whatever ends it, the folder holds the policy and the curve so far."""
    recorder = Recorder(folder, config)
    console.print(f"run folder  {folder}")
    code = 0
    with Reporter(settings.iterations) as reporter:
        loop = Loop(parts, settings, recorder, reporter)
        try:
            loop.run()
        except KeyboardInterrupt:
            code = INTERRUPTED
            console.print(f"interrupted after {loop.done} iterations; saving")
        except RunStoppedError as error:
            code = STOPPED
            reporter.warn(f"stopped after {loop.done} iterations: {error}")
    policy = recorder.policy(parts.policy, parts.tokenizer)
    if recorder.lines:
        recorder.curve()
        recorder.summary({"iterations": loop.done, "first": recorder.lines[0], "last": recorder.lines[-1]})
        print_summary(recorder.lines, folder, policy)
    recorder.close()
    return code


def dry_run(config: DictConfig, parts: Parts) -> int:
    """Build everything and run one tiny iteration, writing nothing."""
    settings = own_keys(RunConfig, config)
    parts.algorithm.prompts = min(parts.algorithm.prompts, 2)
    settings.iterations = 1
    settings.eval.problems = settings.eval.final_problems = 8
    with Reporter(1) as reporter:
        Loop(parts, settings, None, reporter).run()
    console.print(OmegaConf.to_yaml(config).rstrip())
    console.print("dry run passed; nothing was written")
    return 0


def _new_folder(config: DictConfig) -> Path:
    names = [str(config[group].target).rpartition(".")[2].lower() for group in ("algo", "env")]
    return default_folder(names[0], names[1], config.seed)


if __name__ == "__main__":
    sys.exit(main_command(run, "config", RunConfig, __doc__ or ""))
