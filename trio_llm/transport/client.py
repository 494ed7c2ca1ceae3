"""The HTTP client that adapters speak through: one request, one response, one kind of failure."""

from __future__ import annotations

import functools
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any, Protocol, Self

import httpx
import trio

from ..model import codes
from ..model.failures import LlmError
from ..model.identifiers import ProviderRequestId
from ..model.identity import APP_IDENTITY, AppIdentity, attribution_headers
from .headers import by_name, checked_headers
from .request_id import find_request_id
from .response_body import ResponseBody
from .stock import PhaseTrace, StockBody, upload_class
from .transport import TrioTransport
from .watcher import UNWATCHED, WATCHER_EXTENSION, CallWatcher
from .wire_error import WireError

DRAIN_SECONDS = 0.05
"""How long a response may take to end after its terminal marker, to have its connection used again."""

Headers = Mapping[str, str] | Sequence[tuple[str, str]]


class _Body(Protocol):
    async def receive(self) -> bytes: ...

    async def aclose(self) -> None: ...


class HttpResponse:
    """A response whose head has arrived; the body is read as it comes.

    Attributes:
        status: 200..599; redirects are not followed.
        headers: of the response, by their names in lower case.
    """

    __slots__ = ("_body", "_ended", "_failures", "_peer", "headers", "status")

    def __init__(
        self, status: int, headers: Mapping[str, str], body: _Body, failures: ModuleType, peer: str
    ) -> None:
        self.status = status
        self.headers = headers
        self._body = body
        self._failures = failures
        self._peer = peer
        self._ended = False

    @property
    def request_id(self) -> ProviderRequestId | None:
        """The provider's own id of this request, where it gave one."""
        return find_request_id(self.headers)

    async def receive(self) -> bytes:
        """The body bytes of one network read, without HTTP framing; ``b""`` once the body ended properly.

        Not a checkpoint where bytes are at hand already. Cancelling it closes the connection.

        Raises:
            LlmError: TRANSPORT, if the connection broke or the body is cut short or badly framed.
        """
        try:
            data = await self._body.receive()
        except Exception as error:
            failure = _failure(error, self._failures, self._peer)
            if failure is None:
                raise
        else:
            if not data:
                self._ended = True
            return data
        raise failure

    async def read(self, limit: int) -> bytes:
        """The body up to ``limit`` bytes (of an error, say); what lies beyond is left unread.

        Raises:
            LlmError: TRANSPORT, as :meth:`receive`.
        """
        pieces = bytearray()
        while len(pieces) < limit and (data := await self.receive()):
            pieces += data
        return bytes(pieces[:limit])

    async def aclose(self) -> None:
        """Let go of the connection. Idempotent."""
        await self._body.aclose()

    async def drain(self) -> None:
        """Read and drop what is left, for at most 50 ms, so that the connection can be used again.

        Call it after a terminal marker. Never raises an error of the transport: an answer that is complete
        for its reader is not spoilt by how its connection ends.
        """
        if self._ended or (isinstance(self._body, ResponseBody) and self._body.complete):
            return
        with trio.move_on_after(DRAIN_SECONDS):
            try:
                while await self.receive():
                    pass
            except LlmError:
                pass


class HttpRequest:
    """An async context manager: entering sends the request and gives its response, leaving lets go of it.

    A response read to its end leaves its connection for the next request. Any other is closed on leaving, at
    once; one of a caller's own client or transport in at most a second.

    Raises (on entering):
        LlmError: TRANSPORT, or INVALID_CONFIG, where the environment's proxy or CA file cannot be used or the
            client is closed.
    """

    __slots__ = ("_library", "_peer", "_response", "_send")

    def __init__(self, send: Callable[[], Awaitable[HttpResponse]], library: ModuleType, peer: str) -> None:
        self._send = send
        self._library = library
        self._peer = peer
        self._response: HttpResponse | None = None

    async def __aenter__(self) -> HttpResponse:
        try:
            self._response = await self._send()
        except Exception as error:
            failure = _failure(error, self._library, self._peer)
            if failure is None:
                raise
        else:
            return self._response
        raise failure

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._response is not None:
            await self._response.aclose()


