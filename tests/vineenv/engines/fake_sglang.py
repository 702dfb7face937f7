"""A server that speaks SGLang's protocol with the native engine behind it, and misbehaves when told to."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from torch import nn

from vineenv.engines.native import NativeEngine
from vineenv.types import Request

Answer = tuple[int, Any]


class FakeServer:
    """Serves `model` on a free port of this machine.

    Attributes:
        calls: names of the calls received, in order.
        lose: how many of the next generations end without an answer.
        refuse: a control call that answers with a false flag.
        deaf: new weights are said to be taken, and are not.
        stale_cache: reports this many cached tokens.
        raw_logprobs: ignores the temperature in what it reports.
        cut: tokens after which every row ends.
        end: the finish reason of every row.
        pause: seconds before a generation's answer.
        on_generate: called with the number of the generation before it is answered.
    """

    def __init__(self, model: nn.Module) -> None:
        self.start_model = copy.deepcopy(model)
        self.calls: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.lose, self.refuse, self.deaf, self.stale_cache = 0, "", False, 0
        self.raw_logprobs, self.pause = False, 0.0
        self.cut, self.end = 0, ""
        self.on_generate: Callable[[int], None] = lambda number: None
        self.facts: dict[str, Any] = {"max_total_num_tokens": 100_000, "tp_size": 1, "dp_size": 1}
        self._lock, self._closed = threading.Lock(), False
        self.restart()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {**fake.facts, "weight_version": fake.tag})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                name = self.path.strip("/").partition("?")[0]
                answer = fake.take(name, body)
                if answer is not None:
                    self._answer(*answer)

            def _answer(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(OSError):  # who asked has given up
                    self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = False  # closing waits for them: a thread left inside torch aborts at exit
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed, self.pause = True, 0.0
        self._http.shutdown()
        self._http.server_close()

    def restart(self) -> None:
        """Forget every weight that was pushed."""
        self.model = copy.deepcopy(self.start_model)
        self.engine = NativeEngine(self.model, workers=1)
        self.tag, self.session = "default", False

    def take(self, name: str, body: Mapping[str, Any]) -> Answer | None:
        """Answer a call; None drops the connection."""
        with self._lock:
            if self._closed:
                return None
            self.calls.append(name)
            if name == "generate":
                return self._generate(dict(body))
            if name == self.refuse:
                return 400, {"success": False, "message": f"{name} was sabotaged"}
            if name == "update_weights_from_tensor":
                return self._update(body)
            if name in ("begin_weight_update", "end_weight_update"):
                self.session = name.startswith("begin")
            return 200, {"success": True, "message": ""}

    def _update(self, body: Mapping[str, Any]) -> Answer:
        if not self.session:
            return 400, {"success": False, "message": "must run between begin and end"}
        if not self.deaf:
            named = pickle.loads(base64.b64decode(body["serialized_named_tensors"][0]))
            with torch.no_grad():
                parameters = dict(self.model.named_parameters())
                for key, tensor in named:
                    parameters[key].copy_(tensor)
            self.engine.load_weights(self.model, 0)
        self.tag = body.get("weight_version") or self.tag
        return 200, {"success": True, "message": ""}

    def _generate(self, body: dict[str, Any]) -> Answer | None:
        self.asked.append(body)
        self.on_generate(len(self.asked))
        time.sleep(self.pause)
        if self.lose:
            self.lose -= 1
            return None
        settings = body["sampling_params"]
        prompts = body["input_ids"]
        if settings["max_new_tokens"] == 0:
            return 200, [self._reply((), (), "length") for _ in prompts]
        request = Request(
            tuple(prompts[0]),
            n=len(prompts),
            max_new_tokens=self.cut or settings["max_new_tokens"],
            temperature=settings["temperature"],
            top_p=settings["top_p"],
            stop_ids=tuple(settings["stop_token_ids"]),
            seed=len(self.asked),
        )
        rows = self.engine.generate([request])[0]
        replies = [self._reply(c.ids, c.logprobs, c.finish_reason) for c in rows]
        if self.raw_logprobs and settings["temperature"] != 1.0:
            for reply in replies:
                scored = reply["meta_info"]["output_token_logprobs"]
                reply["meta_info"]["output_token_logprobs"] = [(v * 0.3, i, None) for v, i, _ in scored]
        return 200, replies

    def _reply(self, ids: Any, logprobs: Any, reason: str) -> dict[str, Any]:
        return {
            "output_ids": list(ids),
            "meta_info": {
                "finish_reason": {"type": self.end or reason},
                "cached_tokens": self.stale_cache,
                "weight_version": self.tag,
                "output_token_logprobs": [
                    (value, token, None) for value, token in zip(logprobs, ids, strict=True)
                ],
            },
        }
