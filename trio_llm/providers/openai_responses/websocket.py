"""Calls over WebSockets (OpenAI docs, "WebSocket mode"; xAI documents the same).

A session keeps one connection. The provider remembers there the last response that went well, so the next
request names it and carries only what is new; after anything else it carries the whole context again.

* One response at a time: a connection whose response did not end properly is closed, never used again. A
  second call on a busy session gets a connection of its own, and none of the memory.
* A connection is closed before the provider does it, after 60 minutes.
* Before the first event a call may start over, as a wire attempt of its own: with the whole context where
  the provider has forgotten the response (``previous_response_not_found``), on a new connection where the
  one it found turns out to be gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs
import trio

from ...model import codes
from ...model.chunks import Finish, Stop, StreamChunk, ToolCalls
from ...model.failures import LlmError, LlmFailure
from ...model.identifiers import ProviderRequestId
from ...protocol.json_text import encode_body
from ...streaming.contract import ChunkSink
from ...transport.error_body import read_error
from ...transport.errors import failure_from_error_object
from ...transport.secrets import blacked_out, failure_without, kept_secret
from ...transport.upgrade import UpgradeRefused
from ...transport.websocket import WebSocket, WebSocketClient
from ..http_call import LAST_WORDS, Delivery
from .translate import ResponsesTranslator
from .types import ResponseEvent, decode_event

MAX_AGE: Final = 55 * 60.0
"""How old a connection may be when a response begins, in seconds: the provider closes it after 60 minutes."""

REFUSED_SECONDS: Final = 300.0
"""How long an endpoint that refused an upgrade is spoken to over HTTP alone."""

_FORGOTTEN: Final = "previous_response_not_found"
_EXPIRED: Final = "websocket_connection_limit_reached"

Items: TypeAlias = list[dict[str, Any]]

ReplyItems: TypeAlias = Callable[[ResponsesTranslator, Finish], Items]
"""Gives the input items that a response will be in the next request."""


@attrs.frozen(eq=False)
class Turn:
    """What the provider remembers on a connection.

    Attributes:
        response_id: of the last response.
        fields: of the request it answered.
        items: the input items of that request, and those of the answer.
    """

    response_id: str
    fields: Mapping[str, Any]
    items: Items

    def rest_of(self, fields: Mapping[str, Any], items: Items) -> Items | None:
        """The items that are new in a request that goes on from here; None if it does not.

        It does not where another model has spoken since: what is remembered ends with this one's answer.
        """
        known = len(self.items)
        rest = items[known:]
        if not rest or fields != self.fields or items[:known] != self.items or any(map(_is_said, rest)):
            return None
        return rest


def _is_said(item: Mapping[str, Any]) -> bool:
    """Whether an item is a model's own, neither words of others nor the result of a call."""
    return not item["type"].endswith("_output") and item.get("role") not in ("user", "system")


@attrs.define(eq=False)
class Connection:
    """A WebSocket of a session.

    Attributes:
        origin: what it was opened with; one for another URL or with another key is not used.
        born: on Trio's clock.
        turn: None where the whole context must be sent.
        told: its request id has been noted.
        forgot: the type of the event that said that the last response is forgotten, if one did.
    """

    socket: WebSocket
    origin: object
    born: float
    turn: Turn | None = None
    told: bool = False
    forgot: str | None = None


@attrs.frozen
class Request:
    """One request, as the connection may carry it in whole or in part.

    Attributes:
        session: whose connection it is.
        url, headers: of the endpoint.
        fields: everything beside the input items.
        secrets: blacked out where the provider's error repeats one.
        max_event_size: in bytes.
        reply_items: what the answer will be in the next request.
    """

    session: str
    url: str
    headers: Sequence[tuple[str, str]] = attrs.field(repr=False)
    fields: Mapping[str, Any]
    items: Items
    secrets: Sequence[str] = attrs.field(repr=False)
    max_event_size: int
    reply_items: ReplyItems

    @property
    def origin(self) -> object:
        """What a connection must have been opened with to carry it."""
        return self.url, tuple(self.headers), self.max_event_size


