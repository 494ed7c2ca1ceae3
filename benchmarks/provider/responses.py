"""The Responses wire: every request is answered with a tool call, over HTTP or over a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

_KEY = re.compile(rb"\r\nsec-websocket-key:\s*(\S+)", re.IGNORECASE)
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
_ARGUMENTS = ('{"path":', '"src/', 'module.py"}')


def _events(number: int) -> list[dict[str, Any]]:
    item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "read_file"}
    response = {"id": f"resp_{number}", "model": "bench-1"}
    usage = {"input_tokens": 4, "output_tokens": 3, "total_tokens": 7}
    place = {"output_index": 0, "item_id": f"fc_{number}"}
    return [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}},
        *({"type": "response.function_call_arguments.delta", **place, "delta": part} for part in _ARGUMENTS),
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {**item, "arguments": "".join(_ARGUMENTS)},
        },
        {"type": "response.completed", "response": {**response, "status": "completed", "usage": usage}},
    ]


def event_stream(number: int) -> bytes:
    """The answer to the ``number``-th request, as server-sent events."""
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode())
        for event in _events(number)
    )


def upgrade(head: bytes) -> bytes | None:
    """The answer to a request for a WebSocket; None if the head asks for none."""
    key = _KEY.search(head)
    if key is None:
        return None
    accept = base64.b64encode(hashlib.sha1(key[1] + _GUID, usedforsecurity=False).digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"sec-websocket-accept: %b\r\n\r\n" % accept
    )


def _frame(payload: bytes) -> bytes:
    size = len(payload)
    head = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
    return b"\x81" + head + payload


def _take_frame(buffer: bytes) -> tuple[int, int] | None:
    """Opcode and size in bytes of the masked frame that a buffer begins with; None if it is not all there."""
    if len(buffer) < 2:
        return None
    length, at = buffer[1] & 127, 2
    if length >= 126:
        width = 2 if length == 126 else 8
        length, at = int.from_bytes(buffer[2 : 2 + width], "big"), 2 + width
    size = at + 4 + length
    return None if len(buffer) < size else (buffer[0], size)


class Socket(asyncio.Protocol):
    """A WebSocket. What a request says is not looked at, only that it is whole.

    Args:
        transport: of the connection that was upgraded.
        received: told of each read.
        next_number: numbers the requests.
        gone: called when the connection is lost.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        received: Callable[[bytes], object],
        next_number: Callable[[], int],
        gone: Callable[[Exception | None], object],
    ) -> None:
        self._transport = transport
        self._received = received
        self._next_number = next_number
        self._gone = gone
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._received(data)
        self._buffer += data
        while (frame := _take_frame(self._buffer)) is not None:
            opcode, size = frame
            self._buffer = self._buffer[size:]
            if opcode == 0x88:
                self._transport.close()
            elif opcode & 0x80:  # the last frame of a message
                events = _events(self._next_number())
                self._transport.write(b"".join(_frame(json.dumps(event).encode()) for event in events))

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone(exc)
