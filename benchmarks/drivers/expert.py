"""Floor: what an expert writes by hand on stock httpx. A byte splitter, a fast JSON decoder, a join."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import msgspec

from . import Arm, Client, Seen
from .httpx_bytes import stock_client
from .trio_connections import request_body

decode = msgspec.json.Decoder().decode


class ExpertClient:
    """Takes the text out of each event and joins it at the end."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = f"{url}/chat/completions"
        self.answer = ""

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
                    choices = decode(event[6:])["choices"]
                    if choices and (text := choices[0]["delta"].get("content")):
                        texts.append(text)
                        if seen(text):
                            return
        self.answer = "".join(texts)


@asynccontextmanager
async def open_client(url: str, ca_file: str) -> AsyncIterator[Client]:
    async with stock_client(ca_file) as client:
        yield ExpertClient(client, url)
