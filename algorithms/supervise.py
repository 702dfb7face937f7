"""An engine that is started again when it dies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from vineenv.engines.base import Engine, EngineStats, Progress
from vineenv.errors import EngineDiedError, RunStoppedError
from vineenv.types import Completion, Request


class SupervisedEngine:
    """Passes calls on to an engine; when one fails, asks a new engine the same once more.

    A request carries its seed, so the answer is the one that the dead engine would have given.
    A ValueError is the caller's fault and passes through, and so does an engine's own word that it
    cannot go on, unless it is that its process died.

    Args:
        start: builds an engine on a model.
        model: what it serves.
        warn: told of every restart.
    """

    def __init__(
        self, start: Callable[[nn.Module], Engine], model: nn.Module, warn: Callable[[str], None]
    ) -> None:
        self._start, self._model, self._warn = start, model, warn
        self._engine = start(model)
        self._version = 0
        self.restarts = 0

    @property
    def stats(self) -> EngineStats:
        """The totals, restarts included."""
        return self._engine.stats

    @stats.setter
    def stats(self, stats: EngineStats) -> None:
        self._engine.stats = stats

    def generate(
        self, requests: Sequence[Request], progress: Progress | None = None
    ) -> list[list[Completion]]:
        """See `Engine`.

        Raises:
            RunStoppedError: the new engine fails as well.
        """
        return self._twice("generate", lambda: self._engine.generate(requests, progress))

    def load_weights(self, model: nn.Module, version: int) -> None:
        """See `Engine`; raises as `generate` does."""
        self._model, self._version = model, version
        self._twice("load_weights", lambda: self._engine.load_weights(model, version))

    def release(self) -> None:
        """See `Engine`; raises as `generate` does."""
        self._twice("release", lambda: self._engine.release())

    def __getattr__(self, name: str) -> Any:
        if name == "_engine":  # not there yet, or a copy is being made
            raise AttributeError(name)
        return getattr(self._engine, name)

    def _twice(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except ValueError:
            raise
        except Exception as error:
            if isinstance(error, RunStoppedError) and not isinstance(error, EngineDiedError):
                raise  # it says itself that it cannot go on
            self._warn(f"the engine failed in {what} ({_told(error)}); starting it again")
        try:
            self._restart()
            return call()
        except Exception as error:
            raise RunStoppedError(
                f"The engine failed in {what}, and once more after a restart: {_told(error)}"
            ) from error

    def _restart(self) -> None:
        stats = self._engine.stats
        with contextlib.suppress(Exception):  # it is dead: how it takes its end does not matter
            getattr(self._engine, "close", lambda: None)()
        self._engine = self._start(self._model)
        self._engine.load_weights(self._model, self._version)
        self._engine.stats = stats
        self.restarts += 1


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
