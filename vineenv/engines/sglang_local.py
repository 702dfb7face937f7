"""SGLang started by this process: its schedulers are child processes, its front end a thread here."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib.util
import json
import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vineenv.engines import sglang_portable
from vineenv.engines.sglang_loop import LoopThread
from vineenv.errors import EngineDiedError, RunStoppedError, UsageError

INSTALL = "pip install 'vineenv[sglang]'"
# SGLang keeps a few positions back at the end of a context; these are added so that all are usable.
MARGIN = 8

_CALLS = {
    "begin_weight_update": "BeginWeightUpdateReqInput",
    "update_weights_from_tensor": "UpdateWeightsFromTensorReqInput",
    "end_weight_update": "EndWeightUpdateReqInput",
    "release_memory_occupation": "ReleaseMemoryOccupationReqInput",
    "resume_memory_occupation": "ResumeMemoryOccupationReqInput",
}
_log = logging.getLogger(__name__)
_running: list[LocalServer] = []


def check_installed() -> None:
    """Raise UsageError with the line that installs SGLang, where it is missing."""
    if importlib.util.find_spec("sglang") is None:
        raise UsageError(
            f"engine=sglang needs SGLang, which is not installed: {INSTALL}. "
            "Or give engine.urls=[http://host:port] of running servers, or choose engine=native."
        )


class LocalServer:
    """`sglang.Engine` with this process's model.

    Args:
        model: a Hugging Face causal language model; its weights and configuration are copied.
        thread: where the front end runs.
        arguments: further ones for `sglang.Engine`; they win over ours.

    Raises:
        UsageError: SGLang is not installed.
        RunStoppedError: it did not start.
    """

    name = "sglang.Engine"

    def __init__(self, model: nn.Module, thread: LoopThread, arguments: Mapping[str, Any]) -> None:
        check_installed()
        given = sglang_portable.prepare()
        os.environ.setdefault("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "1")
        self._folder = Path(tempfile.mkdtemp(prefix="vineenv-sglang-"))
        try:
            given |= {
                "model_path": str(_save(model, self._folder / "model")),
                "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
                "context_length": _positions(model) + MARGIN,
                "skip_tokenizer_init": True,
                "skip_server_warmup": True,
                "log_level": "error",
                **arguments,
            }
            self._engine = _start(given)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._engine.loop = thread.loop
        self._loop = thread.loop
        self._death: asyncio.Future[str] = thread.loop.create_future()
        _running.append(self)
        atexit.unregister(self._engine.shutdown)  # it would kill every child of this process
        atexit.register(self.kill)

    async def facts(self) -> Mapping[str, Any]:
        """See `Server`."""
        manager = self._engine.tokenizer_manager
        arguments = manager.server_args
        infos = self._engine._scheduler_init_result.scheduler_infos[0]
        names = ("tp_size", "dp_size", "enable_memory_saver")
        return {**infos, **self._engine.get_model_info(), **{n: getattr(arguments, n) for n in names}}

    async def generate(self, payload: Mapping[str, Any], direct: bool = False) -> list[dict[str, Any]]:
        """See `Server`."""
        asked = asyncio.ensure_future(self._engine.async_generate(**payload))
        try:
            replies = await self._unless_dead(asked)
        except ValueError as error:
            raise RunStoppedError(f"SGLang refused a request: {error}") from error
        return replies if isinstance(replies, list) else [replies]

    async def call(self, name: str, body: Mapping[str, Any]) -> tuple[bool, str]:
        """See `Server`."""
        from sglang.srt.managers import io_struct  # ty: ignore[import-not-found]

        manager = self._engine.tokenizer_manager
        if name == "flush_cache":
            answer = await self._unless_dead(asyncio.ensure_future(manager.flush_cache(**body)))
            return bool(answer.success), str(answer.message or "")
        request = getattr(io_struct, _CALLS[name])(**body)
        answer = await self._unless_dead(asyncio.ensure_future(getattr(manager, name)(request, None)))
        return (True, "") if answer is None else (bool(answer[0]), str(answer[1]))

    def pack(self, tensors: Sequence[tuple[str, Tensor]], ranks: int) -> list[Any]:
        """See `Server`: only handles of shared or CUDA memory travel."""
        from sglang.srt.utils import MultiprocessingSerializer  # ty: ignore[import-not-found]

        return [MultiprocessingSerializer.serialize(list(tensors)) for _ in range(ranks)]

    async def abort(self) -> None:
        """See `Server`."""
        self._engine.tokenizer_manager.abort_request(abort_all=True)

    async def close(self) -> None:
        """See `Server`."""
        self.kill()

    def kill(self) -> None:
        """End SGLang's processes, and no other child of this one."""
        atexit.unregister(self.kill)
        if self in _running:
            _running.remove(self)
        watchdog = self._engine.tokenizer_manager._subprocess_watchdog
        if watchdog is not None:
            watchdog.stop()
        import psutil  # ty: ignore[import-not-found]

        for number in self._engine.get_all_child_pids():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(number)
                for member in [*process.children(recursive=True), process]:
                    member.kill()
                process.wait(10)
        _in_loop(self._loop, self._close_sockets)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _close_sockets(self) -> None:
        """Drop messages to processes that are gone; Python would wait for them when it ends."""
        import zmq  # ty: ignore[import-not-found]

        for owner in (self._engine, self._engine.tokenizer_manager):
            for value in list(vars(owner).values()):
                if isinstance(value, zmq.Socket) and not value.closed:
                    value.context.destroy(linger=0)

    def alive(self) -> bool:
        """Whether all of SGLang's processes run."""
        import psutil  # ty: ignore[import-not-found]

        with contextlib.suppress(psutil.NoSuchProcess):
            states = [psutil.Process(number).status() for number in self._engine.get_all_child_pids()]
            return psutil.STATUS_ZOMBIE not in states
        return False

    def died(self) -> None:
        """Tell those who wait that SGLang will not answer."""

        def tell() -> None:
            if not self._death.done():
                self._death.set_result("one of its processes ended")

        self._loop.call_soon_threadsafe(tell)

    async def _unless_dead(self, asked: asyncio.Future[Any]) -> Any:
        try:
            await asyncio.wait({asked, self._death}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not asked.done():
                asked.cancel()
        if not asked.done() or asked.cancelled():
            raise EngineDiedError(f"SGLang is gone: {self._death.result()}. Its own messages are above.")
        return asked.result()


def _in_loop(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    """Do `work` where the loop runs, as sockets are not to be closed under it."""
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is loop or not loop.is_running():
        work()
        return
    done = threading.Event()
    loop.call_soon_threadsafe(lambda: (work(), done.set()))
    done.wait(5)


def on_child_failure(*_: object) -> None:
    """Take the SIGQUIT that SGLang sends when one of its processes fails; its own handler would kill us."""
    if not _running:
        raise RunStoppedError("SGLang did not start: one of its processes failed. Its messages are above.")
    for server in list(_running):
        if not server.alive():
            server.died()


def _start(arguments: Mapping[str, Any]) -> Any:
    """Start `sglang.Engine`, and undo what it does to this process's signals and child processes."""
    import sglang  # ty: ignore[import-not-found]

    with _own_signals():
        try:
            return sglang.Engine(custom_sigquit_handler=on_child_failure, **arguments)
        except (ValueError, TypeError) as error:
            raise UsageError(f"engine.arguments: SGLang does not take them: {error}") from error


@contextmanager
def _own_signals() -> Generator[None]:
    """Restore signal handlers and the start method of child processes; SIGQUIT stays ours."""
    main = threading.current_thread() is threading.main_thread()
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    method = multiprocessing.get_start_method(allow_none=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(method, force=True)
        if main:
            for number, handler in kept.items():
                signal.signal(number, handler)
            signal.signal(signal.SIGQUIT, on_child_failure)


def _positions(model: nn.Module) -> int:
    config: Any = model.config
    return int(config.get_text_config().max_position_embeddings)


def _save(model: Any, folder: Path) -> Path:
    """Save a model without its own end token: where a row ends is the request's business."""
    model.save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        file = folder / name
        if file.is_file():
            values = json.loads(file.read_text(encoding="utf-8"))
            values["eos_token_id"] = None
            file.write_text(json.dumps(values), encoding="utf-8")
    return folder
