"""Peer: langchain-openai's ``astream``. It needs asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
from langchain_openai import ChatOpenAI

from . import PROMPT, Arm, Client, Seen
from .sdk_http import unlimited_client


class LangchainClient:
    """Streams a chat model."""

    def __init__(self, url: str, http: object) -> None:
        self._model = ChatOpenAI(
            model="bench-1",
            base_url=url,
            api_key="sk-bench",
            max_retries=0,
            http_async_client=http,
            stream_usage=True,
        )

    async def consume(self, scenario: str, seen: Seen, arm: Arm | None = None) -> None:
        async for chunk in self._model.astream(PROMPT, model=scenario):
            if chunk.content and seen(chunk.content):
                break


@asynccontextmanager
async def open_client(url: str, ca_file: str) -> AsyncIterator[Client]:
    async with unlimited_client(openai.DefaultAsyncHttpxClient, ca_file) as http:
        yield LangchainClient(url, http)
