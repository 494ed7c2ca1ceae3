"""Requests to the bodies of ``/api/chat``."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from trio_llm.model.content import Attachment, ImageBlock, ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import CallId, ReasoningEffortId
from trio_llm.model.messages import (
    ModelSource,
    UserSource,
    create_assistant_message,
    create_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.requests import NamedTool, ResponseFormat, ToolSchema
from trio_llm.protocol.assembler import BlockAssembler
from trio_llm.providers.ollama import OllamaModel

from .lines import body_of, chunks_of, done, says, sent_messages

HI = create_user_message("hi")
PNG = Attachment.from_bytes(b"png", "image/png")
TOOL = ToolSchema("ls", "Lists.", {"type": "object", "properties": {"a": {"type": "string"}}})
SOURCE = ModelSource("p", "m")


def called(*ids: str, arguments: str = '{"a":1}') -> Any:
    return create_assistant_message([ToolCallBlock(CallId(id), "ls", arguments) for id in ids], SOURCE)


async def test_D01_the_least_there_is() -> None:
    body = await body_of()
    assert body == {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


async def test_D01_everything_there_is_in_a_stable_order() -> None:
    body = await body_of(
        system="be brief",
        tools=[TOOL],
        tool_choice="auto",
        reasoning_effort=ReasoningEffortId("high"),
        response_format=ResponseFormat({"type": "object"}),
        max_tokens=9,
        temperature=0.0,
        top_p=0.5,
        stop=["END"],
        provider_options={"keep_alive": "5m", "num_ctx": 8192, "seed": 0, "truncate": False},
        session_id="s",
        purpose="session-title",
    )
    assert json.dumps(body) == json.dumps(
        {
            "model": "m",
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
            "stream": True,
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "ls", "description": "Lists.", "parameters": TOOL.parameters},
                }
            ],
            "think": "high",
            "format": {"type": "object"},
            "options": {
                "num_predict": 9,
                "temperature": 0.0,
                "top_p": 0.5,
                "stop": ["END"],
                "num_ctx": 8192,
                "seed": 0,
            },
            "keep_alive": "5m",
            "truncate": False,
        }
    )


@pytest.mark.parametrize(
    ("effort", "think"),
    [("off", False), ("on", True), ("low", "low"), ("medium", "medium"), ("high", "high")],
)
async def test_D02_efforts(effort: str, think: Any) -> None:
    assert (await body_of(reasoning_effort=ReasoningEffortId(effort)))["think"] == think


async def test_tool_choice_none_leaves_the_tools_out() -> None:
    assert "tools" not in await body_of(tools=[TOOL], tool_choice="none")


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": "required"},
        {"tool_choice": NamedTool("ls")},
        {"response_format": ResponseFormat({}, strict=False)},
        {"provider_options": {"temperature": 1}},
        {"provider_options": {"think": True}},
    ],
)
async def test_P04_what_cannot_be_honoured_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(LlmError) as caught:
        await body_of(tools=[TOOL], **fields)
    assert caught.value.code == "UNSUPPORTED_OPTION"


@pytest.mark.parametrize(
    "model", [OllamaModel("m", efforts=()), OllamaModel("m", efforts=("low", "medium", "high"))]
)
async def test_L13_an_effort_that_the_model_has_not(model: OllamaModel) -> None:
    with pytest.raises(LlmError) as caught:
        await body_of(model, reasoning_effort=ReasoningEffortId("on"))
    assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"


async def test_D03_a_turn_with_everything() -> None:
    turn = create_assistant_message(
        [
            ReasoningBlock("hm"),
            TextBlock("let me see"),
            ToolCallBlock(CallId("c-1"), "ls", '{"b":1,"a":2}'),
            ToolCallBlock(CallId("c-2"), "cat", ""),
        ],
        SOURCE,
    )
    sent = await sent_messages(
        HI,
        turn,
        create_tool_result_message(CallId("c-2"), "", is_error=True),
        create_tool_result_message(CallId("c-1"), "a\nb"),
        create_user_message("thanks"),
    )
    assert sent[1:] == [
        {
            "role": "assistant",
            "content": "let me see",
            "thinking": "hm",
            "tool_calls": [
                {"id": "c-1", "function": {"name": "ls", "arguments": {"b": 1, "a": 2}}},
                {"id": "c-2", "function": {"name": "cat", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "a\nb", "tool_name": "ls", "tool_call_id": "c-1"},
        {"role": "tool", "content": "Error: (no output)", "tool_name": "cat", "tool_call_id": "c-2"},
        {"role": "user", "content": "thanks"},
    ]


async def test_ids_that_come_again_are_told_apart_and_earlier_ones_stay() -> None:
    history = [HI, called("call-0"), create_tool_result_message(CallId("call-0"), "one")]
    first = await sent_messages(*history)
    both = await sent_messages(
        *history, called("call-0"), create_tool_result_message(CallId("call-0"), "two")
    )
    assert both[: len(first)] == first
    ids = [message["tool_calls"][0]["id"] for message in both if "tool_calls" in message]
    assert ids[0] == "call-0"
    assert len(set(ids)) == 2
    results = [message for message in both if message["role"] == "tool"]
    assert [(message["tool_call_id"], message["content"]) for message in results] == [
        (ids[0], "one"),
        (ids[1], "two"),
    ]


async def test_a_recorded_turn_comes_back() -> None:
    assembler = BlockAssembler()
    assembler.push_all(
        chunks_of(
            says(thinking="hm"), says("a", tool_calls=[{"function": {"name": "f", "arguments": {}}}]), done()
        )
    )
    message = assembler.message(SOURCE)
    sent = await sent_messages(HI, message, create_tool_result_message(CallId("call-2"), "r"))
    assert sent[1] == {
        "role": "assistant",
        "content": "a",
        "thinking": "hm",
        "tool_calls": [{"id": "call-2", "function": {"name": "f", "arguments": {}}}],
    }


@pytest.mark.parametrize("raw", ["[1]", "1", '"a"', " "])
async def test_P08_arguments_that_are_no_object(raw: str) -> None:
    sent = await sent_messages(HI, called("c", arguments=raw), create_tool_result_message(CallId("c"), "r"))
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == {}


async def test_system_messages_stay_where_they_are() -> None:
    system = create_message("system", "later", UserSource())
    assert [message["role"] for message in await sent_messages(HI, system, HI)] == ["user", "system", "user"]


async def test_an_assistant_turn_without_anything_is_left_out() -> None:
    sent = await sent_messages(HI, create_assistant_message([TextBlock("")], SOURCE), HI)
    assert [message["role"] for message in sent] == ["user", "user"]


async def test_images() -> None:
    encoded = base64.b64encode(b"png").decode()
    result = create_tool_result_message(CallId("c"), [TextBlock("see"), ImageBlock(PNG)])
    sent = await sent_messages(
        create_user_message([ImageBlock(PNG), TextBlock("what is it?")]), called("c"), result
    )
    assert sent[0] == {"role": "user", "content": "what is it?", "images": [encoded]}
    assert sent[2]["images"] == [encoded]
    assert await sent_messages(create_user_message([ImageBlock(PNG)])) == [
        {"role": "user", "content": "", "images": [encoded]}
    ]


@pytest.mark.parametrize(
    "message",
    [
        create_user_message([ImageBlock(Attachment.from_url("https://host/a.png"))]),
        create_assistant_message([ImageBlock(PNG)], SOURCE),
        create_message("system", [ImageBlock(PNG)], UserSource()),
    ],
    ids=["url", "assistant", "system"],
)
async def test_images_that_cannot_be_sent(message: Any) -> None:
    with pytest.raises(LlmError) as caught:
        await body_of(messages=[message])
    assert caught.value.code == "UNSUPPORTED_CONTENT"
