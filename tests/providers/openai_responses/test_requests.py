"""Requests to bodies; each is checked against the types that OpenAI publishes, where those are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trio_llm.model.content import (
    Attachment,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import CallId, ReasoningEffortId, SessionId
from trio_llm.model.messages import (
    PluginSource,
    create_assistant_message,
    create_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.requests import NamedTool, ResponseFormat, ToolSchema
from trio_llm.providers.openai_responses import OPENAI_MODELS, ResponsesModel

from .responses import SOURCE, body_of, sent_items

HI = create_user_message("hi")
HI_ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
TOOL = ToolSchema("ls", "Lists files.", {"type": "object", "properties": {}})


async def test_a_plain_body() -> None:
    body = await body_of("gpt-4o", messages=[HI])
    assert body == {"model": "gpt-4o", "store": False, "stream": True, "input": [HI_ITEM]}


async def test_a_model_that_reasons_is_asked_for_its_encrypted_reasoning() -> None:
    assert (await body_of("gpt-5.5"))["include"] == ["reasoning.encrypted_content"]
    assert (await body_of("gpt-5.5-2026-04-23"))["include"] == ["reasoning.encrypted_content"]
    assert (await body_of("somebodys-own"))["include"] == ["reasoning.encrypted_content"]
    for plain in ("gpt-4.1-2025-04-14", "gpt-4-turbo", "gpt-5.2-chat-latest", "openai/gpt-4o"):
        assert "include" not in await body_of(plain)


async def test_the_order_of_the_fields_is_stable() -> None:
    body = await body_of(
        system="Be kind.",
        tools=[TOOL],
        tool_choice="auto",
        max_tokens=9,
        reasoning_effort=ReasoningEffortId("low"),
        session_id=SessionId("s"),
        provider_options={"user": "u", "metadata": {"a": "b"}},
    )
    assert list(body) == [
        *("model", "store", "instructions", "tools", "tool_choice", "max_output_tokens", "reasoning"),
        *("include", "prompt_cache_key", "metadata", "user", "stream", "input"),
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"system": "Be kind."}, {"instructions": "Be kind."}),
        ({"max_tokens": 9}, {"max_output_tokens": 9}),
        ({"model": "gpt-4o", "temperature": 0.0, "top_p": 0.5}, {"temperature": 0.0, "top_p": 0.5}),
        ({"reasoning_effort": "high"}, {"reasoning": {"effort": "high"}}),
        ({"summary": "auto"}, {"reasoning": {"summary": "auto"}}),
        ({"session_id": "s-1"}, {"prompt_cache_key": "s-1"}),
        ({"purpose": "session-title"}, {}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        ({"tool_choice": NamedTool("ls")}, {"tool_choice": {"type": "function", "name": "ls"}}),
        ({"provider_options": {"text_verbosity": "low"}}, {"text": {"verbosity": "low"}}),
        (
            {"provider_options": {"include": ["web_search_call.action.sources"]}},
            {"include": ["reasoning.encrypted_content", "web_search_call.action.sources"]},
        ),
        ({"provider_options": {"service_tier": "flex"}}, {"service_tier": "flex"}),
        (
            {"provider_options": {"server_tools": [{"type": "web_search"}]}},
            {"tools": [{"type": "web_search"}]},
        ),
    ],
    ids=lambda value: next(iter(value), "none") if isinstance(value, dict) else "",
)
async def test_fields(fields: dict[str, Any], said: dict[str, Any]) -> None:
    fields = dict(fields)
    model = fields.pop("model", "gpt-5.5")
    before = await body_of(model)
    assert await body_of(model, **fields) == before | said | {"input": before["input"]}


async def test_a_long_session_id_becomes_a_digest() -> None:
    long = (await body_of(session_id=SessionId("s" * 65)))["prompt_cache_key"]
    assert len(long) == 64
    assert long != (await body_of(session_id=SessionId("s" * 66)))["prompt_cache_key"]


async def test_a_response_format() -> None:
    wanted = ResponseFormat({"type": "object"}, name="answer", strict=False)
    body = await body_of(response_format=wanted, provider_options={"text_verbosity": "low"})
    schema = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": False}
    assert body["text"] == {"format": schema, "verbosity": "low"}


async def test_tools_are_not_made_strict() -> None:
    [tool] = (await body_of(tools=[TOOL]))["tools"]
    assert tool == {
        "type": "function",
        "name": "ls",
        "description": "Lists files.",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }


@pytest.mark.parametrize(
    ("model", "fields", "code"),
    [
        ("gpt-5.5", {"stop": "x"}, "UNSUPPORTED_OPTION"),
        ("gpt-5.5", {"temperature": 1.0}, "UNSUPPORTED_OPTION"),
        ("gpt-5.5", {"top_p": 1.0, "reasoning_effort": "low"}, "UNSUPPORTED_OPTION"),
        ("gpt-5.5", {"provider_options": {"odd": 1}}, "UNSUPPORTED_OPTION"),
        ("gpt-5.5", {"provider_options": {"store": True}}, "UNSUPPORTED_OPTION"),
        ("gpt-5.5", {"provider_options": {"server_tools": [{"type": "local_shell"}]}}, "UNSUPPORTED_OPTION"),
        ("gpt-5.5", {"provider_options": {"server_tools": [5]}}, "UNSUPPORTED_OPTION"),
        ("gpt-5.5", {"provider_options": {"server_tools": {"type": "web_search"}}}, "UNSUPPORTED_OPTION"),
        ("gpt-5.5", {"provider_options": {"include": "all"}}, "UNSUPPORTED_OPTION"),
        ("gpt-5.5", {"reasoning_effort": "odd"}, "UNSUPPORTED_REASONING_EFFORT"),
        ("gpt-4o", {"reasoning_effort": "low"}, "UNSUPPORTED_REASONING_EFFORT"),
    ],
)
async def test_P04_what_cannot_be_honoured(model: str, fields: dict[str, Any], code: str) -> None:
    with pytest.raises(LlmError) as caught:
        await body_of(model, **fields)
    assert caught.value.code == code


async def test_a_temperature_without_reasoning() -> None:
    body = await body_of(temperature=0.5, reasoning_effort=ReasoningEffortId("none"))
    assert (body["temperature"], body["reasoning"]) == (0.5, {"effort": "none"})


@pytest.mark.parametrize("model", OPENAI_MODELS, ids=lambda model: model.id)
async def test_every_effort_of_every_model(model: ResponsesModel) -> None:
    for effort in model.efforts:
        body = await body_of(model, reasoning_effort=ReasoningEffortId(effort), summary="auto")
        assert body["reasoning"] == {"effort": effort, "summary": "auto"}
    if not model.efforts:
        assert "reasoning" not in await body_of(model, summary="auto")


class TestHistory:
    async def test_D03_turns_of_another_model_are_text_and_calls(self) -> None:
        turn = create_assistant_message(
            [ReasoningBlock("hm"), TextBlock("a"), TextBlock(""), ToolCallBlock(CallId("c"), "ls", "")],
            SOURCE,
        )
        result = create_tool_result_message(CallId("c"), "done")
        assert await sent_items(HI, turn, result) == [
            HI_ITEM,
            {"type": "message", "role": "assistant", "content": "a"},
            {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "done"},
        ]

    async def test_system_messages_stay_where_they_are(self) -> None:
        notice = create_message("system", "Be brief.", PluginSource("p"))
        empty = create_message("system", "", PluginSource("p"))
        sent = await sent_items(HI, notice, empty, HI)
        assert sent == [HI_ITEM, {"type": "message", "role": "system", "content": "Be brief."}, HI_ITEM]

    async def test_results(self) -> None:
        turn = create_assistant_message(
            [ToolCallBlock(CallId(id), "ls", "{}") for id in ("a", "b", "c", "d")], SOURCE
        )
        picture = ImageBlock(Attachment.from_bytes(b"x", "image/png"))
        results = create_user_message(
            [
                TextBlock("and"),
                ToolResultBlock(CallId("a"), ""),
                ToolResultBlock(CallId("b"), "no", is_error=True),
                ToolResultBlock(CallId("c"), [TextBlock("see"), picture]),
                ToolResultBlock(CallId("d"), [picture]),
            ]
        )
        image = {"type": "input_image", "image_url": "data:image/png;base64,eA==", "detail": "auto"}
        sent = await sent_items(HI, turn, results)
        assert [item.get("output") for item in sent[5:9]] == [
            "(no output)",
            "Error: no",
            [{"type": "input_text", "text": "see"}, image],
            [image],
        ]
        assert sent[9]["content"] == [{"type": "input_text", "text": "and"}]

    async def test_images(self, tmp_path: Path) -> None:
        file = tmp_path / "a.png"
        file.write_bytes(b"x")
        message = create_user_message(
            [
                TextBlock("see"),
                ImageBlock(Attachment.from_path(file)),
                ImageBlock(Attachment.from_url("https://h/a.png")),
            ]
        )
        [sent] = await sent_items(message)
        assert [part.get("image_url") for part in sent["content"]] == [
            None,
            "data:image/png;base64,eA==",
            "https://h/a.png",
        ]

    @pytest.mark.parametrize("role", ["system", "assistant"])
    async def test_images_have_their_place(self, role: Any) -> None:
        picture = ImageBlock(Attachment.from_url("https://h/a.png"))
        with pytest.raises(LlmError) as caught:
            await sent_items(HI, create_message(role, [picture], SOURCE))
        assert caught.value.code == "UNSUPPORTED_CONTENT"

    async def test_58_a_call_without_a_result_gets_one(self) -> None:
        turn = create_assistant_message([ToolCallBlock(CallId("c"), "ls", "{}")], SOURCE)
        sent = await sent_items(HI, turn, HI)
        assert [item["type"] for item in sent] == [
            "message",
            "function_call",
            "function_call_output",
            "message",
        ]
        assert sent[2]["output"].startswith("Error: ")

    async def test_61_ids_that_the_api_refuses_are_replaced(self) -> None:
        long = CallId("call|" + "x" * 80)
        turn = create_assistant_message([ToolCallBlock(long, "ls", "{}")], SOURCE)
        sent = await sent_items(HI, turn, create_tool_result_message(long, "done"))
        assert sent[1]["call_id"] == sent[2]["call_id"]
        assert len(sent[1]["call_id"]) == 24

    async def test_P08_broken_arguments_become_an_empty_object(self) -> None:
        turn = create_assistant_message([ToolCallBlock(CallId("c"), "ls", '{"cut')], SOURCE)
        sent = await sent_items(HI, turn, create_tool_result_message(CallId("c"), "done"))
        assert sent[1]["arguments"] == "{}"

    async def test_63_lone_surrogates_become_replacement_characters(self) -> None:
        call = ToolCallBlock(CallId("c"), "ls", '{"a":"\\ud83d"}')
        turn = create_assistant_message([TextBlock("a\ud83d"), call], SOURCE)
        result = create_tool_result_message(CallId("c"), "\udc00")
        sent = await sent_items(create_user_message("x\ud83d"), turn, result)
        assert sent[0]["content"][0]["text"] == "x\ufffd"
        assert sent[1]["content"] == "a\ufffd"
        assert sent[2]["arguments"] == '{"a":"\\ufffd"}'
        assert sent[3]["output"] == "\ufffd"
