"""Bodies against the types that Google publishes with its own package."""

from __future__ import annotations

from typing import Any

import pytest

from trio_llm.model.content import Attachment, ImageBlock, TextBlock
from trio_llm.model.identifiers import CallId, ReasoningEffortId
from trio_llm.model.messages import create_message, create_tool_result_message, create_user_message
from trio_llm.model.requests import NamedTool, ResponseFormat, ToolSchema
from trio_llm.providers.gemini.serialize import OPTIONS
from trio_llm.providers.gemini.translate import _FILTER_WORDS

from .events import SOURCE, body_of, call, chunks_of, end, event, message_of, text, thought

types: Any = pytest.importorskip(
    "google.genai.types", reason="the published types need the package `google-genai`"
)

# What Vertex AI alone has, or the package keeps in another place.
ELSEWHERE = {"server_tools", "include_server_side_tool_invocations", "retrieval_config"}


def check(value: Any, wanted: Any) -> None:
    """Read a value as one of the published classes, which know all their members."""
    assert wanted.model_config["extra"] == "forbid"
    wanted.model_validate(value)


async def body() -> dict[str, Any]:
    picture = ImageBlock(Attachment.from_bytes(b"png", "image/png"))
    linked = ImageBlock(Attachment.from_url("https://host/a.png", "image/png"))
    turn = message_of(
        chunks_of(
            event(thought("hm", "czE="), text("a", "czI="), text("b")),
            event({"executableCode": {"language": "PYTHON", "code": "1"}}),
            end(call("ls", {"a": 1}, "czM=", id="id-1")),
        )
    )
    return await body_of(
        system="s",
        messages=[
            create_user_message([TextBlock("hi"), picture, linked]),
            turn,
            create_tool_result_message(CallId("id-1"), [TextBlock("r"), picture]),
            create_message("user", "more", SOURCE),
        ],
        tools=[ToolSchema("ls", "Lists.", {"type": "object", "properties": {"a": {"type": "string"}}})],
        tool_choice=NamedTool("ls"),
        reasoning_effort=ReasoningEffortId("low"),
        response_format=ResponseFormat({"type": "object"}),
        max_tokens=1,
        temperature=0.5,
        top_p=0.5,
        stop=["a"],
        provider_options={
            "include_server_side_tool_invocations": True,
            "seed": 1,
            "server_tools": [{"googleSearch": {}}],
            "top_k": 3,
        },
    )


async def test_contents_are_contents() -> None:
    sent = await body()
    for content in sent["contents"]:
        check(content, types.Content)
        for part in content["parts"]:
            check(part, types.Part)
    check(sent["systemInstruction"], types.Content)


async def test_settings_are_settings() -> None:
    sent = await body()
    assert set(sent) == {"systemInstruction", "contents", "tools", "toolConfig", "generationConfig"}
    check(sent["generationConfig"], types.GenerationConfig)
    check(sent["generationConfig"]["thinkingConfig"], types.ThinkingConfig)
    check(sent["toolConfig"], types.ToolConfig)
    for tool in sent["tools"]:
        check(tool, types.Tool)
    for declaration in sent["tools"][0]["functionDeclarations"]:
        check(declaration, types.FunctionDeclaration)


def test_the_options_are_published_ones() -> None:
    assert set(types.GenerateContentConfig.model_fields) >= OPTIONS - ELSEWHERE
    assert ELSEWHERE - {"server_tools"} <= set(types.ToolConfig.model_fields)


def test_the_words_are_published_ones() -> None:
    known = {word.value for word in types.FinishReason} | {word.value for word in types.BlockedReason}
    assert known >= _FILTER_WORDS
