"""The provider's process: ``python -m benchmarks.provider.server``.

Prints one JSON line saying where it listens, and serves until its standard input ends. Built on
asyncio's protocols: the cheapest writes and the promptest notice of a disconnect that the
standard library has; nothing here is measured but the times it notes. ``time.perf_counter`` is
the same clock in every process of a Linux machine.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import trustme

from ..limits import raise_file_limit
from . import responses
from .scenarios import Scenario, scenario_of
from .wires import HEAD, LAST_CHUNK, Wire, events_in_turn, http_chunk, varied_events, wire_of

BLOCK = 64 * 1024
"""About how many bytes of coalesced events one write carries."""
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)


class Journal:
    """What was seen of each tagged request, and counts of everything."""

    def __init__(self) -> None:
        self.connections = 0
        self.open = 0
        self.requests = 0
        self.received = 0
        """Bytes that plain and TLS connections brought, decrypted."""
        self.held = 0
        """Connections accepted by the listener that never answers; the n-th has the tag -n."""
        self._started: dict[int, asyncio.Future[float]] = {}
        self._closed: dict[int, asyncio.Future[float]] = {}

    def _note(self, table: dict[int, asyncio.Future[float]], tag: int) -> None:
        future = self._future(table, tag)
        if not future.done():
            future.set_result(time.perf_counter())

    @staticmethod
    def _future(table: dict[int, asyncio.Future[float]], tag: int) -> asyncio.Future[float]:
        if tag not in table:
            table[tag] = asyncio.get_running_loop().create_future()
        return table[tag]

    def note_started(self, tag: int) -> None:
        self._note(self._started, tag)

    def note_closed(self, tag: int) -> None:
        self._note(self._closed, tag)

    def note_received(self, data: bytes) -> None:
        self.received += len(data)

    def next_number(self) -> int:
        """Count a request."""
        self.requests += 1
        return self.requests

    async def answer(self, question: dict[str, object]) -> dict[str, object]:
        """Answer one line of the control connection."""
        match question:
            case {"ask": "started", "tag": int(tag)}:
                return {"at": await asyncio.shield(self._future(self._started, tag))}
            case {"ask": "closed", "tag": int(tag), "within": float(patience)}:
                seen, _ = await asyncio.wait([self._future(self._closed, tag)], timeout=patience)
                return {"at": seen.pop().result() if seen else None}
            case {"ask": "counts"}:
                counts = ("connections", "open", "requests", "held", "received")
                return {name: getattr(self, name) for name in counts}
        raise ValueError(f"not a question: {question!r}")


class Connection(asyncio.Protocol):
    """One client's connection: reads requests, plays the scenario each asks for."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._buffer = b""
        self._writable = asyncio.Event()
        self._writable.set()
        self._play: asyncio.Task[None] | None = None
        self._tag = 0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._journal.connections += 1
        self._journal.open += 1

    def data_received(self, data: bytes) -> None:
        self._journal.note_received(data)
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = _LENGTH.search(head)
        size = int(length[1]) if length else 0
        if len(rest) < size:
            return
        body, self._buffer = rest[:size], rest[size:]
        path = head.split(b" ", 2)[1].partition(b"?")[0]
        if path.endswith(b"/responses"):
            self._respond(head)
            return
        scenario = scenario_of(body)
        self._journal.requests += 1
        self._tag = scenario.tag
        self._journal.note_started(scenario.tag)
        wire = wire_of(path)
        if scenario.kind == "tiny":
            self.transport.write(_tiny(wire))
        else:
            self._play = asyncio.create_task(PLAYS[scenario.kind](self, wire, scenario))

    def _respond(self, head: bytes) -> None:
        accepted = responses.upgrade(head)
        if accepted is None:
            body = responses.event_stream(self._journal.next_number())
            self.transport.write(HEAD + http_chunk(body) + LAST_CHUNK)
            return
        journal = self._journal
        self.transport.write(accepted)
        self.transport.set_protocol(
            responses.Socket(self.transport, journal.note_received, journal.next_number, self.connection_lost)
        )

    def eof_received(self) -> None:
        self._gone()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        self._journal.open -= 1

    def _gone(self) -> None:
        if not self.lost:
            self.lost = True
            self._journal.note_closed(self._tag)
            if self._play is not None:
                self._play.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def send(self, data: bytes) -> None:
        """Write, and wait while the client is behind."""
        self.transport.write(data)
        await self._writable.wait()

    def start(self, wire: Wire) -> None:
        """Send the head and the opening events."""
        self.transport.write(HEAD + http_chunk(wire.opening))

    def finish(self, wire: Wire) -> None:
        """Send the closing events and the end of the body."""
        self.transport.write(http_chunk(wire.closing) + LAST_CHUNK)


def _tiny(wire: Wire) -> bytes:
    return HEAD + http_chunk(wire.opening + wire.event() + wire.closing) + LAST_CHUNK


async def _burst(connection: Connection, wire: Wire, scenario: Scenario) -> None:
    per_block = BLOCK // len(wire.event())
    left = scenario.events
    events = varied_events(wire) if scenario.kind == "varied" else events_in_turn(wire)
    connection.start(wire)
    while left > 0:
        await connection.send(http_chunk(b"".join(itertools.islice(events, min(left, per_block)))))
        left -= per_block
    connection.finish(wire)


