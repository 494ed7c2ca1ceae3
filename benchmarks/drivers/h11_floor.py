"""Floor: h11 over a Trio socket. HTTP/1.1 as its reference implementation in Python does it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h11
import trio

from . import Arm, Client, Seen
from .trio_connections import Connections, Left, request_body


class H11Client:
    """Lets h11 write the request and read the response."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def consume(self, scenario: str, seen: Seen, arm: Arm | None = None) -> None:
        try:
            async with self._connections.lend() as stream:
                await self._exchange(stream, request_body(scenario), seen)
        except Left:
            pass

    async def _exchange(self, stream: trio.abc.Stream, body: bytes, seen: Seen) -> None:
        http = h11.Connection(h11.CLIENT)
        headers = [
            ("host", f"{self._connections.host}:{self._connections.port}"),
            ("accept", "text/event-stream"),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
        ]
        request = h11.Request(
            method="POST", target=f"{self._connections.path}/chat/completions", headers=headers
        )
        out = http.send(request), http.send(h11.Data(body)), http.send(h11.EndOfMessage())
        await stream.send_all(b"".join(part for part in out if part))
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive_some(65536))
            elif isinstance(event, h11.Data):
                if seen(bytes(event.data)):
                    raise Left
            elif isinstance(event, h11.EndOfMessage):
                return


@asynccontextmanager
async def open_client(url: str, ca_file: str) -> AsyncIterator[Client]:
    connections = Connections(url, ca_file)
    try:
        yield H11Client(connections)
    finally:
        connections.close()
