"""The library-backed adapter against a loopback server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trio_llm.providers.pydantic_ai import PydanticAiAdapter, PydanticAiConfig
from trio_llm.testing.wire_server import WireServer

KEY = "sk-test-123"

needs_library = pytest.importorskip(
    "pydantic_ai.models.openai", reason="the extra pydantic-ai is not installed"
)


def adapter_for(server: WireServer, provider: str = "openai-chat", **changes: Any) -> PydanticAiAdapter:
    """One route ``p`` of one of the library's providers, served by ``server``."""
    fields: dict[str, Any] = {"provider": provider, "api_key": KEY, "base_url": server.base_url}
    return PydanticAiAdapter({"p": PydanticAiConfig(**fields | changes)})


def sse(*events: Any, names: bool = False, done: bool = True) -> list[bytes]:
    """Events as they go over the wire, one write each."""
    lines = []
    for event in events:
        name = b"event: %s\n" % event["type"].encode() if names else b""
        lines.append(name + b"data: " + json.dumps(event).encode() + b"\n\n")
    return [*lines, b"data: [DONE]\n\n"] if done else lines


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk of a chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m-1",
        "choices": [choice],
        **more,
    }


ANSWER = sse(chunk({"role": "assistant", "content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop"))
"""A small chat answer: ``Hello``."""
