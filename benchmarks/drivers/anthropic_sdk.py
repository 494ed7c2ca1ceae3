"""Peer: the anthropic SDK, under Trio, retries off. Its wire has smaller events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anthropic

from . import PROMPT, Arm, Client, Seen
from .sdk_http import unlimited_client


class AnthropicClient:
    """Streams messages, with the raw event stream (the cheapest one the SDK has)."""

    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client

    async def consume(self, scenario: str, seen: Seen, arm: Arm | None = None) -> None:
        stream = await self._client.messages.create(
            model=scenario,
            max_tokens=1024,
            messages=[{"role": "user", "content": PROMPT}],
            stream=True,
        )
        async with stream:
            async for event in stream:
                if event.type == "content_block_delta" and seen(event.delta.text):
                    break


@asynccontextmanager
async def open_client(url: str, ca_file: str) -> AsyncIterator[Client]:
    http = unlimited_client(anthropic.DefaultAsyncHttpxClient, ca_file)
    base_url = url.removesuffix("/v1")  # the SDK adds it
    async with anthropic.AsyncAnthropic(
        base_url=base_url, api_key="sk-bench", max_retries=0, http_client=http
    ) as client:
        yield AnthropicClient(client)
