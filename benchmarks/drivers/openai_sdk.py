"""Peer: the openai SDK, under Trio, retries off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai

from . import PROMPT, Arm, Client, Seen
from .sdk_http import unlimited_client


class OpenAiClient:
    """Streams chat completions."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client

    async def consume(self, scenario: str, seen: Seen, arm: Arm | None = None) -> None:
        stream = await self._client.chat.completions.create(
            model=scenario,
            messages=[{"role": "user", "content": PROMPT}],
            stream=True,
            stream_options={"include_usage": True},
        )
        async with stream:
            async for chunk in stream:
                if chunk.choices:
                    text = chunk.choices[0].delta.content
                    if text and seen(text):
                        break


@asynccontextmanager
async def open_client(url: str, ca_file: str) -> AsyncIterator[Client]:
    http = unlimited_client(openai.DefaultAsyncHttpxClient, ca_file)
    async with openai.AsyncOpenAI(
        base_url=url, api_key="sk-bench", max_retries=0, http_client=http
    ) as client:
        yield OpenAiClient(client)