class HttpClient:
    """Sends requests over the library's own transport, a caller's transport or a caller's client.

    No cookie that a response sets travels with a later request; those that a caller's client held when it was
    handed in do. A caller's client or transport pools connections in its own way, outside what is promised of
    the own transport; httpx2's are as good as httpx's.

    Attributes:
        identity: who sends the requests.

    Args:
        client: the caller's own client; it stays the caller's to close.
        transport: the caller's own transport; closed with this client.
        identity: who sends the requests; attribution can be replaced, not switched off.
        max_connections: how many connections of the own transport may be open at once; further requests wait.
        ssl_context: for https over the own transport; by default certificates are verified as httpx does.

    Raises:
        ValueError: both a client and a transport, or settings of the own transport beside either.
        LlmError: INVALID_CONFIG, if a proxy variable of the environment holds no proxy's URL.
    """

    def __init__(
        self,
        *,
        client: httpx.AsyncClient | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        identity: AppIdentity = APP_IDENTITY,
        max_connections: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        if client is not None and transport is not None:
            raise ValueError("a client has its own transport: hand in one or the other")
        if not (client is None and transport is None) and not (
            max_connections is None and ssl_context is None
        ):
            raise ValueError("max_connections and ssl_context are for the own transport")
        self.identity = identity
        self._client = client
        self._library = _library_of(client or transport)
        self._transport = transport
        if client is None and transport is None:
            self._transport = TrioTransport(ssl_context=ssl_context, max_connections=max_connections)
        # A copy: what responses add to the client's own jar later is not sent.
        self._cookies = (
            self._library.Cookies(client.cookies) if client is not None and client.cookies else None
        )
        self._fixed = [*attribution_headers(identity).items(), ("accept-encoding", "identity")]
        self._fixed_bytes = [(name.encode("ascii"), value.encode("ascii")) for name, value in self._fixed]
        self._closed = False
        self._url = functools.lru_cache(64)(self._parse_url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the idle connections and the transport. A caller's client stays open. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._transport is not None:
                await self._transport.aclose()

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: bytes = b"",
        watcher: CallWatcher = UNWATCHED,
    ) -> HttpRequest:
        """A request to enter with ``async with``; nothing is sent before.

        ``user-agent`` and ``accept-encoding`` are set here, whatever ``headers`` says.

        Raises:
            LlmError: INVALID_BASE_URL for a URL that is not one, INVALID_CONFIG or INVALID_CREDENTIAL for a
                header that HTTP cannot carry (the error names the header and never tells its value).
        """
        target = self._url(url)
        checked = checked_headers(headers.items() if isinstance(headers, Mapping) else headers)
        peer = target.netloc.decode("ascii")
        if type(self._transport) is TrioTransport:  # a subclass may do more in handle_async_request
            send = functools.partial(self._exchange, method, target, checked, content, watcher, peer)
        else:
            request = self._request(method, target, checked, content, watcher)
            send = functools.partial(self._through_library, request, watcher, peer)
        return HttpRequest(send, self._library, peer)

    async def _exchange(
        self,
        method: str,
        url: httpx.URL,
        headers: list[tuple[str, str]],
        content: bytes,
        watcher: CallWatcher,
        peer: str,
    ) -> HttpResponse:
        """Over the own transport, which needs no objects of httpx's for a request and its response."""
        self._require_open()
        transport = self._transport
        assert isinstance(transport, TrioTransport)
        if transport.goes_through_socks(url):
            request = self._request(method, url, headers, content, watcher)
            return await self._through_library(request, watcher, peer)
        given = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers]
        given += self._fixed_bytes
        if not any(name.lower() == b"host" for name, _ in given):
            given.insert(0, (b"host", url.netloc))
        if content or method in ("POST", "PUT", "PATCH"):  # RFC 9110 section 8.6
            given.append((b"content-length", b"%d" % len(content)))
        head, body = await transport.exchange(method.encode("ascii"), url, given, content, watcher)
        told = by_name(head.headers)
        # An error keeps its status whatever its body looks like; a stream would only turn up garbage.
        if head.status_code < 300 and told.get("content-encoding", "identity") != "identity":
            body.close()
            raise LlmError("the response is compressed, which was not asked for", codes.MALFORMED_RESPONSE)
        return HttpResponse(head.status_code, told, body, self._library, peer)

    def _request(
        self,
        method: str,
        url: httpx.URL,
        headers: list[tuple[str, str]],
        content: bytes,
        watcher: CallWatcher,
    ) -> Any:
        """A request of the library's that the caller's client or transport belongs to."""
        headers = headers + self._fixed
        extensions = {WATCHER_EXTENSION: watcher}
        if self._client is None:
            return self._library.Request(method, url, headers=headers, content=content, extensions=extensions)
        try:
            request = self._client.build_request(
                method, url, headers=headers, content=content, timeout=None, extensions=extensions
            )
        except UnicodeEncodeError as error:
            failure = LlmError(
                f"a header of the client handed in is not {error.encoding}", codes.INVALID_CONFIG
            )
        else:
            self._replace_cookies(request, headers)
            return request
        raise failure

    def _replace_cookies(self, request: httpx.Request, own: list[tuple[str, str]]) -> None:
        if "cookie" not in request.headers or any(name.lower() == "cookie" for name, _ in own):
            return
        del request.headers["cookie"]
        if self._cookies is not None:
            self._cookies.set_cookie_header(request)

    def _parse_url(self, url: str) -> httpx.URL:
        try:
            parsed: Any = self._library.URL(url)
        except (self._library.InvalidURL, UnicodeError):
            parsed = None  # its text may quote a password
        if (
            parsed is None
            or parsed.scheme not in ("http", "https")
            or not parsed.host
            or not 0 < (parsed.port or 80) < 65536
        ):
            raise LlmError("a request's URL is not an http or https URL with a host", codes.INVALID_BASE_URL)
        if parsed.userinfo:
            raise LlmError("credentials have no place in a URL", codes.INVALID_BASE_URL)
        result: httpx.URL = parsed
        return result

    def _require_open(self) -> None:
        if self._closed or (self._client is not None and self._client.is_closed):
            raise LlmError("the HTTP client is closed", codes.INVALID_CONFIG)

    async def _through_library(self, request: Any, watcher: CallWatcher, peer: str) -> HttpResponse:
        """Over the caller's client or transport, or through a SOCKS proxy."""
        self._require_open()
        if request.content:  # it stays there for those that look at it
            request.stream = upload_class(self._library)(request.content, watcher)
        trace = request.extensions["trace"] = PhaseTrace(watcher)
        watcher.connecting()
        if self._client is not None:
            response = await self._client.send(request, stream=True, follow_redirects=False)
        else:
            assert self._transport is not None
            response = await self._transport.handle_async_request(request)
        trace.head_arrived()
        body = StockBody(response, watcher)
        return HttpResponse(response.status_code, response.headers, body, self._library, peer)


def _library_of(handed_in: object) -> ModuleType:
    """The module that what a caller handed in belongs to: httpx or httpx2."""
    if isinstance(handed_in, TrioTransport):
        return handed_in.library
    for base in type(handed_in).__mro__:
        name = base.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return sys.modules[name]
    return httpx


def _failure(error: Exception, library: ModuleType, peer: str) -> LlmError | None:
    """What an exception of a transport means; None for one that is none of its failures."""
    told = error.__cause__
    if isinstance(told, WireError):
        code = codes.INVALID_CONFIG if told.kind == "LocalProtocolError" else codes.TRANSPORT
        failure = LlmError(str(told), code)
        failure.__cause__ = error
        return failure
    if isinstance(error, library.ProtocolError):
        # Foreign protocol errors quote what they complain about, keys and cookies included: not even chained.
        return LlmError(f"{peer}: the exchange broke the rules of HTTP", codes.TRANSPORT)
    if isinstance(error, (library.HTTPError, library.StreamError, OSError, trio.BrokenResourceError)):
        failure = LlmError(f"{peer}: {type(error).__name__}: {error}".rstrip(": "), codes.TRANSPORT)
        failure.__cause__ = error
        return failure
    return None
