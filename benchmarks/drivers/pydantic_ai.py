"""Peer: pydantic-ai's ``model_request_stream`` under Trio (its agents need asyncio)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelRequest, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from . import PROMPT, Arm, Client, Seen
from .sdk_http import unlimited_client


class PydanticAiClient:
    """Streams one model request."""

    def __init__(self, provider: OpenAIProvider) -> None:
        self._provider = provider

    async def consume(self, scenario: str, seen: Seen, arm: Arm | None = None) -> None:
        model = OpenAIChatModel(scenario, provider=self._provider)
        async with model_request_stream(model, [ModelRequest.user_text_prompt(PROMPT)]) as stream:
            async for event in stream:
                match event:
                    case PartStartEvent(part=TextPart(content=text)) if text:
                        left = seen(text)
                    case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                        left = seen(text)
                    case _:
                        continue
                if left:
                    break


@asynccontextmanager
async def open_client(url: str, ca_file: str) -> AsyncIterator[Client]:
    http = unlimited_client(openai.DefaultAsyncHttpxClient, ca_file)
    async with openai.AsyncOpenAI(
        base_url=url, api_key="sk-bench", max_retries=0, http_client=http
    ) as client:
        yield PydanticAiClient(OpenAIProvider(openai_client=client))
