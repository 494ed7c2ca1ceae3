"""The ceiling: httpx's API over a minimal Trio transport, typed decoding, a fold, and nothing else.

No channel, no watchdog, no middleware, no accounting, no check of anything. The library does all
of that, and its cost is judged by how near it comes to this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h11
import httpx
import msgspec
import trio

from . import Arm, Client, Seen
from .trio_connections import Connections, close_at_once, request_body

READ = 65536


class ChunkedBody(httpx.AsyncByteStream):
    """A chunked body: gives the payload of all the HTTP chunks of one network read at a time.

    The connection goes back to its pool if the body was read to its end; any other way closes it.
    """

    def __init__(self, connections: Connections, stream: trio.abc.Stream, first: bytes) -> None:
        self._connections = connections
        self._stream = stream
        self._data = first
        self._complete = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        missing = 0  # what the last chunk begun still lacks, with its CRLF
        data = self._data
        while True:
            pieces = []
            at, size = 0, len(data)
            if missing:
                pieces.append(data[: max(missing - 2, 0)])
                at, missing = min(missing, size), max(missing - size, 0)
            while at < size:
                end_of_line = data.find(b"\r\n", at)
                if end_of_line < 0:
                    break
                length = int(data[at:end_of_line], 16)
                if length == 0:
                    self._complete = True  # this provider sends no trailers
                    break
                begin = end_of_line + 2
                at = begin + length + 2
                pieces.append(data[begin : at - 2])
                if at > size:
                    missing = at - size
                    at = size
            if pieces:
                yield b"".join(pieces)
            if self._complete:
                return
            more = await self._stream.receive_some(READ)
            if not more:
                raise httpx.RemoteProtocolError("the body was cut")
            data = data[at:] + more if at < size else more

    async def aclose(self) -> None:
        if self._complete:
            self._connections.put_back(self._stream)
        else:
            close_at_once(self._stream)


class MinimalTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 to one origin: h11 for the heads, :class:`ChunkedBody` for the body."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        http = h11.Connection(h11.CLIENT)
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        out = [http.send(head), http.send(h11.Data(request.content)), http.send(h11.EndOfMessage())]
        stream = await self._connections.take()
        try:
            await stream.send_all(b"".join(part for part in out if part))
            while (response := http.next_event()) is h11.NEED_DATA:
                http.receive_data(await stream.receive_some(READ))
        except BaseException:
            close_at_once(stream)
            raise
        assert isinstance(response, h11.Response)
        body = ChunkedBody(self._connections, stream, http.trailing_data[0])
        return httpx.Response(response.status_code, headers=response.headers.raw_items(), stream=body)

    async def aclose(self) -> None:
        self._connections.close()


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta
    finish_reason: str | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class ChatChunk(msgspec.Struct):
    """What of an event is wanted."""

    choices: list[Choice]
    usage: Usage | None = None


decode = msgspec.json.Decoder(ChatChunk).decode


class CeilingClient:
    """Folds the typed events into one text."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = f"{url}/chat/completions"
        self.answer = ""
        self.usage: Usage | None = None

    async def consume(self, scenario: str, seen: Seen, arm: Arm | None = None) -> None:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        body = request_body(scenario)
        texts: list[str] = []
        async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
            response.raise_for_status()
            rest = b""
            async for data in response.aiter_bytes():
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    if event == b"data: [DONE]":
                        continue
                    chunk = decode(event[6:])
                    if chunk.choices:
                        text = chunk.choices[0].delta.content
                        if text:
                            texts.append(text)
                            if seen(text):
                                return
                    elif chunk.usage is not None:
                        self.usage = chunk.usage
        self.answer = "".join(texts)


@asynccontextmanager
async def open_client(url: str, ca_file: str) -> AsyncIterator[Client]:
    transport = MinimalTransport(Connections(url, ca_file))
    async with httpx.AsyncClient(transport=transport, timeout=None, trust_env=False) as client:
        yield CeilingClient(client, url)
