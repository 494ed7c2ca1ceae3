"""A WebSocket server on loopback whose connections are served by functions of the test."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from struct import pack
from types import TracebackType
from typing import Any, Self, TypeAlias

import attrs
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, WebSocketServer

from trio_llm.testing.wire_server import WireRequest

from .http_parts import server_tls


def frame(opcode: int, payload: bytes, *, last: bool = True) -> bytes:
    """A frame as a server sends it (RFC 6455 section 5.2): not masked.

    Args:
        opcode: 0 continuation, 1 text, 2 binary, 8 close, 9 ping.
        last: of its message.
    """
    size = len(payload)
    length = (
        bytes([size]) if size < 126 else pack("!BH", 126, size) if size < 2**16 else pack("!BQ", 127, size)
    )
    return bytes([opcode | 0x80 * last]) + length + payload


def handshake(request: WireRequest) -> bytes:
    """The head that accepts an upgrade (RFC 6455 section 4.2.2)."""
    key = (request.header("sec-websocket-key") or "").encode()
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-accept: %b\r\n\r\n" % accept
    )


@attrs.define(eq=False)
class Peer:
    """A connection as the server sees it.

    Attributes:
        headers: of the upgrade, names in lower case.
        received: the messages of the client so far.
        gone: set when the connection is over on this side too.
    """

    path: str
    headers: dict[str, str]
    socket: WebSocketConnection
    received: list[Any] = attrs.field(factory=list)
    gone: trio.Event = attrs.field(factory=trio.Event)

    async def receive(self) -> Any:
        """The next message, decoded."""
        message = json.loads(await self.socket.get_message())
        self.received.append(message)
        return message

    async def send(self, *messages: Any) -> None:
        """Send messages: text as it is, anything else as JSON."""
        for message in messages:
            await self.socket.send_message(message if isinstance(message, str) else json.dumps(message))

    async def cut(self) -> None:
        """Close the socket without a word."""
        await self.socket._stream.aclose()

    async def hold(self) -> None:
        """Wait until the client is gone."""
        try:
            while True:
                await self.socket.get_message()
        except ConnectionClosed:
            pass


Serve: TypeAlias = Callable[[Peer], Awaitable[None]]


@attrs.frozen
class Reject:
    """Answers the upgrade with a response."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


@attrs.define(eq=False)
class SocketServer:
    """Serves one connection after the other by ``script``; the last entry serves all that follow.

    Attributes:
        peers: the connections that were accepted, in order.
        asked: how many upgrades were asked for.
    """

    script: Sequence[Serve | Reject]
    scheme: str = "http"
    peers: list[Peer] = attrs.field(factory=list)
    asked: int = 0
    url: str = ""
    _stack: AsyncExitStack = attrs.field(factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        listeners: list[Any] = list(await trio.open_tcp_listeners(0, host="127.0.0.1"))
        self.url = f"{self.scheme}://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        if self.scheme == "https":
            listeners = [trio.SSLListener(one, server_tls(), https_compatible=True) for one in listeners]
        nursery = await self._stack.enter_async_context(trio.open_nursery())
        self._stack.callback(nursery.cancel_scope.cancel)
        server = WebSocketServer(
            self._handle,
            listeners,
            handler_nursery=nursery,
            max_message_size=64 * 2**20,
            disconnect_timeout=0,
        )
        await nursery.start(server.run)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _handle(self, request: WebSocketRequest) -> None:
        script = self.script[min(self.asked, len(self.script) - 1)]
        self.asked += 1
        if isinstance(script, Reject):
            await request.reject(script.status, extra_headers=list(script.headers), body=script.body)
            return
        headers = {name.decode().lower(): value.decode() for name, value in request.headers}
        peer = Peer(request.path, headers, await request.accept(extra_headers=[(b"x-request-id", b"req_ws")]))
        self.peers.append(peer)
        try:
            await script(peer)
        except (ConnectionClosed, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            peer.gone.set()
