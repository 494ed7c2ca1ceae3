"""One connection: opened through whatever lies between, and closed at once."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Awaitable, Callable
from typing import cast

import attrs
import trio

from .head import Exchange
from .tls import start_tls
from .wire_error import WireError

READ_SIZE = 32768
"""How much one read takes at most, in bytes: a smaller read shortens a cancel in a flood."""

UPLOAD_SLICE = 65536
"""How much of a request is sent between two signs of life, in bytes."""


@attrs.frozen
class Endpoint:
    """Where to connect to."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken with it."""
        return self.scheme == "https"


@attrs.frozen
class Proxy:
    """An HTTP proxy.

    Attributes:
        authorization: the value of Proxy-Authorization, or None.
    """

    endpoint: Endpoint
    authorization: bytes | None = attrs.field(default=None, repr=False)

    @staticmethod
    def basic(user: str, password: str) -> bytes:
        """The value of Proxy-Authorization for a user and a password (RFC 7617)."""
        return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


@attrs.frozen(cache_hash=True)
class Route:
    """What connections are kept by: those of one route can stand in for one another.

    Attributes:
        target: whom the requests are for; None on a plain connection to a proxy, which serves every target.
    """

    target: Endpoint | None
    proxy: Proxy | None = None

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken anywhere on it."""
        return self.peer.secure or (self.target is not None and self.target.secure)

    @property
    def peer(self) -> Endpoint:
        """The other end of the socket."""
        if self.proxy is not None:
            return self.proxy.endpoint
        assert self.target is not None
        return self.target

    def __str__(self) -> str:
        if self.target is None or self.proxy is None:
            return f"{'' if self.proxy is None else 'the proxy '}{self.peer}"
        return f"{self.target} (through the proxy {self.peer})"


class _Socket(trio.abc.Stream):
    """The raw stream, as TLS and requests use it: reads are bounded, a failed send is kept for later.

    A server may answer and close before it has read the request. Its answer can still be read, but not by
    Trio's TLS once a send has failed, so the failure is held back here until the answer has been looked for.
    """

    def __init__(self, raw: trio.SocketStream) -> None:
        self.raw = raw
        self.send_failure: trio.BrokenResourceError | None = None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self.send_failure is not None:
            await trio.lowlevel.checkpoint()
            return
        try:
            await self.raw.send_all(data)
        except trio.BrokenResourceError as error:
            self.send_failure = error

    async def wait_send_all_might_not_block(self) -> None:
        await self.raw.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            return await self.raw.socket.recv(READ_SIZE)
        except OSError as error:
            raise trio.BrokenResourceError(f"socket connection broken: {error.strerror}") from error

    async def aclose(self) -> None:
        self.raw.socket.close()
        await trio.lowlevel.checkpoint()


class Connection:
    """A connection is owned by exactly one request, or idle in the pool.

    Attributes:
        stream: what HTTP is spoken over.
        idle_since: on Trio's clock; kept by the pool.
    """

    __slots__ = ("_socket", "idle_since", "route", "stream")

    def __init__(self, route: Route, raw: trio.SocketStream) -> None:
        self.route = route
        self._socket = _Socket(raw)
        self.stream: trio.abc.Stream = self._socket
        self.idle_since = 0.0

    def close(self) -> None:
        """Close the socket, at once and without a word: it works in a cancelled task and waits for nobody."""
        self._socket.raw.socket.close()

    @property
    def receive_some(self) -> Callable[[int], Awaitable[bytes]]:
        """What reads from :attr:`stream`."""
        return cast(Callable[[int], Awaitable[bytes]], self.stream.receive_some)

    @property
    def send_failure(self) -> trio.BrokenResourceError | None:
        """Why sending stopped, if it did. What was sent after that went nowhere."""
        return self._socket.send_failure

    def is_stale(self) -> bool:
        """Whether an idle connection has something to read: its end, or bytes that nobody asked for."""
        return self._socket.raw.socket.is_readable()


async def connect(route: Route, ssl_context: ssl.SSLContext | None, user_agent: bytes | None) -> Connection:
    """Open a connection. Whatever goes wrong, cancellation included, nothing stays open.

    Args:
        ssl_context: needed where the route is secure.
        user_agent: named to a proxy that is asked for a tunnel.

    Raises:
        WireError: ConnectError or ProxyError.
    """
    peer = route.peer
    try:
        raw = await trio.open_tcp_stream(peer.host, peer.port)
    except OSError as error:
        raise WireError("ConnectError", f"cannot connect: {_reason(error)}") from error
    connection = Connection(route, raw)
    try:
        if peer.secure:
            assert ssl_context is not None
            whose = "server" if route.proxy is None else "proxy"
            connection.stream = await start_tls(connection.stream, ssl_context, peer.host, whose)
        if route.proxy is not None and route.target is not None:
            await _open_tunnel(connection, route.proxy, route.target, user_agent)
            if route.target.secure:
                assert ssl_context is not None
                connection.stream = await start_tls(
                    connection.stream, ssl_context, route.target.host, "server"
                )
    except BaseException:
        connection.close()
        raise
    return connection


def _reason(error: OSError) -> str:
    """Trio's own text lists attempts; the system's says why the last one failed."""
    cause: BaseException | None = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[-1]
    told = cause if isinstance(cause, OSError) else error
    return told.strerror or str(told) or type(told).__name__


async def _open_tunnel(
    connection: Connection, proxy: Proxy, target: Endpoint, user_agent: bytes | None
) -> None:
    """CONNECT (RFC 9110 section 9.3.6)."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    authority = f"{host}:{target.port}".encode("ascii")
    headers = [(b"host", authority)]
    if user_agent is not None:
        headers.append((b"user-agent", user_agent))
    if proxy.authorization is not None:
        headers.append((b"proxy-authorization", proxy.authorization))
    exchange = Exchange(b"CONNECT", authority, headers, b"")
    try:
        await connection.stream.send_all(exchange.begin)
        response = None
        while response is None:
            response = exchange.receive(await connection.receive_some(READ_SIZE))
    except trio.BrokenResourceError as error:
        raise WireError("ProxyError", "the proxy broke the connection") from error
    except WireError as error:
        raise WireError("ProxyError", f"the proxy did not open a tunnel: {error}") from error
    if not 200 <= response.status_code < 300:
        raise WireError("ProxyError", f"the proxy refused a tunnel with status {response.status_code}")
    if exchange.trailing_data:
        raise WireError("ProxyError", "the proxy sent bytes of its own into the tunnel")
