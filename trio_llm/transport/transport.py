"""The library's own HTTP/1.1 transport, plugged in where httpx takes one."""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterable
from types import ModuleType
from typing import cast

import h11
import httpx
import trio

from ..model import codes
from ..model.failures import LlmError
from .connection import READ_SIZE, UPLOAD_SLICE, Connection, Endpoint, Route, connect
from .head import Exchange, HeaderItems
from .pool import Pool
from .proxy import EnvironmentProxies, SocksProxy
from .response_body import ResponseBody
from .stock import PhaseTrace
from .tls import default_ssl_context
from .watcher import UNWATCHED, WATCHER_EXTENSION, CallWatcher
from .wire_error import WireError

IDLE_EXPIRY = 50.0
"""How long an idle connection is kept, in seconds; common load balancers close theirs after 60."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


class TrioTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 over Trio's streams, with a pool that loses nothing under cancellation.

    Whatever ends a request, ``trio.Cancelled`` included, its connection is closed there and then, without
    an await, unless its response was read to the end; then it is idle, for ``idle_expiry`` seconds.
    Deadlines are the caller's cancel scopes: ``extensions["timeout"]`` is not looked at. The proxies of
    the environment are used by httpx's rules; for a SOCKS proxy httpx's stock transport stands in, with
    httpx's own behaviour under cancellation.

    Args:
        ssl_context: for https; by default certificates are verified as httpx does it (SSL_CERT_FILE and
            SSL_CERT_DIR included). Its ALPN protocols are set to HTTP/1.1.
        max_connections: how many connections may be open at once, idle ones included; further requests wait
            in line. None: no limit.
        idle_expiry: in seconds.
        library: the module whose requests, responses and errors are used: ``httpx`` or ``httpx2``.

    Raises:
        LlmError: INVALID_CONFIG, if a proxy variable of the environment holds no proxy's URL.
    """

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        max_connections: int | None = None,
        idle_expiry: float = IDLE_EXPIRY,
        library: ModuleType = httpx,
    ) -> None:
        self.library = library
        self._ssl_context = ssl_context
        self._max_connections = max_connections
        self._pool = Pool(max_connections, idle_expiry)
        self._proxies = EnvironmentProxies(library)
        self._route = functools.lru_cache(256)(self._find_route)
        self._socks: dict[SocksProxy, httpx.AsyncBaseTransport] = {}
        self._closed = False

    @property
    def open_connections(self) -> int:
        """How many connections are being opened, in use, or idle."""
        return self._pool.slots_taken

    @property
    def idle_connections(self) -> int:
        """How many connections wait for their next request."""
        return self._pool.idle_count

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and read the head of its response.

        ``request.extensions["trio_llm.watcher"]`` may hold a ``CallWatcher``.

        Raises:
            httpx.TransportError: with a WireError as its cause; ConnectError, ProxyError, WriteError,
                ReadError, RemoteProtocolError or LocalProtocolError.
            LlmError: INVALID_CONFIG, if the CA file of the environment cannot be read or a SOCKS proxy
                needs a package that is missing.
            trio.ClosedResourceError: the transport is closed.
        """
        watcher: CallWatcher = request.extensions.get(WATCHER_EXTENSION, UNWATCHED)
        route = self._route_of(request.url)
        if isinstance(route, SocksProxy):
            return await self._through_socks(route, request, watcher)
        whole = isinstance(request.stream, self.library.ByteStream)
        content = request.content if whole else cast(AsyncIterable[bytes], request.stream)
        try:
            head, body = await self.exchange(
                request.method.encode("ascii"), request.url, request.headers.raw, content, watcher
            )
        except self.library.TransportError as error:
            error.request = request
            raise
        response: httpx.Response = self.library.Response(
            head.status_code,
            headers=head.headers.raw_items(),
            stream=body,
            extensions={"http_version": b"HTTP/" + head.http_version, "reason_phrase": head.reason},
        )
        return response

    def goes_through_socks(self, url: httpx.URL) -> bool:
        """Whether the environment names a SOCKS proxy for ``url``: then :meth:`exchange` cannot be used."""
        return isinstance(self._route_of(url), SocksProxy)

    async def exchange(
        self,
        method: bytes,
        url: httpx.URL,
        headers: HeaderItems,
        content: bytes | AsyncIterable[bytes],
        watcher: CallWatcher,
    ) -> tuple[h11.Response, ResponseBody]:
        """As :meth:`handle_async_request`, without making a request and a response of httpx's.

        Args:
            headers: all of them, ``host`` and those of the framing included.

        Raises: as :meth:`handle_async_request`.
        """
        route = self._route_of(url)
        assert isinstance(route, Route)
        try:
            return await self._exchange(method, url, headers, content, route, watcher)
        except WireError as error:
            failure: WireError = WireError(error.kind, f"{route}: {error}")
            failure.__cause__ = error.__cause__
        raise getattr(self.library, failure.kind)(str(failure)) from failure

    def _route_of(self, url: httpx.URL) -> Route | SocksProxy:
        if self._closed:
            raise trio.ClosedResourceError("this transport is closed")
        return self._route(url.scheme, url.raw_host, url.port)

    def _find_route(self, scheme: str, raw_host: bytes, port: int | None) -> Route | SocksProxy:
        host = raw_host.decode("ascii")
        endpoint = Endpoint(scheme, host, port or _DEFAULT_PORTS[scheme])
        proxy = self._proxies.proxy_for(scheme, host, port)
        if isinstance(proxy, SocksProxy):
            return proxy
        return Route(endpoint if proxy is None or endpoint.secure else None, proxy)

    async def _exchange(
        self,
        method: bytes,
        url: httpx.URL,
        headers: HeaderItems,
        content: bytes | AsyncIterable[bytes],
        route: Route,
        watcher: CallWatcher,
    ) -> tuple[h11.Response, ResponseBody]:
        target = url.raw_path
        if route.target is None:  # RFC 9112 section 3.2.2
            assert route.proxy is not None
            target = b"http://" + url.netloc + target
            if route.proxy.authorization is not None:
                headers = [*headers, (b"proxy-authorization", route.proxy.authorization)]
        # What is whole is framed before there is a connection, so that a fault in it opens none.
        exchange = Exchange(method, target, headers, content if isinstance(content, bytes) else None)
        ssl_context = self._context() if route.secure else None

        async def open_connection(route: Route) -> Connection:
            agent = next((value for name, value in headers if name.lower() == b"user-agent"), None)
            return await connect(route, ssl_context, agent)

        watcher.connecting()
        connection = await self._pool.acquire(route, open_connection)
        try:
            watcher.connected()
            await _send(connection, exchange.begin, watcher)
            if not isinstance(content, bytes):
                async for part in content:
                    await _send(connection, exchange.send_body(part), watcher)
                await _send(connection, exchange.send_end(), watcher)
            watcher.sent()
            head = await _receive_head(connection, exchange, watcher)
            reader, reusable = exchange.body_of(head)
            body = _body_class(self.library)(
                self._pool,
                connection,
                reader,
                exchange.trailing_data,
                reusable=reusable and connection.send_failure is None,
                watcher=watcher,
                library=self.library,
            )
        except BaseException:
            self._pool.discard(connection)
            watcher.socket_closed()
            raise
        return head, body

    def _context(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = default_ssl_context(self.library)
        return self._ssl_context

    async def _through_socks(
        self, proxy: SocksProxy, request: httpx.Request, watcher: CallWatcher
    ) -> httpx.Response:
        stock = self._socks.get(proxy)
        if stock is None:
            limits = self.library.Limits(max_connections=self._max_connections, keepalive_expiry=IDLE_EXPIRY)
            try:
                stock = self.library.AsyncHTTPTransport(
                    verify=self._context(), proxy=proxy.url, limits=limits
                )
            except ImportError as error:
                raise LlmError(
                    "the environment names a SOCKS proxy, for which the package socksio is missing",
                    codes.INVALID_CONFIG,
                ) from error
            self._socks[proxy] = stock
        request.extensions.setdefault("trace", PhaseTrace(watcher))
        watcher.connecting()
        return await stock.handle_async_request(request)

    async def aclose(self) -> None:
        """Close what is idle. What a request owns is closed when that ends. Idempotent."""
        self._closed = True
        self._pool.close()
        for stock in self._socks.values():
            await stock.aclose()


async def _send(connection: Connection, data: bytes, watcher: CallWatcher) -> None:
    if len(data) <= UPLOAD_SLICE:
        if data:
            await connection.stream.send_all(data)
            watcher.alive()
        return
    view = memoryview(data)
    for start in range(0, len(data), UPLOAD_SLICE):
        if connection.send_failure is not None:
            return
        await connection.stream.send_all(view[start : start + UPLOAD_SLICE])
        watcher.alive()


async def _receive_head(connection: Connection, exchange: Exchange, watcher: CallWatcher) -> h11.Response:
    while True:
        try:
            data = await connection.receive_some(READ_SIZE)
        except trio.BrokenResourceError as error:
            if connection.send_failure is not None:
                data = b""
            else:
                raise WireError("ReadError", "the connection broke before the response's head") from error
        if data:
            watcher.alive()
        elif connection.send_failure is not None:
            raise WireError(
                "WriteError", "the connection broke while the request was sent"
            ) from connection.send_failure
        head = exchange.receive(data)
        if head is not None:
            return head


@functools.cache
def _body_class(library: ModuleType) -> type[ResponseBody]:
    """ResponseBody as the stream that this library's responses insist on."""
    return cast(type[ResponseBody], type("ResponseBody", (ResponseBody, library.AsyncByteStream), {}))
