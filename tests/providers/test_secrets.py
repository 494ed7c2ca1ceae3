"""A server repeats the key wherever it can: nothing that is told of the call has it."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from trio_llm.model.catalogue import ModelDiscoveryRequest
from trio_llm.model.failures import LlmError
from trio_llm.providers.anthropic import AnthropicAdapter
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
from trio_llm.providers.gemini import GeminiAdapter
from trio_llm.providers.ollama import OllamaAdapter, OllamaConfig
from trio_llm.providers.openai_responses import ResponsesAdapter, ResponsesConfig
from trio_llm.streaming.contract import LlmAdapter
from trio_llm.testing.wire_script import Response, event_stream, json_response
from trio_llm.testing.wire_server import WireServer

from .anthropic.messages import config as anthropic_config
from .gemini.events import config as gemini_config
from .wire import ask, open_stream

KEY = "sk-Zebra-1234567890"
PART = "zebra"


def sse(*events: Any) -> Response:
    """Events with their own type as their name, as some wires have them."""
    framed = [
        b"event: %b\ndata: %b\n\n" % (event.get("type", "message").encode(), json.dumps(event).encode())
        if isinstance(event, dict)
        else b"data: %b\n\n" % event
        for event in events
    ]
    return event_stream(*framed)


def lines(*events: Any) -> Response:
    body = b"".join(
        (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n" for event in events
    )
    return Response(200, {"content-type": "application/x-ndjson"}, [body])


def chat(server: WireServer) -> LlmAdapter:
    return DeepSeekAdapter(DeepSeekConfig(api_key=KEY, base_url=server.base_url))


def messages(server: WireServer) -> LlmAdapter:
    return AnthropicAdapter(anthropic_config(server, api_key=KEY))


def gemini(server: WireServer) -> LlmAdapter:
    return GeminiAdapter(gemini_config(server, api_key=KEY))


def ollama(server: WireServer) -> LlmAdapter:
    return OllamaAdapter(OllamaConfig(api_key=KEY, base_url=server.base_url))


def responses(server: WireServer) -> LlmAdapter:
    return ResponsesAdapter(ResponsesConfig(api_key=KEY, base_url=server.base_url))


def library(server: WireServer) -> LlmAdapter:
    from trio_llm.providers.pydantic_ai import PydanticAiAdapter, PydanticAiConfig

    config = PydanticAiConfig(provider="openai-chat", api_key=KEY, base_url=server.base_url)
    return PydanticAiAdapter({"p": config})


def done(word: str) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": word}
    return {"id": KEY, "model": KEY, "object": "chat.completion.chunk", "created": 1, "choices": [choice]}


DONE = b"[DONE]"
MESSAGE = {"type": "message_start", "message": {"id": KEY, "model": KEY, "usage": {"input_tokens": 1}}}
BEGUN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
STOPPED = {"type": "message_delta", "delta": {"stop_reason": KEY}}
CREATED = {"type": "response.created", "response": {"id": KEY, "model": KEY, "status": "in_progress"}}
CUT = {"status": "incomplete", "incomplete_details": {"reason": KEY}}
CANDIDATE = {"content": {"parts": [{"text": "a"}]}, "finishReason": KEY, "finishMessage": KEY}
BLOCKED = {"blockReason": KEY, "blockReasonMessage": KEY}
LINE = {"model": KEY, "message": {"content": "a"}, "done": True, "done_reason": KEY}
ECHOES: dict[str, tuple[Callable[[WireServer], LlmAdapter], Response]] = {
    "chat-word": (chat, sse(done(KEY), DONE)),
    "chat-facts": (chat, sse({**done("stop"), "timings": {"by": KEY}}, DONE)),
    "chat-shape": (chat, sse({"choices": KEY})),
    "chat-error": (chat, sse({"error": {"message": KEY, "code": KEY, "type": KEY}})),
    "messages-word": (messages, sse(MESSAGE, BEGUN, STOPPED, {"type": "message_stop"})),
    "messages-shape": (messages, sse({"type": "message_start", "message": KEY})),
    "gemini-word": (gemini, sse({"candidates": [CANDIDATE], "modelVersion": KEY, "responseId": KEY})),
    "gemini-block": (gemini, sse({"promptFeedback": BLOCKED})),
    "gemini-shape": (gemini, sse({"candidates": KEY})),
    "ollama-word": (ollama, lines(LINE)),
    "ollama-shape": (ollama, lines({"message": KEY})),
    "responses-word": (responses, sse(CREATED, {"type": "response.incomplete", "response": CUT})),
    "responses-shape": (responses, sse({"type": "response.created", "response": KEY})),
    "library-word": (library, sse(done(KEY), DONE)),
    "library-shape": (library, sse({"choices": KEY})),
}
EVERYWHERE: dict[str, Response] = {
    "no-json": sse(f"{{{KEY}".encode()),
    "another-name": event_stream(f"event: {KEY}\ndata: {KEY}\n\n".encode()),
    "a-text": Response(200, {"content-type": f"text/{KEY}"}, [f"upstream {KEY}".encode()]),
    "a-page": Response(200, {"content-type": "text/html"}, [f"<html><title>{KEY}</title></html>".encode()]),
    "a-document": json_response({KEY: [KEY]}),
    "refused": json_response({"error": {"message": KEY, "code": KEY, "type": KEY, "request_id": KEY}}, 401),
    "refused-with-text": Response(401, {"content-type": KEY, "x-request-id": KEY}, [KEY.encode()]),
    "moved": Response(302, {"location": f"https://elsewhere/{KEY}", "request-id": KEY}, [b""]),
    "only-an-id": Response(200, {"content-type": "text/event-stream", "x-request-id": KEY}, [b""]),
    "a-broken-head": Response(200, {"content-length": f"{KEY}"}, [b""]),
}
ADAPTERS = (chat, messages, gemini, ollama, responses, library)
CALLS = [
    pytest.param(adapter, response, id=name)
    for name, (adapter, response) in ECHOES.items()
    if adapter is not library or find_spec("pydantic_ai")
] + [
    pytest.param(adapter, response, id=f"{adapter.__name__}-{name}")
    for adapter in ADAPTERS
    for name, response in EVERYWHERE.items()
    if adapter is not library or find_spec("pydantic_ai")
]


@pytest.mark.parametrize(("make", "response"), CALLS)
async def test_D10_a_repeated_key_is_told_to_nobody(
    make: Callable[[WireServer], LlmAdapter], response: Response, caplog: pytest.LogCaptureFixture
) -> None:
    async with WireServer(response) as server, make(server) as adapter, open_stream(adapter, ask()) as stream:
        async for _ in stream:
            pass
    told = [repr(stream.finish), repr(stream.settlements), repr(stream.error), str(stream.error), caplog.text]
    if stream.error is not None:
        told += traceback.format_exception(stream.error)
    assert PART not in "\n".join(told).lower()
    assert server.requests


@pytest.mark.parametrize("response", [*EVERYWHERE.values()], ids=[*EVERYWHERE])
async def test_T05_nor_by_a_list_of_models(response: Response) -> None:
    async with WireServer(response) as server:
        adapter = DeepSeekAdapter(DeepSeekConfig(api_key=KEY, base_url=server.base_url))
        async with adapter:
            with pytest.raises(LlmError) as raised:
                await adapter.discover(ModelDiscoveryRequest(provider="p"))
    assert PART not in "".join(traceback.format_exception(raised.value)).lower()
    assert PART not in repr(raised.value.failure).lower()