class _StartOver(Exception):
    """The call may begin again, as nothing of a response came.

    Attributes:
        lost: on another connection.
    """

    def __init__(self, failure: LlmFailure, *, lost: bool) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.lost = lost


class SessionSockets:
    """The WebSockets of an adapter, one idle at most for each session.

    They live in tasks of a nursery; :meth:`close` ends them all.
    """

    def __init__(self, client: WebSocketClient) -> None:
        self._client = client
        self._nursery: trio.Nursery | None = None
        self._idle: dict[str, Connection] = {}
        self._refused: dict[str, float] = {}  # by URL: until when

    def open(self, nursery: trio.Nursery) -> None:
        """Keep the sockets in tasks of ``nursery``."""
        self._nursery = nursery

    def close(self) -> None:
        """Close every socket, also one in use."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
            self._nursery = None

    def wanted(self, url: str) -> bool:
        """Whether an endpoint is worth another try: it has refused none of late."""
        until = self._refused.get(url)
        if until is not None and until <= trio.current_time():
            del self._refused[url]
            until = None
        return until is None

    async def call(self, request: Request, sink: ChunkSink) -> None:
        """Run one call. Cancelling it closes its connection at once.

        Raises:
            UpgradeRefused: nothing was sent, and HTTP may serve.
            LlmError: what the handshake, the transport, an undecodable message (MALFORMED_RESPONSE) or a
                missing end (STREAM_CLOSED) amounts to.
        """
        with kept_secret(request.secrets):
            await self._call(request, sink)

    async def _call(self, request: Request, sink: ChunkSink) -> None:
        connection = self._take(request)
        reused = connection is not None
        if connection is not None:
            _attend(connection, sink)
        while True:
            if connection is None:
                connection = await self._connect(request, sink)
            try:
                clean = await _exchange(connection, request, sink, reused=reused)
            except _StartOver as again:
                if again.lost:
                    connection.socket.close()
                    connection, reused = None, False
                sink.socket_closed()
                sink.next_wire_attempt(failure_without(again.failure, request.secrets))
                if connection is not None:
                    _attend(connection, sink)
                continue
            except BaseException:
                connection.socket.close()
                sink.socket_closed()
                raise
            break
        if clean:
            self._give_back(request.session, connection)
        else:
            connection.socket.close()
        sink.socket_closed()

    async def _connect(self, request: Request, sink: ChunkSink) -> Connection:
        if self._nursery is None:
            raise RuntimeError("WebSockets need an open adapter: async with ResponsesAdapter(...) as adapter")
        try:
            socket = await self._client.connect(
                self._nursery,
                request.url,
                headers=request.headers,
                watcher=sink,
                max_message_size=request.max_event_size,
                secrets=request.secrets,
            )
        except UpgradeRefused:
            self._refused[request.url] = trio.current_time() + REFUSED_SECONDS
            raise
        return Connection(socket, request.origin, trio.current_time())

    def _take(self, request: Request) -> Connection | None:
        connection = self._idle.pop(request.session, None)
        if connection is None:
            return None
        too_old = trio.current_time() >= connection.born + MAX_AGE
        if too_old or connection.origin != request.origin or not connection.socket.usable:
            connection.socket.close()
            return None
        return connection

    def _give_back(self, session: str, connection: Connection) -> None:
        socket = connection.socket
        if self._nursery is None or session in self._idle or not socket.usable:
            socket.close()
            return
        self._idle[session] = connection
        socket.rest(connection.born + MAX_AGE)

        def forget() -> None:
            if self._idle.get(session) is connection:
                del self._idle[session]

        socket.on_close = forget


def _attend(connection: Connection, sink: ChunkSink) -> None:
    """A connection that is open already goes to a call."""
    sink.connecting()
    connection.socket.attend(sink)
    sink.connected()


async def _exchange(connection: Connection, request: Request, sink: ChunkSink, *, reused: bool) -> bool:
    """Send a request and read its response; whether the connection can be used again."""
    turn, connection.turn = connection.turn, None
    rest = None if turn is None else turn.rest_of(request.fields, request.items)
    body = {"type": "response.create", **request.fields}
    if turn is not None and rest is not None:
        body["previous_response_id"] = turn.response_id
    body["input"] = request.items if rest is None else rest
    id = None if connection.told else connection.socket.request_id
    if id is not None:
        id = ProviderRequestId(blacked_out(id, request.secrets))
    sink.note_response(status=101, request_id=id)
    connection.told = True
    reader = _Reader(connection, request, sink, continued=rest is not None, reused=reused)
    try:
        await connection.socket.send(encode_body(body))
        return await reader.run()
    except LlmError as error:
        if reused and not reader.begun and error.code in (codes.TRANSPORT, codes.STREAM_CLOSED):
            raise _StartOver(error.failure, lost=True) from error
        raise


class _Reader:
    """Reads one response.

    Attributes:
        begun: something of the response was delivered.
    """

    def __init__(
        self, connection: Connection, request: Request, sink: ChunkSink, *, continued: bool, reused: bool
    ) -> None:
        self._connection = connection
        self._socket = connection.socket
        self._request = request
        self._continued = continued
        self._reused = reused
        self._translator = ResponsesTranslator(request.secrets)
        self._delivery = Delivery(sink, self._translator, request.secrets)
        self.begun = False

    async def run(self) -> bool:
        translator = self._translator
        last_words = math.inf
        while True:
            if translator.ending:
                last_words = min(last_words, trio.current_time() + LAST_WORDS)
            out: list[StreamChunk] = []
            messages = await self._receive(last_words, out)
            failure: LlmError | None = None
            whole = False
            try:
                whole = self._translate(messages, out)
            except LlmError as error:
                failure = error
            self.begun = self.begun or bool(out) or translator.progressed or failure is not None
            if failure is not None and translator.ending:
                failure = None
                translator.close(False, out)
            if translator.terminal and whole:
                self._remember(out[-1])
            await self._delivery.send(out, sum(map(len, messages)))
            if failure is not None:
                raise failure
            if translator.terminal:
                return whole

    async def _receive(self, last_words: float, out: list[StreamChunk]) -> list[bytes]:
        """The next messages; none where the last words after an error are not coming."""
        if last_words == math.inf:
            return await self._socket.receive()
        try:
            with trio.CancelScope(deadline=last_words):
                return await self._socket.receive()
        except LlmError:
            pass
        self._translator.close(False, out)
        return []

    def _translate(self, messages: Sequence[bytes], out: list[StreamChunk]) -> bool:
        """Append the chunks of some messages; whether the response ends with the last of them."""
        for number, data in enumerate(messages, 1):
            event = decode_event("", data)
            if event is None:
                continue
            if not self.begun and not out and self._is_of_before(event):
                continue
            self._translator.feed(event, out)
            if self._translator.terminal:
                return number == len(messages)
        return False

    def _is_of_before(self, event: ResponseEvent) -> bool:
        """Start over where the provider says that it has forgotten, or that the connection is too old.

        It may say the first twice, in an event of either type; the second is no answer to the request with
        the whole context.
        """
        error = event.error if event.type == "error" else None
        if event.type == "response.failed" and event.response is not None:
            error = event.response.error
        said = () if error is None else read_error(error).codes
        forgotten = _FORGOTTEN in said
        if (forgotten and self._continued) or (_EXPIRED in said and self._reused):
            if forgotten:
                self._connection.forgot = event.type
            failure = failure_from_error_object(error, secrets=self._request.secrets)
            raise _StartOver(failure, lost=not forgotten)
        return forgotten and self._connection.forgot not in (None, event.type)

    def _remember(self, finish: StreamChunk) -> None:
        id = self._translator.response_id
        if id is not None and isinstance(finish, Finish) and isinstance(finish.reason, (Stop, ToolCalls)):
            items = [*self._request.items, *self._request.reply_items(self._translator, finish)]
            self._connection.turn = Turn(id, self._request.fields, items)
