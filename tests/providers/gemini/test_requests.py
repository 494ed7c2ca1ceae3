"""Requests to the bodies of ``streamGenerateContent``."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from trio_llm.model.content import Attachment, ImageBlock, ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import CallId, ReasoningEffortId
from trio_llm.model.messages import (
    Message,
    ModelSource,
    UserSource,
    create_assistant_message,
    create_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.requests import NamedTool, ResponseFormat, ToolSchema
from trio_llm.providers.gemini import GeminiModel

from .events import body_of, sent_contents

HI = create_user_message("hi")
PNG = Attachment.from_bytes(b"png", "image/png")
TOOL = ToolSchema("ls", "Lists.", {"type": "object", "properties": {"a": {"type": "string"}}})
SOURCE = ModelSource("p", "m")
UNSIGNED = "skip_thought_signature_validator"


def called(*ids: str, arguments: str = '{"a":1}') -> Message:
    return create_assistant_message([ToolCallBlock(CallId(id), "ls", arguments) for id in ids], SOURCE)


async def test_D01_the_least_there_is() -> None:
    assert await body_of("unheard-of") == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


async def test_D01_everything_there_is_in_a_stable_order() -> None:
    body = await body_of(
        system="be brief",
        tools=[TOOL, ToolSchema("now", "Tells the time.", {})],
        tool_choice=NamedTool("ls"),
        reasoning_effort=ReasoningEffortId("low"),
        response_format=ResponseFormat({"type": "object"}),
        max_tokens=9,
        temperature=0.0,
        top_p=0.5,
        stop=["END"],
        provider_options={
            "cached_content": "cachedContents/1",
            "include_server_side_tool_invocations": True,
            "safety_settings": [{"category": "C", "threshold": "T"}],
            "seed": 0,
            "server_tools": [{"googleSearch": {}}],
            "top_k": 3,
        },
        session_id="s",
        purpose="compaction",
    )
    assert json.dumps(body) == json.dumps(
        {
            "systemInstruction": {"parts": [{"text": "be brief"}]},
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "tools": [
                {
                    "functionDeclarations": [
                        {"name": "ls", "description": "Lists.", "parametersJsonSchema": TOOL.parameters},
                        {"name": "now", "description": "Tells the time."},
                    ]
                },
                {"googleSearch": {}},
            ],
            "toolConfig": {
                "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["ls"]},
                "includeServerSideToolInvocations": True,
            },
            "generationConfig": {
                "maxOutputTokens": 9,
                "temperature": 0.0,
                "topP": 0.5,
                "stopSequences": ["END"],
                "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "object"},
                "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True},
                "seed": 0,
                "topK": 3,
            },
            "cachedContent": "cachedContents/1",
            "safetySettings": [{"category": "C", "threshold": "T"}],
        }
    )


@pytest.mark.parametrize(("choice", "mode"), [("auto", "AUTO"), ("none", "NONE"), ("required", "ANY")])
async def test_tool_choice(choice: Any, mode: str) -> None:
    body = await body_of(tools=[TOOL], tool_choice=choice)
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": mode}}


async def test_server_tools_alone() -> None:
    body = await body_of(provider_options={"server_tools": [{"codeExecution": {}}]})
    assert body["tools"] == [{"codeExecution": {}}]


@pytest.mark.parametrize(
    ("model", "effort", "shown", "wanted"),
    [
        ("gemini-3-flash-preview", None, True, {"includeThoughts": True}),
        ("gemini-3-flash-preview", None, False, None),
        (
            "gemini-3-flash-preview",
            "minimal",
            True,
            {"thinkingLevel": "MINIMAL", "includeThoughts": True},
        ),
        ("gemini-3.1-pro-preview", "high", False, {"thinkingLevel": "HIGH"}),
        ("gemini-2.5-flash", "off", True, {"thinkingBudget": 0}),
        ("gemini-2.5-flash", "medium", True, {"thinkingBudget": 8192, "includeThoughts": True}),
        ("unheard-of", "xhigh", True, {"thinkingLevel": "XHIGH", "includeThoughts": True}),
        ("unheard-of", None, True, None),
    ],
)
async def test_D02_efforts(model: str, effort: Any, shown: bool, wanted: Any) -> None:
    body = await body_of(model, reasoning_effort=effort, include_thoughts=shown)
    assert body.get("generationConfig", {}).get("thinkingConfig") == wanted


@pytest.mark.parametrize(
    ("model", "effort"),
    [
        ("gemini-3.8-flash", "minimal"),
        ("gemini-2.5-pro", "off"),
        (GeminiModel("m", efforts=()), "low"),
        ("unheard-of", "off"),
    ],
)
async def test_L13_an_effort_that_the_model_has_not(model: Any, effort: str) -> None:
    with pytest.raises(LlmError) as caught:
        await body_of(model, reasoning_effort=ReasoningEffortId(effort))
    assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": ResponseFormat({}, strict=False)},
        {"provider_options": {"temperature": 1}},
        {"provider_options": {"thinkingConfig": {}}},
        {"provider_options": {"topK": 1}},
        {"provider_options": {"server_tools": {"googleSearch": {}}}},
        {"provider_options": {"server_tools": ["googleSearch"]}},
    ],
)
async def test_P04_what_cannot_be_honoured_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(LlmError) as caught:
        await body_of(**fields)
    assert caught.value.code == "UNSUPPORTED_OPTION"


async def test_D03_a_turn_of_another_provider() -> None:
    turn = create_assistant_message(
        [
            ReasoningBlock("hm"),
            TextBlock("let me see"),
            ToolCallBlock(CallId("c-1"), "ls", '{"b":1,"a":2}'),
            ToolCallBlock(CallId("c-2"), "cat", ""),
        ],
        SOURCE,
    )
    sent = await sent_contents(
        HI,
        turn,
        create_tool_result_message(CallId("c-2"), "no such file", is_error=True),
        create_tool_result_message(CallId("c-1"), "a\nb"),
        create_user_message("thanks"),
    )
    assert sent == [
        {"role": "user", "parts": [{"text": "hi"}]},
        {
            "role": "model",
            "parts": [
                {"text": "let me see"},
                {
                    "functionCall": {"name": "ls", "args": {"b": 1, "a": 2}},
                    "thoughtSignature": UNSIGNED,
                },
                {"functionCall": {"name": "cat", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "ls", "response": {"output": "a\nb"}}},
                {"functionResponse": {"name": "cat", "response": {"error": "no such file"}}},
                {"text": "thanks"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("model", "signed"),
    [
        ("gemini-2.5-pro", False),
        ("models/gemini-2.0-flash", False),
        ("gemma-4", False),
        ("gemini-3.8-flash", True),
        ("gemini-4-argon", True),
        ("gemini-flash-latest", True),
    ],
)
async def test_calls_of_others_get_a_signature_where_one_is_wanted(model: str, signed: bool) -> None:
    result = create_tool_result_message(CallId("c"), "r")
    sent = await sent_contents(HI, called("c"), result, model=model)
    assert ("thoughtSignature" in sent[1]["parts"][0]) is signed


async def test_equal_ids_in_two_turns_pair_with_their_own() -> None:
    first = [called("call-0"), create_tool_result_message(CallId("call-0"), "one")]
    other = create_assistant_message([ToolCallBlock(CallId("call-0"), "cat", "")], SOURCE)
    sent = await sent_contents(HI, *first, other, create_tool_result_message(CallId("call-0"), "two"))
    answers = [content["parts"][0]["functionResponse"] for content in sent[2::2]]
    assert [(answer["name"], answer["response"]["output"]) for answer in answers] == [
        ("ls", "one"),
        ("cat", "two"),
    ]


@pytest.mark.parametrize("raw", ["[1]", "1", '"a"', " "])
async def test_P08_arguments_that_are_no_object(raw: str) -> None:
    sent = await sent_contents(HI, called("c", arguments=raw), create_tool_result_message(CallId("c"), "r"))
    assert sent[1]["parts"][0]["functionCall"]["args"] == {}


async def test_system_messages() -> None:
    system = create_message("system", "more", UserSource())
    body = await body_of(system="first", messages=[system, HI, system])
    assert body["systemInstruction"] == {"parts": [{"text": "first\n\nmore"}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}, {"text": "more"}]}]


async def test_neighbours_of_one_role_are_one_content_and_the_user_begins() -> None:
    turn = create_assistant_message("a", SOURCE)
    sent = await sent_contents(turn, turn, HI, HI)
    assert [(content["role"], len(content["parts"])) for content in sent] == [
        ("user", 1),
        ("model", 2),
        ("user", 2),
    ]


async def test_what_says_nothing_is_left_out() -> None:
    empty = create_assistant_message([TextBlock("")], SOURCE)
    assert await sent_contents(create_user_message(""), empty, HI) == [
        {"role": "user", "parts": [{"text": "hi"}]}
    ]


async def test_images() -> None:
    encoded = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(b"png").decode()}}
    linked = Attachment.from_url("https://host/a.png")
    typed = Attachment.from_url("https://host/b.png", "image/png")
    result = create_tool_result_message(CallId("c"), [TextBlock("see"), ImageBlock(PNG)])
    sent = await sent_contents(
        create_user_message([ImageBlock(PNG), TextBlock("?"), ImageBlock(linked), ImageBlock(typed)]),
        called("c"),
        result,
    )
    assert sent[0]["parts"] == [
        encoded,
        {"text": "?"},
        {"fileData": {"fileUri": "https://host/a.png"}},
        {"fileData": {"mimeType": "image/png", "fileUri": "https://host/b.png"}},
    ]
    answer, introduction, shown = sent[2]["parts"]
    assert answer["functionResponse"]["response"] == {"output": "see"}
    assert "above" in introduction["text"]
    assert shown == encoded


@pytest.mark.parametrize(
    "message",
    [
        create_user_message([ImageBlock(Attachment("x", data=b"png"))]),
        create_assistant_message([ImageBlock(PNG)], SOURCE),
        create_message("system", [ImageBlock(PNG)], UserSource()),
    ],
    ids=["no type", "assistant", "system"],
)
async def test_images_that_cannot_be_sent(message: Message) -> None:
    with pytest.raises(LlmError) as caught:
        await body_of(messages=[message])
    assert caught.value.code == "UNSUPPORTED_CONTENT"
