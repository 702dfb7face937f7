"""Running SGLang servers, spoken to over HTTP."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import httpx2
from torch import Tensor

from vineenv.errors import RunStoppedError

_CONNECT_S = 10.0


class LostServerError(Exception):
    """A server did not answer, or said that it cannot just now; it may be back soon."""


class Server(Protocol):
    """One copy of the model, in this process or elsewhere."""

    name: str

    async def facts(self) -> Mapping[str, Any]:
        """What it was started with, and `weight_version`, the tag of the weights it serves."""
        ...

    async def generate(self, payload: Mapping[str, Any], direct: bool = False) -> list[dict[str, Any]]:
        """Ask for a batch; return a reply for each of its prompts. `direct` passes by any router.

        Raises:
            LostServerError: asking again later may help.
            RunStoppedError: it will not.
        """
        ...

    async def call(self, name: str, body: Mapping[str, Any]) -> tuple[bool, str]:
        """Make a control call; return the flag and the message that SGLang answers with."""
        ...

    def pack(self, tensors: Sequence[tuple[str, Tensor]], ranks: int) -> list[Any]:
        """Write named tensors down as `update_weights_from_tensor` takes them, once a rank."""
        ...

    async def abort(self) -> None:
        """Give up this process's requests that are still in flight."""
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


class HttpServer:
    """A server at a URL.

    Args:
        url: of the server itself, for its weights and its state.
        router: where requests for tokens go instead, if a router stands in front.
    """

    def __init__(self, url: str, router: str | None = None) -> None:
        self.name = url.rstrip("/")
        self._generate_at = (router or url).rstrip("/")
        # How long a generation may take is the whole call's business.
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,
        )

    async def facts(self) -> Mapping[str, Any]:
        """See `Server`."""
        info = self._read(await self._send("GET", f"{self.name}/server_info"), "server_info")
        return {**info, **self._read(await self._send("GET", f"{self.name}/model_info"), "model_info")}

    async def generate(self, payload: Mapping[str, Any], direct: bool = False) -> list[dict[str, Any]]:
        """See `Server`."""
        at = self.name if direct else self._generate_at
        answer = await self._send("POST", f"{at}/generate", payload)
        replies = self._read(answer, "generate")
        return replies if isinstance(replies, list) else [replies]

    async def call(self, name: str, body: Mapping[str, Any]) -> tuple[bool, str]:
        """See `Server`."""
        if name == "flush_cache":
            answer = await self._send("POST", f"{self.name}/flush_cache?timeout={body['timeout_s']}")
            return answer.is_success, answer.text.strip()
        answer = await self._send("POST", f"{self.name}/{name}", body)
        told = answer.json() if answer.content and answer.content != b"null" else {}
        if not isinstance(told, dict):
            return answer.is_success, answer.text
        return answer.is_success and bool(told.get("success", True)), str(told.get("message", told))

    def pack(self, tensors: Sequence[tuple[str, Tensor]], ranks: int) -> list[Any]:
        """See `Server`: plain pickles hold the numbers themselves, so they reach any machine."""
        named = [(name, tensor.detach().cpu().clone()) for name, tensor in tensors]
        return [base64.b64encode(pickle.dumps(named)).decode()] * ranks

    async def abort(self) -> None:
        """See `Server`: the server gives up a request whose connection is closed."""

    async def close(self) -> None:
        """See `Server`."""
        await self._client.aclose()

    async def _send(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> httpx2.Response:
        try:
            answer = await self._client.request(method, url, json=body)
        except httpx2.TransportError as error:
            raise LostServerError(f"{url}: {type(error).__name__} {error}".strip()) from error
        if answer.status_code == 429 or answer.status_code >= 500:
            raise LostServerError(f"{url}: status {answer.status_code}, {answer.text[:200]}")
        return answer

    def _read(self, answer: httpx2.Response, what: str) -> Any:
        if not answer.is_success:
            raise RunStoppedError(
                f"{self.name}: SGLang refused {what} with status {answer.status_code}: {answer.text[:500]}"
            )
        return answer.json()
