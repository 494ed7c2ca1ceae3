"""Floor: httpx as it comes, reading bytes. What everything built on it pays before it decodes."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from . import Arm, Client, Seen
from .trio_connections import request_body

UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=None)


def stock_client(ca_file: str) -> httpx.AsyncClient:
    """An httpx client whose pool is no bottleneck."""
    return httpx.AsyncClient(
        timeout=None, limits=UNLIMITED, trust_env=False, verify=ssl.create_default_context(cafile=ca_file)
    )


class HttpxClient:
    """Reads ``aiter_bytes``."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = f"{url}/chat/completions"

    async def consume(self, scenario: str, seen: Seen, arm: Arm | None = None) -> None:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        body = request_body(scenario)
        async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
            async for data in response.aiter_bytes():
                if seen(data):
                    break


@asynccontextmanager
async def open_client(url: str, ca_file: str) -> AsyncIterator[Client]:
    async with stock_client(ca_file) as client:
        yield HttpxClient(client, url)