async def _chunks(connection: Connection, wire: Wire, scenario: Scenario) -> None:
    per_block = BLOCK // len(wire.event())
    left = scenario.events
    chunks = map(http_chunk, events_in_turn(wire))
    connection.start(wire)
    while left > 0:
        await connection.send(b"".join(itertools.islice(chunks, min(left, per_block))))
        left -= per_block
    connection.finish(wire)


async def _spaced(connection: Connection, wire: Wire, scenario: Scenario) -> None:
    # The event loop's timers are exact to a millisecond only; a thread sleeps finer.
    connection.start(wire)
    handle = connection.transport.get_extra_info("socket").dup()
    try:
        await asyncio.to_thread(_spaced_writes, handle, connection, wire, scenario)
    finally:
        handle.close()
    connection.finish(wire)


def _spaced_writes(handle: socket.socket, connection: Connection, wire: Wire, scenario: Scenario) -> None:
    for event in itertools.islice(events_in_turn(wire), scenario.events):
        time.sleep(scenario.interval)
        if connection.lost:
            return
        handle.sendall(http_chunk(event))


async def _paced(connection: Connection, wire: Wire, scenario: Scenario) -> None:
    connection.start(wire)
    due = time.perf_counter()
    for _ in range(scenario.events):
        due += scenario.interval
        await asyncio.sleep(due - time.perf_counter())
        connection.transport.write(http_chunk(wire.event(b"@%d@" % time.perf_counter_ns())))
    connection.finish(wire)


async def _hold(connection: Connection, wire: Wire, scenario: Scenario) -> None:
    connection.start(wire)
    await asyncio.sleep(scenario.interval)
    connection.transport.write(http_chunk(wire.event()))
    connection.finish(wire)


async def _no_headers(connection: Connection, wire: Wire, scenario: Scenario) -> None:
    await asyncio.Event().wait()


async def _silent(connection: Connection, wire: Wire, scenario: Scenario) -> None:
    connection.start(wire)
    await asyncio.Event().wait()


async def _flow(connection: Connection, wire: Wire, scenario: Scenario) -> None:
    connection.start(wire)
    for event in events_in_turn(wire):
        connection.transport.write(http_chunk(event))
        await asyncio.sleep(scenario.interval)


async def _flood(connection: Connection, wire: Wire, scenario: Scenario) -> None:
    chunks = map(http_chunk, events_in_turn(wire))
    block = b"".join(itertools.islice(chunks, BLOCK // len(wire.event()) // 2 * 2))
    connection.start(wire)
    while True:
        await connection.send(block)
        await asyncio.sleep(0)  # an awaited event that is set does not let the loop see a disconnect


Play = Callable[[Connection, Wire, Scenario], Awaitable[None]]
PLAYS: dict[str, Play] = {
    "burst": _burst,
    "varied": _burst,
    "chunks": _chunks,
    "spaced": _spaced,
    "paced": _paced,
    "hold": _hold,
    "no-headers": _no_headers,
    "silent": _silent,
    "flow": _flow,
    "flood": _flood,
}


class Held(asyncio.Protocol):
    """A connection that is accepted and never answered: a TLS handshake hangs on it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._journal.held += 1
        self._tag = -self._journal.held
        self._journal.note_started(self._tag)

    def eof_received(self) -> None:
        self._journal.note_closed(self._tag)

    def connection_lost(self, exc: Exception | None) -> None:
        self._journal.note_closed(self._tag)


def _full_listener() -> tuple[int, list[socket.socket]]:
    """A port whose queue is full: a connection attempt hangs. Returns it, and what must stay open."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    port = listener.getsockname()[1]
    sockets = [listener]
    for _ in range(2):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
        sockets.append(filler)
    return port, sockets


async def _control(journal: Journal, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while line := await reader.readline():
            writer.write(json.dumps(await journal.answer(json.loads(line))).encode() + b"\n")
    finally:
        writer.close()


async def serve() -> None:
    """Listen everywhere, say where, and stay until standard input ends."""
    raise_file_limit()
    loop = asyncio.get_running_loop()
    journal = Journal()
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    plain = await loop.create_server(lambda: Connection(journal), "127.0.0.1", 0, backlog=4096)
    secure = await loop.create_server(lambda: Connection(journal), "127.0.0.1", 0, ssl=tls, backlog=4096)
    held = await loop.create_server(lambda: Held(journal), "127.0.0.1", 0)
    control = await asyncio.start_server(lambda r, w: _control(journal, r, w), "127.0.0.1", 0)
    full_port, kept = _full_listener()
    with tempfile.TemporaryDirectory() as folder:
        ca_file = Path(folder) / "ca.pem"
        authority.cert_pem.write_to_path(str(ca_file))
        where = {
            "plain": plain.sockets[0].getsockname()[1],
            "tls": secure.sockets[0].getsockname()[1],
            "held": held.sockets[0].getsockname()[1],
            "full": full_port,
            "control": control.sockets[0].getsockname()[1],
            "ca_file": str(ca_file),
        }
        print(json.dumps(where), flush=True)
        await asyncio.to_thread(sys.stdin.read)
    for sock in kept:
        sock.close()
    os._exit(0)  # nothing to save, and many connections that nobody needs to see closed in order


if __name__ == "__main__":
    asyncio.run(serve())
