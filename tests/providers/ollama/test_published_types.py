"""Bodies against the types that Ollama publishes with its own package."""

from __future__ import annotations

from typing import Any

import pytest

from trio_llm.model.content import Attachment, ImageBlock, ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.identifiers import CallId, ReasoningEffortId
from trio_llm.model.messages import (
    ModelSource,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.requests import ResponseFormat, ToolSchema
from trio_llm.providers.ollama.serialize import OPTIONS

from .lines import body_of

ollama: Any = pytest.importorskip("ollama", reason="the published types need the package `ollama`")

# The package is behind the server here.
AHEAD = {"shift", "truncate", "min_p"}


async def test_a_body_with_everything_is_a_chat_request() -> None:
    body = await body_of(
        system="s",
        messages=[
            create_user_message([TextBlock("hi"), ImageBlock(Attachment.from_bytes(b"png", "image/png"))]),
            create_assistant_message(
                [ReasoningBlock("hm"), ToolCallBlock(CallId("c"), "ls", '{"a":1}')], ModelSource("p", "m")
            ),
            create_tool_result_message(CallId("c"), "r"),
        ],
        tools=[ToolSchema("ls", "Lists.", {"type": "object", "properties": {"a": {"type": "string"}}})],
        reasoning_effort=ReasoningEffortId("low"),
        response_format=ResponseFormat({"type": "object"}),
        max_tokens=1,
        temperature=0.5,
        top_p=0.5,
        stop=["a"],
        provider_options={"keep_alive": "5m", "num_ctx": 1},
    )
    types: Any = ollama._types
    assert set(body) <= set(types.ChatRequest.model_fields)
    read = types.ChatRequest.model_validate(body)
    assert (read.think, read.keep_alive) == ("low", "5m")
    assert set(body["options"]) <= set(types.Options.model_fields)
    for message in body["messages"]:
        assert set(message) - {"tool_call_id"} <= set(types.Message.model_fields)
        # The package takes images wrapped and unwraps them for the wire.
        wrapped = [{"value": image} for image in message.get("images", ())]
        types.Message.model_validate(message | {"images": wrapped})


def test_the_options_are_the_published_ones() -> None:
    types: Any = ollama._types
    assert OPTIONS - AHEAD - {"keep_alive"} <= set(types.Options.model_fields)
