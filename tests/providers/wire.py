"""Adapters over a real loopback server, through the engine, and a sink that only records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trio_llm.model.chunks import StreamChunk, TokenUsage
from trio_llm.model.failures import LlmFailure
from trio_llm.model.identifiers import ProviderRequestId
from trio_llm.model.messages import create_user_message
from trio_llm.model.policy import NormalRetry
from trio_llm.model.requests import GenerateOptions
from trio_llm.providers.openai_chat import ChatConfig, ChatProfile
from trio_llm.streaming.contract import ChunkSink, LlmAdapter
from trio_llm.streaming.selection import Selection
from trio_llm.streaming.stream import ChunkStream
from trio_llm.testing.wire_server import WireServer

from ..streaming.support import LoneStream

PLAIN = ChatProfile(id="plain", name="Plain")
"""A server without quirks."""


def ask(**changes: Any) -> GenerateOptions:
    """A request, with what matters to the test."""
    fields: dict[str, Any] = {"provider": "p", "model": "m", "messages": [create_user_message("hi")]}
    return GenerateOptions(**fields | changes)


def chat_config(server: WireServer, **changes: Any) -> ChatConfig:
    """A configuration for a server, with a key."""
    fields: dict[str, Any] = {"profile": PLAIN, "api_key": "sk-test-123", "base_url": server.base_url}
    return ChatConfig(**fields | changes)


def open_stream(adapter: LlmAdapter, options: GenerateOptions) -> ChunkStream:
    """One attempt of the adapter, as a runtime would run it."""

    def select(options: GenerateOptions) -> Selection:
        timeouts = adapter.provider_timeouts(options.provider)
        return Selection(
            provider=options.provider,
            model=options.model,
            produce=adapter.prepare_call(options.provider),
            timeouts=timeouts if options.timeouts is None else options.timeouts.over(timeouts),
            retry_policy=NormalRetry(),
        )

    return LoneStream(options, select)


async def run(
    adapter: LlmAdapter, options: GenerateOptions | None = None
) -> tuple[list[StreamChunk], ChunkStream]:
    """Every chunk of one call, and the stream to be asked afterwards."""
    async with open_stream(adapter, options or ask()) as stream:
        chunks = [chunk async for chunk in stream]
    return chunks, stream


@attrs.define
class RecordingSink(ChunkSink):
    """Takes everything at once and remembers what it was told, in order."""

    told: list[tuple[str, Any]] = attrs.field(factory=list)

    async def send_batch(self, chunks: Sequence[StreamChunk], *, received: int = 0) -> None:
        self.told.append(("batch", list(chunks)))

    def alive(self, received: int = 0) -> None:
        # The transport, too, says so at times; only what http_call says of a body counts bytes.
        if received:
            self.told.append(("alive", received))

    def note_usage(self, usage: TokenUsage) -> None:
        self.told.append(("usage", usage))

    def note_response(
        self,
        *,
        status: int | None = None,
        request_id: ProviderRequestId | None = None,
        served_model: str | None = None,
        response_id: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        said = {
            "status": status,
            "request_id": request_id,
            "served_model": served_model,
            "response_id": response_id,
            "facts": facts,
        }
        self.told.append(("response", {name: value for name, value in said.items() if value is not None}))

    def connecting(self) -> None:
        self.told.append(("connecting", None))

    def connected(self) -> None:
        self.told.append(("connected", None))

    def sent(self) -> None:
        self.told.append(("sent", None))

    def socket_closed(self) -> None:
        self.told.append(("closed", None))

    def next_wire_attempt(self, failure: LlmFailure) -> None:
        raise AssertionError("this wire never asks for another attempt")

    async def aclose(self) -> None:
        raise AssertionError("the sink is the engine's to close")

    @property
    def batches(self) -> list[list[StreamChunk]]:
        """What was sent, batch by batch."""
        return [value for name, value in self.told if name == "batch"]

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that was said of the response."""
        return {
            name: value for told, facts in self.told if told == "response" for name, value in facts.items()
        }
