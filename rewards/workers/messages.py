"""What caller, server and workers send each other: a length, then JSON. Lone surrogates survive it."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

_HEADER = struct.Struct("!I")

# A worker forked before the algebra system was loaded gives back with this a task that needs it.
COLD = "cold"


class Closed(OSError):
    """The other end is gone."""


def send(channel: socket.socket, message: Any) -> None:
    """Send one message."""
    body = json.dumps(message).encode("ascii")
    channel.sendall(_HEADER.pack(len(body)) + body)


def receive(channel: socket.socket, deadline: float | None = None) -> Any:
    """Return the next message.

    Args:
        channel: a stream socket.
        deadline: by `time.monotonic`; None waits for ever.

    Raises:
        TimeoutError: the deadline passed. Closed: the other end is gone.
    """
    (size,) = _HEADER.unpack(_exactly(channel, _HEADER.size, deadline))
    return json.loads(_exactly(channel, size, deadline))


def _exactly(channel: socket.socket, size: int, deadline: float | None) -> bytes:
    data = b""
    while len(data) < size:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError("no reply in time")
        channel.settimeout(left)
        try:
            piece = channel.recv(size - len(data))
        except ConnectionError as error:
            raise Closed("the other end is gone") from error
        if not piece:
            raise Closed("the other end is gone")
        data += piece
    return data
