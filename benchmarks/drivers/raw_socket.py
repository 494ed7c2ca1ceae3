"""Floor: a Trio socket and nothing else. Moves the bytes, understands only where they end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from . import Arm, Client, Seen
from .trio_connections import Connections, Left, request_body

END = b"\r\n0\r\n\r\n"


class RawClient:
    """Sends requests made by hand."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def consume(self, scenario: str, seen: Seen, arm: Arm | None = None) -> None:
        body = request_body(scenario)
        head = (
            f"POST {self._connections.path}/chat/completions HTTP/1.1\r\n"
            f"host: {self._connections.host}:{self._connections.port}\r\n"
            "accept: text/event-stream\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        try:
            async with self._connections.lend() as stream:
                await stream.send_all(head.encode() + body)
                tail = b""
                while tail != END:
                    data = await stream.receive_some(65536)
                    if not data:
                        raise EOFError("the body was cut")
                    if seen(data):
                        raise Left
                    tail = (tail + data)[-len(END) :]
        except Left:
            pass


@asynccontextmanager
async def open_client(url: str, ca_file: str) -> AsyncIterator[Client]:
    connections = Connections(url, ca_file)
    try:
        yield RawClient(connections)
    finally:
        connections.close()
