"""Requests of the chat wire: what a body says, in which order, and what is refused before any I/O."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.model.content import (
    Attachment,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import CallId, ReasoningEffortId
from trio_llm.model.json_value import FrozenObject
from trio_llm.model.messages import (
    Message,
    ModelSource,
    PluginSource,
    create_assistant_message,
    create_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.requests import NamedTool, ResponseFormat, ToolSchema
from trio_llm.protocol.json_text import encode_body
from trio_llm.providers.deepseek import DEEPSEEK
from trio_llm.providers.images import load_images
from trio_llm.providers.openai_chat import ChatProfile
from trio_llm.providers.openai_chat.serialize import chat_body

from .streams import not_degraded
from .wire import PLAIN, ask

PIXEL = Attachment.from_bytes(b"\x89PNG", "image/png")
PIXEL_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
WEATHER = ToolSchema("weather", "Tells it.", {"type": "object", "properties": {"city": {"type": "string"}}})
MODEL = ModelSource("p", "m")


async def body_of(profile: ChatProfile = PLAIN, **fields: Any) -> dict[str, Any]:
    """The body as it goes over the wire."""
    options = ask(**fields)
    body = json.loads(
        encode_body(chat_body(options, profile, await load_images(options.messages), not_degraded))
    )
    assert isinstance(body, dict)
    return body


async def messages_of(
    *messages: Message, profile: ChatProfile = PLAIN, **fields: Any
) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = (await body_of(profile, messages=messages, **fields))["messages"]
    return said


def assistant(*blocks: ContentBlock) -> Message:
    return create_assistant_message(blocks, MODEL)


def call(id: str, arguments: str = "{}") -> ToolCallBlock:
    return ToolCallBlock(CallId(id), "weather", arguments)


class TestBody:
    async def test_D01_what_is_not_asked_for_is_left_out(self) -> None:
        assert await body_of() == {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    async def test_D01_everything_in_a_stable_order(self) -> None:
        profile = attrs.evolve(
            PLAIN, options={"seed"}, session_field="session", efforts={"low": {"reasoning_effort": "low"}}
        )
        body = await body_of(
            profile,
            system="Be brief.",
            tools=[WEATHER],
            tool_choice="auto",
            temperature=0.5,
            top_p=0.9,
            max_tokens=7,
            stop=["END"],
            response_format=ResponseFormat({"type": "object"}, name="answer"),
            reasoning_effort=ReasoningEffortId("low"),
            session_id="s-1",
            provider_options={"seed": 3},
        )
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
        assert list(body.items())[2:] == [
            ("stream", True),
            ("stream_options", {"include_usage": True}),
            (
                "tools",
                [
                    {
                        "type": "function",
                        "function": {
                            "name": "weather",
                            "description": "Tells it.",
                            "parameters": WEATHER.parameters,
                        },
                    }
                ],
            ),
            ("tool_choice", "auto"),
            ("temperature", 0.5),
            ("top_p", 0.9),
            ("max_tokens", 7),
            ("stop", ["END"]),
            (
                "response_format",
                {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
                },
            ),
            ("reasoning_effort", "low"),
            ("session", "s-1"),
            ("seed", 3),
        ]

    async def test_the_profile_spells(self) -> None:
        profile = attrs.evolve(
            PLAIN,
            system_role="developer",
            max_tokens_field="max_completion_tokens",
            include_usage=False,
            required_choice="any",
        )
        body = await body_of(profile, system="s", max_tokens=7, tools=[WEATHER], tool_choice="required")
        assert body["messages"][0]["role"] == "developer"
        assert body["max_completion_tokens"] == 7
        assert body["tool_choice"] == "any"
        assert "stream_options" not in body

    async def test_a_named_tool(self) -> None:
        body = await body_of(tools=[WEATHER], tool_choice=NamedTool("weather"))
        assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}


class TestHistory:
    async def test_D03_reasoning_goes_back_and_content_is_never_null(self) -> None:
        said = await messages_of(
            create_user_message("weather?"),
            assistant(ReasoningBlock("Need the tool."), call("c1"), call("c2", "")),
            create_tool_result_message(CallId("c1"), "3 C"),
            create_tool_result_message(CallId("c2"), ""),
            assistant(ReasoningBlock("Simple."), TextBlock("3 C")),
            profile=DEEPSEEK,
        )
        assert said[1:] == [
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "Need the tool.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
                    {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "3 C"},
            {"role": "tool", "tool_call_id": "c2", "content": "(no output)"},
            {"role": "assistant", "content": "3 C", "reasoning_content": "Simple."},
        ]

    async def test_D03_an_error_result_says_so(self) -> None:
        said = await messages_of(
            assistant(call("c1"), call("c2")),
            create_tool_result_message(CallId("c1"), "no such city", is_error=True),
            create_tool_result_message(CallId("c2"), (), is_error=True),
        )
        assert [message["content"] for message in said[1:]] == ["Error: no such city", "Error: (no output)"]

    async def test_D03_mixed_user_content_puts_text_first(self) -> None:
        said = await messages_of(
            create_user_message([ImageBlock(PIXEL), TextBlock("what"), TextBlock("is this")])
        )
        assert said == [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what"},
                    {"type": "text", "text": "is this"},
                    PIXEL_PART,
                ],
            }
        ]

    async def test_results_precede_what_the_user_says_beside_them(self) -> None:
        said = await messages_of(
            assistant(call("c1")),
            create_user_message([TextBlock("go on"), ToolResultBlock(CallId("c1"), "3 C")]),
        )
        assert [message["role"] for message in said] == ["assistant", "tool", "user"]

    async def test_D03_unknown_blocks_are_skipped(self) -> None:
        unknown = UnknownBlock("hologram", FrozenObject())
        said = await messages_of(
            create_user_message([unknown]),
            create_user_message([unknown, TextBlock("a"), TextBlock("b")]),
            assistant(unknown),
            assistant(unknown, TextBlock("c")),
        )
        assert said == [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}]

    @pytest.mark.parametrize("role", ["system", "assistant"])
    async def test_D03_images_of_others_are_refused(self, role: Any) -> None:
        with pytest.raises(LlmError) as caught:
            await messages_of(create_message(role, [ImageBlock(PIXEL)], PluginSource("p")))
        assert caught.value.code == "UNSUPPORTED_CONTENT"

    async def test_images_of_tool_results_follow_the_last_result(self) -> None:
        said = await messages_of(
            assistant(call("c1"), call("c2")),
            create_tool_result_message(CallId("c1"), [ImageBlock(PIXEL)]),
            create_tool_result_message(CallId("c2"), "ok"),
        )
        assert [message["role"] for message in said] == ["assistant", "tool", "tool", "user"]
        assert said[1]["content"] == "(no output)"
        assert said[3]["content"][1:] == [PIXEL_PART]

    async def test_images_of_tool_results_precede_the_next_turn(self) -> None:
        said = await messages_of(
            assistant(call("c1")),
            create_tool_result_message(CallId("c1"), [ImageBlock(PIXEL)]),
            create_user_message("and?"),
            assistant(TextBlock("a pixel")),
        )
        assert [message["role"] for message in said] == ["assistant", "tool", "user", "user", "assistant"]

    async def test_images_of_tool_results_precede_an_answer_at_once(self) -> None:
        said = await messages_of(
            assistant(call("c1")),
            create_tool_result_message(CallId("c1"), [ImageBlock(PIXEL)]),
            assistant(TextBlock("a pixel")),
        )
        assert [message["role"] for message in said] == ["assistant", "tool", "user", "assistant"]

    async def test_an_image_that_is_refused_is_not_even_read(self, tmp_path: Path) -> None:
        image = ImageBlock(Attachment("x", "image/png", path=str(tmp_path / "none.png")))
        with pytest.raises(LlmError, match="of the assistant"):
            await messages_of(assistant(image))

    async def test_an_image_by_url_and_from_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "pixel.png"
        file.write_bytes(b"\x89PNG")
        here, there = Attachment.from_path(file), Attachment.from_url("https://h.example/a.png")
        [said] = await messages_of(create_user_message([ImageBlock(here), ImageBlock(there)]))
        assert said["content"] == [
            PIXEL_PART,
            {"type": "image_url", "image_url": {"url": "https://h.example/a.png"}},
        ]

    async def test_a_file_that_is_gone(self, tmp_path: Path) -> None:
        file = tmp_path / "pixel.png"
        file.write_bytes(b"\x89PNG")
        image = ImageBlock(Attachment.from_path(file))
        file.unlink()
        with pytest.raises(LlmError) as caught:
            await messages_of(create_user_message([image]))
        assert caught.value.code == "UNSUPPORTED_CONTENT"

    async def test_an_image_of_no_type(self) -> None:
        with pytest.raises(LlmError) as caught:
            await messages_of(create_user_message([ImageBlock(Attachment("x", data=b"x"))]))
        assert caught.value.code == "UNSUPPORTED_CONTENT"

    async def test_system_messages_inside_the_history(self) -> None:
        said = await messages_of(create_message("system", "now in French", PluginSource("p")), system="s")
        assert said == [{"role": "system", "content": "s"}, {"role": "system", "content": "now in French"}]

    @given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
    def test_no_text_breaks_a_body(self, text: str, arguments: str) -> None:
        messages = [
            create_user_message(text),
            assistant(TextBlock(text), call("c", json.dumps({"v": arguments}))),
            create_tool_result_message(CallId("c"), text),
        ]
        sent = json.loads(
            encode_body(chat_body(ask(messages=messages, system=text), PLAIN, {}, not_degraded)).decode(
                "utf-8"
            )
        )
        assert sent["messages"][-1]["role"] == "tool"


class TestRefusals:
    @pytest.mark.parametrize(
        ("profile", "fields", "named"),
        [
            ({"unsupported": {"stop"}}, {"stop": ["x"]}, "stop"),
            ({"unsupported": {"tools"}}, {"tools": [WEATHER]}, "tools"),
            ({"json_schema": False}, {"response_format": ResponseFormat({})}, "response_format"),
            ({}, {"provider_options": {"seed": 1}}, "seed"),
            ({"options": {"seed"}}, {"provider_options": {"temperature": 1}}, "temperature"),
        ],
    )
    async def test_unsupported_options(
        self, profile: dict[str, Any], fields: dict[str, Any], named: str
    ) -> None:
        with pytest.raises(LlmError, match=named) as caught:
            await body_of(attrs.evolve(PLAIN, **profile), **fields)
        assert caught.value.code == "UNSUPPORTED_OPTION"

    async def test_what_is_unsupported_but_not_asked_for_is_no_fault(self) -> None:
        await body_of(attrs.evolve(PLAIN, unsupported={"stop", "tools", "top_p"}))

    async def test_an_effort_nobody_offers(self) -> None:
        with pytest.raises(LlmError) as caught:
            await body_of(reasoning_effort=ReasoningEffortId("high"))
        assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"
