"""A loopback HTTP/1.1 server that answers by script, byte for byte, and records what it saw::

    async with WireServer([event_stream(b"data: {}\\n\\n", Reset())]) as server:
        ...                                     # requests to server.base_url
    server.requests, server.connections

It listens on 127.0.0.1, needs no network, works with Trio's mock clock, and leaves nothing behind.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import attrs
import h11
import trio

from .wire_script import (
    LAST_CHUNK,
    Cut,
    Gate,
    HeaderList,
    Hold,
    Pause,
    Raw,
    Repeat,
    Reset,
    Response,
    Step,
    encode_chunk,
)

_READ = 65536
_CLOSE_DEADLINE = 1.0


@attrs.frozen
class WireRequest:
    """A request as it arrived.

    Attributes:
        headers: in the order they came, names in lower case, values decoded as Latin-1.
        body: empty where the server does not read bodies.
        connection: the id of its connection, counted from 0.
        received_at: when its last byte was read, on Trio's clock.
    """

    method: str
    target: str
    headers: HeaderList
    body: bytes = attrs.field(repr=False)
    connection: int
    received_at: float

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        return next((value for key, value in self.headers if key == name.lower()), None)

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ValueError: it is none.
        """
        return json.loads(self.body)


@attrs.define(eq=False)
class WireConnection:
    """What became of one connection. Times are on Trio's clock.

    Attributes:
        gone: set when the server sees that the client closed or reset the connection.
        gone_at, gone_how: when and how that was.
        ended: set when the server is done with it, whoever ended it.
        requests: the requests it carried.
        bytes_sent: how many bytes were handed to the network in full writes.
        protocol_error: what was wrong with bytes that were no HTTP, or no TLS.
    """

    id: int
    gone: trio.Event = attrs.field(factory=trio.Event, init=False)
    gone_at: float | None = attrs.field(default=None, init=False)
    gone_how: Literal["eof", "reset"] | None = attrs.field(default=None, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    requests: list[WireRequest] = attrs.field(factory=list, init=False)
    bytes_sent: int = attrs.field(default=0, init=False)
    protocol_error: str | None = attrs.field(default=None, init=False)


Handler: TypeAlias = Callable[[WireRequest], Response]


class _Closed(Exception):
    """The script closed the connection."""


class WireServer:
    """Serves every connection by script, between ``async with`` and its end.

    Args:
        answer: what requests get: a handler, one response for all of them, or one response each,
            in order of arrival. A request for which nothing is left fails the test.
        tls: a server-side context; makes it an https server.
        on_connect: steps for each new connection, before the TLS handshake and before anything is
            read: a pause or a gate leaves everything unread, :class:`Hold` reads and forgets it.
        read_bodies: False answers as soon as a request's head is there, reads nothing more, and
            ends the connection with the response.

    Leaving cancels what still runs and closes every socket. An exception of the body leaves as
    itself, but one of the handler, or that of a request without an answer, cancels the body and is
    raised in its place.
    """

    def __init__(
        self,
        answer: Handler | Response | Iterable[Response] = (),
        *,
        tls: ssl.SSLContext | None = None,
        on_connect: Sequence[Step] = (),
        read_bodies: bool = True,
    ) -> None:
        self.requests: list[WireRequest] = []
        self.connections: list[WireConnection] = []
        self._queue: deque[Response] = deque()
        self._handler: Handler = self._next_in_queue
        if isinstance(answer, Response):
            self._handler = lambda request: answer
        elif callable(answer):
            self._handler = answer
        else:
            self._queue.extend(answer)
        self.tls = tls
        self.on_connect = tuple(on_connect)
        self.read_bodies = read_bodies
        self._failure: Exception | None = None
        self._news = trio.lowlevel.ParkingLot()

    def respond(self, *responses: Response) -> None:
        """Append to the queue of responses."""
        self._queue.extend(responses)

    def take(self, connection: WireConnection, request: WireRequest) -> Response:
        """Note a request and choose its answer."""
        connection.requests.append(request)
        self.requests.append(request)
        self._news.unpark_all()
        try:
            return self._handler(request)
        except Exception as error:
            # Kept here, because on its way through cancelled nurseries it may get lost.
            self._failure = error
            self._nursery.cancel_scope.cancel()
            raise _Closed from None

    def _next_in_queue(self, request: WireRequest) -> Response:
        if not self._queue:
            raise AssertionError(
                f"request {len(self.requests)} ({request.method} {request.target}) has no response left"
            )
        return self._queue.popleft()

    async def __aenter__(self) -> Self:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.host, self.port = listeners[0].socket.getsockname()[:2]
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(trio.serve_listeners, self._serve, listeners)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._nursery.cancel_scope.cancel()
        # The nursery is not told of the body's exception, which would come back in a group.
        await self._manager.__aexit__(None, None, None)
        if self._failure is not None:
            raise self._failure

    @property
    def base_url(self) -> str:
        """Such as ``http://127.0.0.1:40123``, without a slash at the end."""
        return f"{'http' if self.tls is None else 'https'}://{self.host}:{self.port}"

    @property
    def open_connections(self) -> int:
        """How many connections the server is not done with."""
        return sum(not connection.ended.is_set() for connection in self.connections)

    async def wait_request(self, number: int = 0) -> WireRequest:
        """Wait for the request of that number, counted from 0, and return it."""
        while len(self.requests) <= number:
            await self._news.park()
        return self.requests[number]

    async def wait_connection(self, number: int = 0) -> WireConnection:
        """Wait for the connection of that number, counted from 0, and return it."""
        while len(self.connections) <= number:
            await self._news.park()
        return self.connections[number]

    async def _serve(self, raw: trio.SocketStream) -> None:
        record = WireConnection(len(self.connections))
        self.connections.append(record)
        self._news.unpark_all()
        try:
            await _Wire(self, raw, record).serve()
        except (_Closed, trio.BrokenResourceError):
            pass
        finally:
            raw.socket.close()
            record.ended.set()


class _Wire:
    """One connection at work."""

    def __init__(self, server: WireServer, raw: trio.SocketStream, record: WireConnection) -> None:
        self.server = server
        self.raw = raw
        self.record = record
        self.stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] = raw
        self.arrived = bytearray()
        self.news = trio.lowlevel.ParkingLot()
        self.reading_ahead = False
        self.over = False  # nothing more will be read
        self.settle = False

    async def serve(self) -> None:
        await self.run(self.server.on_connect, framed=False)
        if self.server.tls is not None:
            self.stream = trio.SSLStream(self.raw, self.server.tls, server_side=True, https_compatible=True)
        if not self.server.read_bodies:
            await self.serve_one(self.read_once)
        else:
            async with trio.open_nursery() as nursery:
                self.reading_ahead = True
                nursery.start_soon(self.read_ahead, nursery.cancel_scope)
                broken = False
                try:
                    while await self.serve_one(self.news.park):
                        pass
                except (_Closed, trio.BrokenResourceError):
                    broken = True  # not raised here, where it would become a group
                nursery.cancel_scope.cancel()
            if broken:
                return
        if isinstance(self.stream, trio.SSLStream) and not self.over:
            # Sends the close alert; a peer that does not answer it must not keep us.
            with trio.move_on_after(_CLOSE_DEADLINE):
                await self.stream.unwrap()

    async def read_ahead(self, scope: trio.CancelScope) -> None:
        """Read whatever comes, at all times, so that the client's end is seen as it happens."""
        while not self.over:
            await self.read_once()
            self.news.unpark_all()
        scope.cancel()

    async def read_once(self) -> None:
        try:
            data = await self.stream.receive_some(_READ)
        except trio.BrokenResourceError as error:
            self.over = True
            if isinstance(error.__cause__, ssl.SSLError):
                self.record.protocol_error = str(error.__cause__)
            else:
                self.note_gone("reset")
        else:
            self.arrived += data
            if not data:
                self.note_gone("eof")

    def note_gone(self, how: Literal["eof", "reset"]) -> None:
        self.over = True
        self.record.gone_how = how
        self.record.gone_at = trio.current_time()
        self.record.gone.set()

    async def serve_one(self, more: Callable[[], Awaitable[None]]) -> bool:
        """Read one request and answer it; False if the connection ends with that."""
        parser = h11.Connection(h11.SERVER)
        try:
            request = await self.receive(parser, more)
        except h11.RemoteProtocolError as error:
            self.record.protocol_error = str(error)
            await self.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            return False
        if request is None:
            return False
        response = self.server.take(self.record, request)
        await self.respond(request, response)
        return parser.their_state is h11.DONE and not response.closes

    async def receive(
        self, parser: h11.Connection, more: Callable[[], Awaitable[None]]
    ) -> WireRequest | None:
        """Read a request; None if the client goes before it is complete."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                if not self.arrived:
                    await more()
                if not self.arrived:
                    return None
                parser.receive_data(bytes(self.arrived))
                self.arrived.clear()
            elif isinstance(event, h11.Request):
                head = event
                if not self.server.read_bodies:
                    break
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                break
        assert head is not None
        if self.server.read_bodies:
            self.arrived[:0] = parser.trailing_data[0]
        return WireRequest(
            head.method.decode("ascii"),
            head.target.decode("latin-1"),
            tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers),
            bytes(body),
            self.record.id,
            trio.current_time(),
        )

    async def respond(self, request: WireRequest, response: Response) -> None:
        self.settle = response.settle
        await self.run(response.before, framed=False)
        head = response.encode_head()
        if head:
            await self.write(head)
        if request.method == "HEAD":
            return
        framed = response.framing == "chunked"
        await self.run(response.body, framed=framed)
        if framed:
            await self.write(LAST_CHUNK)

    async def run(self, steps: Sequence[Step], *, framed: bool) -> None:
        for step in steps:
            match step:
                case bytes():
                    await self.write(encode_chunk(step) if framed else step)
                case Raw(data):
                    await self.write(data)
                case Pause(seconds):
                    await trio.sleep(seconds)
                case Gate():
                    await step.pass_through()
                case Repeat(inner, times):
                    count = 0
                    while times is None or count < times:
                        await self.run(inner, framed=framed)
                        count += 1
                case Hold():
                    await self.hold()
                case Cut():
                    raise _Closed
                case Reset():
                    # Linger on, for no time: close() then sends a RST.
                    self.raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    raise _Closed

    async def hold(self) -> None:
        if self.reading_ahead:
            await trio.sleep_forever()  # until read_ahead sees the client's end
        while not self.over:
            await self.read_once()
        raise _Closed

    async def write(self, data: bytes) -> None:
        await self.stream.send_all(data)
        self.record.bytes_sent += len(data)
        if self.settle:
            # Imported late: trio.testing brings pytest along where that is installed.
            from trio.testing import wait_all_tasks_blocked

            await wait_all_tasks_blocked()


def unused_port() -> int:
    """A port of 127.0.0.1 that nobody listens on: connections to it are refused."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
