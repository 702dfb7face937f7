"""Train a policy: `python -m algorithms.run algo=vineppo env=math`.

The same command with the same `run_dir` goes on where a run was left (docs/runs.md).

Exit codes: 0 finished, 2 bad input, 3 ended by a guard, the engine or a full disk, 130 interrupted,
143 terminated; after any of the last three the run can go on.
"""

from __future__ import annotations

import gc
import shlex
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from algorithms.checkpoint import Checkpoints
from algorithms.command import INTERRUPTED, STOPPED, main_command
from algorithms.config import RunConfig, compose, own_keys
from algorithms.console import Reporter, console, print_summary, warn
from algorithms.dry_run import dry_run
from algorithms.loop import Loop
from algorithms.models import load_weights
from algorithms.parts import Parts, build_parts, use_threads
from algorithms.randomness import seed_all
from algorithms.recorder import Recorder, default_folder
from algorithms.resume import Resumption, check_same, claim, data_digest, find_run, versions, weights_digest
from algorithms.stop import Stopped, StopSignals
from vineenv.errors import RunStoppedError


def run(arguments: list[str]) -> int:
    """Compose the configuration, build the parts, run the loop."""
    config = compose("config", RunConfig, arguments)
    settings = own_keys(RunConfig, config)
    folder = Path(settings.run_dir) if settings.run_dir else _new_folder(config)
    use_threads(settings.threads)
    seed_all(settings.seed)
    if settings.dry_run:
        return dry_run(config, settings, build_parts(config))
    with claim(folder):
        checkpoints = Checkpoints(folder / "checkpoints", settings.keep)
        found = find_run(folder, config, checkpoints)
        for note in found.notes:
            warn(note)
        code = train(config, settings, build_parts(config), found, checkpoints)
    if code:
        given = [a for a in arguments if not a.startswith("run_dir=")]
        again = shlex.join([*given, f"run_dir={folder}"])
        console.print(f"to go on: python -m algorithms.run {again}", markup=False)
    return code


def train(
    config: DictConfig, settings: RunConfig, parts: Parts, found: Resumption, checkpoints: Checkpoints
) -> int:
    """Run the loop; whatever ends it, the folder holds the policy and the curve so far."""
    folder = checkpoints.folder.parent
    identity = identify(parts, found, config)
    recorder = Recorder(folder, config, found.state.get("sizes"))
    console.print(f"run folder  {folder}", markup=False)
    with StopSignals() as stop, Reporter(settings.iterations) as reporter:
        loop = Loop(parts, settings, recorder, reporter, stop, checkpoints)
        loop.identity = identity
        if found.name is not None:
            go_on(loop, found, checkpoints)
        # Python collects its oldest generation when that has grown by a quarter: with what torch and
        # transformers keep in it, the garbage of hundreds of iterations would pile up before.
        gc.collect()
        gc.freeze()
        gc.collect()  # the size it compares with is taken anew here
        code = attempt(loop, checkpoints)
    try:
        finish(recorder, parts, loop.done)
    except OSError as error:
        raise RunStoppedError(f"The results could not be saved: {error}. {_last_of(checkpoints)}") from error
    return code


def finish(recorder: Recorder, parts: Parts, done: int) -> None:
    """Save policy, curve and summary, and show them."""
    policy = recorder.policy(parts.policy, parts.tokenizer)
    lines = recorder.lines
    if lines:
        recorder.curve()
        recorder.summary({"iterations": done, "first": lines[0], "last": lines[-1]})
        print_summary(lines, recorder.folder, policy)
    recorder.close()


def identify(parts: Parts, found: Resumption, config: DictConfig) -> dict[str, Any]:
    """What a run starts from, compared with what it started from before.

    Raises:
        UsageError: the data or the start model are not those of then.
    """
    digests = {"data": data_digest(parts.env), "start": weights_digest(parts.policy)}
    if found.name is not None:
        for key, what in (("data", "the problems of env"), ("start", "the weights of model.path")):
            for note in check_same(what, found.state[key], digests[key], config):
                warn(note)
    return {"versions": versions(), **digests}


def go_on(loop: Loop, found: Resumption, checkpoints: Checkpoints) -> None:
    """Put a new loop where a checkpoint was taken."""
    assert found.name is not None
    load_weights(loop.parts.policy, checkpoints.folder / found.name / "policy")
    loop.load_state_dict(found.state)
    loop.saved = found.name
    checkpoints.set_aside(found.name)
    console.print(f"going on from {found.name}: {loop.done} of {loop.config.iterations} iterations are done")


def attempt(loop: Loop, checkpoints: Checkpoints) -> int:
    """Run the loop; return the exit code of whatever ended it, with its state saved.

    Raises:
        RunStoppedError: the run folder can no longer be written.
    """
    try:
        loop.run()
        return 0
    except Stopped as stopped:
        code, why = stopped.exit_code, f"{stopped} after {loop.done} iterations"
    except KeyboardInterrupt:  # raised by something else, at a point that may be no good one
        warn(f"interrupted after {loop.done} iterations")
        return INTERRUPTED
    except RunStoppedError as error:
        code, why = STOPPED, f"stopped after {loop.done} iterations: {error}"
    except OSError as error:
        raise RunStoppedError(f"{type(error).__name__}: {error}. {_last_of(checkpoints)}") from error
    warn(why)
    saved = loop.save()
    console.print(f"saved {saved}" if saved else "nothing was saved: the start is not evaluated yet")
    return code


def _last_of(checkpoints: Checkpoints) -> str:
    there = checkpoints.names()
    return f"The last checkpoint is {there[-1]}." if there else "There is no checkpoint yet."


def _new_folder(config: DictConfig) -> Path:
    names = [str(config[group].target).rpartition(".")[2].lower() for group in ("algo", "env")]
    return default_folder(names[0], names[1], config.seed)


if __name__ == "__main__":
    sys.exit(main_command(run, "config", RunConfig, __doc__ or ""))
