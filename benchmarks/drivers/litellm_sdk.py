"""Peer: litellm's ``acompletion``. It needs asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import litellm
import openai

from . import PROMPT, Arm, Client, Seen
from .sdk_http import unlimited_client


class LiteLlmClient:
    """Streams through the openai route of litellm, over a client that is kept."""

    def __init__(self, client: openai.AsyncOpenAI, url: str) -> None:
        self._client = client
        self._url = url

    async def consume(self, scenario: str, seen: Seen, arm: Arm | None = None) -> None:
        stream = await litellm.acompletion(
            model=f"openai/{scenario}",
            api_base=self._url,
            api_key="sk-bench",
            client=self._client,
            num_retries=0,
            messages=[{"role": "user", "content": PROMPT}],
            stream=True,
            stream_options={"include_usage": True},
        )
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
        yield LiteLlmClient(client, url)
