"""The library's HTTP client, on the inside: one request, over our transport, watched.

The library and its SDKs hand a request to what they take for an httpx transport. It goes out through
:class:`~trio_llm.transport.client.HttpClient`, with our headers, and is seen on its way: that is where
liveness, the settlement's facts, the exact failure, the end of a network read and the end of the stream
are known, none of which the library tells.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Final, Self, cast

from ...model import codes
from ...model.failures import LlmError, LlmFailure
from ...model.identifiers import ProviderRequestId
from ...protocol.json_text import decode_lenient
from ...protocol.sse import SseDecoder
from ...streaming.contract import ChunkSink
from ...transport.client import HttpClient, HttpRequest, HttpResponse
from ...transport.errors import error_from_response, failure_from_error_object
from ...transport.secrets import blacked_out
from ..http_call import ERROR_BODY_LIMIT, HEAD_LIMIT

# All that is taken over of what an SDK wants to send. Its other headers describe the machine, or are what
# it found in the environment: organisations, projects, keys, custom headers.
_PASSED: Final = frozenset({"accept", "content-type", "anthropic-version", "anthropic-beta"})
_PINGS: Final = frozenset({"ping", "keepalive", "heartbeat"})
_ERRORS: Final = frozenset({"error", "response.failed"})
_TERMINAL: Final = frozenset(
    {"message_stop", "message-end", "response.completed", "response.incomplete", "response.failed"}
)


class ObservedExchange:
    """The one request of an attempt; an httpx transport to the library. An async context manager.

    Args:
        before_read: awaited whenever what came so far has been used up, before more is read.
        headers: the credential and the configured headers.
        secrets: blacked out where the provider's error repeats one.

    Attributes:
        failure: how the exchange itself failed: the transport, or the provider's answer.
        response: once its head is there and says success.
        terminal: the stream's own end was seen.
        progressed: an event came that is no ping; reset by the reader.
    """

    def __init__(
        self,
        http: HttpClient,
        sink: ChunkSink,
        library: ModuleType,
        headers: Sequence[tuple[str, str]],
        secrets: Sequence[str],
        before_read: Callable[[], Awaitable[None]],
    ) -> None:
        self._http = http
        self._sink = sink
        self._library = library
        self._headers = headers
        self._secrets = secrets
        self._before_read = before_read
        self._request: HttpRequest | None = None
        self._sse = SseDecoder()
        self._head = b""
        self._ended = False
        self.failure: LlmError | None = None
        self.response: HttpResponse | None = None
        self.terminal = False
        self._has_events = False
        self.progressed = False
        self._reported: LlmFailure | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._request is not None:
            await self._request.__aexit__(None, None, None)

    @property
    def asked(self) -> bool:
        """Whether the library sent its request."""
        return self._request is not None

    async def handle_async_request(self, request: Any) -> Any:
        """What httpx and httpx2 call. The second request of an attempt is refused."""
        try:
            return await self._exchange(request)
        except LlmError as error:
            self.failure = self.failure or error
            raise self._library.ConnectError(str(error), request=request) from error

    async def aclose(self) -> None:
        """Nothing: the connections are not the library's."""

    async def _exchange(self, request: Any) -> Any:
        if self._request is not None:
            raise LlmError("the library wants to send a second request within one attempt", codes.UNKNOWN)
        headers = [(name, value) for name, value in request.headers.items() if name.lower() in _PASSED]
        url = str(request.url)
        self._request = self._http.request(
            request.method,
            url,
            headers=[*headers, *self._headers],
            content=await request.aread(),
            watcher=self._sink,
        )
        response = await self._request.__aenter__()
        id = response.request_id and ProviderRequestId(blacked_out(response.request_id, self._secrets))
        self._sink.note_response(status=response.status, request_id=id)
        # As bytes: of text, the library's headers take ASCII alone.
        told = [(name.encode(), value.encode()) for name, value in response.headers.items()]
        said = {"status_code": response.status, "headers": told, "request": request}
        if 200 <= response.status <= 299:
            self.response = response
            return self._library.Response(**said, stream=_body_class(self._library)(self))
        try:
            body = await response.read(ERROR_BODY_LIMIT)
        except LlmError:  # the status alone says what happened
            body = b""
        self._sink.alive(len(body))
        self.failure = error_from_response(
            response.status, response.headers, body, url=url, secrets=self._secrets
        )
        return self._library.Response(**said, content=body)

    async def receive(self) -> bytes:
        """The events of one network read for the library; ``b""`` once it has seen the stream's end.

        They are framed anew: not every SDK reads comments, or an event cut at an odd place.
        """
        try:
            while not self._ended:
                await self._before_read()
                if self.terminal:
                    break
                assert self.response is not None
                data = await self.response.receive()
                if data:
                    self._sink.alive(len(data))
                events = b"".join(self._note(data))
                if events:
                    return events
        except LlmError as error:
            self.failure = error
            raise self._library.ReadError(str(error)) from error
        return b""

    def _note(self, data: bytes) -> Iterator[bytes]:
        self._ended = not data
        if len(self._head) < HEAD_LIMIT:
            self._head += data
        for name, payload in self._sse.feed(data) if data else self._sse.close(True):
            self._has_events = True
            text = payload.strip()
            if not text or text.startswith(b":"):  # a comment that a proxy put into a data field
                continue
            if name not in _PINGS:
                self.progressed = True
            if text == b"[DONE]" or name in _TERMINAL:
                self.terminal = True
            if text != b"[DONE]":
                try:
                    self._note_error(name, decode_lenient(payload))
                except LlmError as error:  # some SDKs pass over an event that they cannot decode
                    self.failure = error
                    self._ended = True
                    return
            if name:
                yield b"event: %s\n" % name.encode()
            yield b"data: %s\n\n" % payload.replace(b"\n", b"\ndata: ")

    def _note_error(self, name: str, event: Any) -> None:
        # Some SDKs pass over an error inside the stream, or keep its wording alone.
        if isinstance(event, dict) and (event.get("error") or name in _ERRORS):
            assert self.response is not None
            self._reported = failure_from_error_object(
                event.get("response") or event, headers=self.response.headers, secrets=self._secrets
            )

    def fault(self) -> LlmError | None:
        """What went wrong, as far as it was seen here.

        The transport, the answer's status, an error inside the stream, or an answer without any event.
        """
        if self.failure is not None:
            return self.failure
        if self._reported is not None:
            return LlmError.of(self._reported)
        response = self.response
        if response is None or self._has_events:
            return None
        return error_from_response(response.status, response.headers, self._head, secrets=self._secrets)

    async def drain(self) -> None:
        """Read what may follow the end, for at most 50 ms, so that the connection is used again."""
        if self.response is not None:
            await self.response.drain()


class _Body:
    """The body of a successful response as the library reads it. An iterator and no generator."""

    def __init__(self, exchange: ObservedExchange) -> None:
        self._exchange = exchange

    def __aiter__(self) -> AsyncIterator[bytes]:
        return cast(AsyncIterator[bytes], self)

    async def __anext__(self) -> bytes:
        data = await self._exchange.receive()
        if not data:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        """Nothing: the exchange ends with the attempt."""


@functools.cache
def _body_class(library: ModuleType) -> type[_Body]:
    """The body as the stream that this library's responses insist on."""
    return cast(type[_Body], type("ObservedBody", (_Body, library.AsyncByteStream), {}))


def make_http_client(exchange: ObservedExchange, library: ModuleType) -> Any:
    """A client of httpx or httpx2 whose every request goes into ``exchange``.

    It owns nothing, so it needs no closing. Deadlines are the engine's.
    """
    return library.AsyncClient(transport=exchange, timeout=None, trust_env=False)
