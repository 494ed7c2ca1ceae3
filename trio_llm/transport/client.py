"""The HTTP client that adapters speak through: one request, one response, one kind of failure."""

from __future__ import annotations

import functools
import re
import ssl
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any, Protocol, Self

import httpx
import trio

from ..model import codes
from ..model.failures import LlmError
from ..model.identifiers import ProviderRequestId
from ..model.identity import APP_IDENTITY, AppIdentity, attribution_headers
from .request_id import find_request_id
from .response_body import ResponseBody
from .stock import PhaseTrace, StockBody
from .transport import TrioTransport
from .watcher import UNWATCHED, WATCHER_EXTENSION, CallWatcher
from .wire_error import WireError

DRAIN_SECONDS = 0.05
"""How long a response may take to end after its terminal marker, to have its connection used again."""

Headers = Mapping[str, str] | Sequence[tuple[str, str]]

_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?|")
_CREDENTIAL_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
)


class _Body(Protocol):
    async def receive(self) -> bytes: ...

    async def aclose(self) -> None: ...


class HttpResponse:
    """A response whose head has arrived; the body is read as it comes.

    Attributes:
        status: 200..599; redirects are not followed.
        headers: of the response.
    """

    __slots__ = ("_body", "_ended", "_failures", "_peer", "headers", "status")

    def __init__(self, response: httpx.Response, body: _Body, failures: ModuleType, peer: str) -> None:
        self.status = response.status_code
        self.headers = response.headers
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

    __slots__ = ("_body", "_client", "_request", "_watcher")

    def __init__(self, client: HttpClient, request: httpx.Request, watcher: CallWatcher) -> None:
        self._client = client
        self._request = request
        self._watcher = watcher
        self._body: _Body | None = None

    async def __aenter__(self) -> HttpResponse:
        peer = self._request.url.netloc.decode("ascii")
        library = self._client._library
        try:
            response, self._body = await self._client._send(self._request, self._watcher)
        except Exception as error:
            failure = _failure(error, library, peer)
            if failure is None:
                raise
        else:
            return HttpResponse(response, self._body, library, peer)
        raise failure

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._body is not None:
            await self._body.aclose()


class HttpClient:
    """Sends requests over the library's own transport, a caller's transport or a caller's client.

    No cookie that a response sets travels with a later request; those that a caller's client held when it was
    handed in do. A caller's client or transport pools connections in its own way, outside what is promised of
    the own transport; httpx2's are as good as httpx's.

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
        checked += self._fixed
        extensions = {WATCHER_EXTENSION: watcher}
        if self._client is None:
            request = self._library.Request(
                method, target, headers=checked, content=content, extensions=extensions
            )
            return HttpRequest(self, request, watcher)
        try:
            request = self._client.build_request(
                method, target, headers=checked, content=content, timeout=None, extensions=extensions
            )
        except UnicodeEncodeError as error:
            failure = LlmError(
                f"a header of the client handed in is not {error.encoding}", codes.INVALID_CONFIG
            )
        else:
            self._replace_cookies(request, checked)
            return HttpRequest(self, request, watcher)
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

    async def _send(self, request: httpx.Request, watcher: CallWatcher) -> tuple[httpx.Response, _Body]:
        if self._closed or (self._client is not None and self._client.is_closed):
            raise LlmError("the HTTP client is closed", codes.INVALID_CONFIG)
        if isinstance(self._transport, TrioTransport):
            response = await self._transport.handle_async_request(request)
            if isinstance(response.stream, ResponseBody):
                _refuse_encoded(response)
                return response, response.stream
            return response, StockBody(response, watcher)  # through a SOCKS proxy
        trace = request.extensions["trace"] = PhaseTrace(watcher)
        watcher.connecting()
        if self._client is not None:
            response = await self._client.send(request, stream=True, follow_redirects=False)
        else:
            assert self._transport is not None
            response = await self._transport.handle_async_request(request)
        trace.head_arrived()
        return response, StockBody(response, watcher)


def _library_of(handed_in: object) -> ModuleType:
    """The module that what a caller handed in belongs to: httpx or httpx2."""
    if isinstance(handed_in, TrioTransport):
        return handed_in.library
    for base in type(handed_in).__mro__:
        name = base.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return sys.modules[name]
    return httpx


def checked_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those headers that a caller may set.

    Raises:
        LlmError: INVALID_CONFIG or INVALID_CREDENTIAL for one that HTTP cannot carry.
    """
    checked = []
    for name, value in headers:
        if _HEADER_NAME.fullmatch(name) is None:
            raise LlmError(f"{name!r} cannot be the name of a header", codes.INVALID_CONFIG)
        lower = name.lower()
        if _HEADER_VALUE.fullmatch(value) is None:
            code = codes.INVALID_CREDENTIAL if lower in _CREDENTIAL_HEADERS else codes.INVALID_CONFIG
            raise LlmError(f"the value of the header {name!r} is not printable ASCII", code)
        if lower not in ("user-agent", "accept-encoding"):
            checked.append((name, value))
    return checked


def _refuse_encoded(response: httpx.Response) -> None:
    # An error keeps its status whatever its body looks like; a stream would only turn up garbage.
    if response.is_success and response.headers.get("content-encoding", "identity") != "identity":
        response.stream.close()  # type: ignore[union-attr]  # a ResponseBody, as the caller has seen
        raise LlmError("the response is compressed, which was not asked for", codes.MALFORMED_RESPONSE)


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
