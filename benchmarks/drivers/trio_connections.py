"""What the floors that use Trio's streams share: connecting, the request's bytes, idle connections."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import trio

from . import PROMPT


def request_body(scenario: str) -> bytes:
    """A chat-completions request for a scenario."""
    messages = [{"role": "user", "content": PROMPT}]
    request = {
        "model": scenario,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(request).encode()


class Connections:
    """Connections to one origin. One is lent to one user, and comes back only after a good end."""

    def __init__(self, url: str, ca_file: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port = parts.hostname, parts.port
        self.path = parts.path
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._idle: list[trio.abc.Stream] = []

    async def _connect(self) -> trio.abc.Stream:
        stream = await trio.open_tcp_stream(self.host, self.port)
        if self._tls is None:
            return stream
        secure = trio.SSLStream(stream, self._tls, server_hostname=self.host, https_compatible=True)
        try:
            await secure.do_handshake()
        except BaseException:
            stream.socket.close()
            raise
        return secure

    async def take(self) -> trio.abc.Stream:
        """A connection of one's own: an idle one, else a new one."""
        return self._idle.pop() if self._idle else await self._connect()

    def put_back(self, stream: trio.abc.Stream) -> None:
        """Give back a connection whose exchange is complete."""
        self._idle.append(stream)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[trio.abc.Stream]:
        """A connection for one exchange. Whatever breaks the exchange closes it at once."""
        stream = await self.take()
        try:
            yield stream
        except BaseException:
            close_at_once(stream)
            raise
        self.put_back(stream)

    def close(self) -> None:
        """Close what is idle."""
        for stream in self._idle:
            close_at_once(stream)


def close_at_once(stream: trio.abc.Stream) -> None:
    """Close the socket under a stream, synchronously and without a word to the peer."""
    while isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    assert isinstance(stream, trio.SocketStream)
    stream.socket.close()


class Left(Exception):
    """The consumer left the answer before its end, so the connection cannot be used again."""
