"""The HTTP client that adapters speak through: one request, one response, one kind of failure."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import httpx

from ..model.identifiers import ProviderRequestId
from ..model.identity import APP_IDENTITY, AppIdentity
from .watcher import UNWATCHED, CallWatcher


class HttpResponse:
    """A response whose head has arrived; the body is read as it comes.

    Attributes:
        status: 200..599; redirects are not followed.
        headers: of the response.
    """

    status: int
    headers: httpx.Headers

    @property
    def request_id(self) -> ProviderRequestId | None:
        """The provider's own id of this request, where it gave one."""
        raise NotImplementedError

    async def receive(self) -> bytes:
        """The body bytes of one network read, without HTTP framing; ``b""`` once the body ended properly.

        Not a checkpoint where bytes are at hand already.

        Raises:
            LlmError: TRANSPORT, if the connection broke or the body is cut short or badly framed.
        """
        raise NotImplementedError

    async def read(self, limit: int) -> bytes:
        """The body up to ``limit`` bytes (of an error, say); what lies beyond is left unread.

        Raises:
            LlmError: TRANSPORT, as :meth:`receive`.
        """
        raise NotImplementedError

    async def drain(self) -> None:
        """Read and drop what is left, for at most 50 ms, so that the connection can be used again.

        Call it after a terminal marker. Never raises an error of the transport: an answer that is complete for its
        reader is not spoilt by how its connection ends.
        """
        raise NotImplementedError


class HttpRequest:
    """An async context manager: entering sends the request and gives its response, leaving lets go of the connection.

    Raises (on entering):
        LlmError: TRANSPORT, INVALID_BASE_URL, INVALID_CONFIG or INVALID_CREDENTIAL.
    """

    async def __aenter__(self) -> HttpResponse:
        raise NotImplementedError

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        raise NotImplementedError


class HttpClient:
    """Sends requests over the library's own transport, a caller's transport or a caller's client.

    Args:
        client: the caller's own client; it stays the caller's to close.
        transport: the caller's own transport; closed with this client.
        identity: who sends the requests; attribution can be replaced, not switched off.
        max_connections: how many connections of the own transport may be open at once; further requests wait.
        ssl_context: for https; by default certificates are verified as httpx does.

    Raises:
        ValueError: both a client and a transport.
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
        raise NotImplementedError

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
        raise NotImplementedError

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        content: bytes = b"",
        watcher: CallWatcher = UNWATCHED,
    ) -> HttpRequest:
        """A request to enter with ``async with``; nothing is sent before.

        ``user-agent`` and ``accept-encoding`` are set here, whatever ``headers`` says.

        Raises:
            LlmError: INVALID_BASE_URL for a URL that is not one, INVALID_CONFIG or INVALID_CREDENTIAL for a header
                that HTTP cannot carry (the error names the header and never tells its value).
        """
        raise NotImplementedError
