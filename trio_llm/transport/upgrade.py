"""The upgrade of a connection to a WebSocket (RFC 6455 section 4): what it goes over, and why it failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import trio

from ..model import codes
from ..model.failures import LlmError
from .connection import READ_SIZE, UPLOAD_SLICE, Connection
from .errors import failure_from_response
from .watcher import CallWatcher
from .wire_error import WireError

HANDSHAKE_LIMIT: Final = 1024 * 1024
"""How much a server may say to an upgrade, in bytes."""

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([2-5]\d\d)[ \r\n]")


class UpgradeRefused(LlmError):
    """There is no WebSocket to be had: the server answered with a response, or a proxy has none."""


class UpgradedStream(trio.abc.Stream):
    """The connection, as trio-websocket uses it: sends in slices, with signs of life, and never silent.

    Where sending fails, the reading end says why: what the server said before is worth more.

    Attributes:
        opened: the handshake is done. Until then every end is a WireError: trio-websocket would wait.
        head: what the server said until then.
    """

    def __init__(self, connection: Connection, watcher: CallWatcher) -> None:
        self._connection = connection
        self.watcher = watcher
        self.opened = False
        self.head = b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        for start in range(0, len(data), UPLOAD_SLICE):
            await self._connection.stream.send_all(view[start : start + UPLOAD_SLICE])
            self.watcher.alive()

    async def wait_send_all_might_not_block(self) -> None:
        await self._connection.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            data = await self._connection.receive_some(READ_SIZE)
        except trio.BrokenResourceError as error:
            if self.opened:
                raise
            raise WireError("ReadError", "the connection broke in the WebSocket handshake") from error
        if data:
            self.watcher.alive()
        if not self.opened:
            self.head += data
            if not data:
                raise WireError("ReadError", "the server closed the connection in the WebSocket handshake")
            if len(self.head) > HANDSHAKE_LIMIT:
                raise WireError("RemoteProtocolError", "the server's answer to the upgrade is too large")
        return data

    async def aclose(self) -> None:
        if not self.opened:
            raise WireError("RemoteProtocolError", "the server's answer is no WebSocket handshake")
        self._connection.close()
        await trio.lowlevel.checkpoint()


def refusal_of(peer: str, head: bytes, fault: Exception | None, secrets: Sequence[str]) -> LlmError:
    """Why there was no handshake.

    Args:
        head: what the server said instead, as far as it was read.
        fault: what trio-websocket or the stream raised.
        secrets: blacked out where the server's answer repeats one.

    Returns:
        UpgradeRefused where there is a response, with its facts; else TRANSPORT.
    """
    status = getattr(fault, "status_code", None)
    headers: dict[str, str] = {}
    body = b""
    if status is not None:
        answer: Any = fault
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers or ()}
        body = answer.body or b""
    elif (line := _STATUS_LINE.match(head)) is not None:
        status = int(line[1])
        body = head.partition(b"\r\n\r\n")[2]
    if status is None:
        error = LlmError(f"{peer}: {fault or 'the WebSocket handshake failed'}", codes.TRANSPORT)
    elif 200 <= status <= 299:
        error = UpgradeRefused(
            f"{peer}: HTTP {status} instead of a WebSocket", codes.MALFORMED_RESPONSE, status=status
        )
    else:
        failure = failure_from_response(status, headers, body, secrets=secrets)
        error = UpgradeRefused(failure.message, failure.code)
        error.failure = failure
    error.__cause__ = fault
    return error
