"""Requests to the Messages API: what a body says, in which order, and what is refused before any I/O."""

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
    UnknownBlock,
)
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import CallId, ReasoningEffortId
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
from trio_llm.providers.anthropic import AnthropicModel
from trio_llm.providers.anthropic.conversation import NO_OUTPUT, OPENING

from .messages import body_of, sent_messages

PIXEL = Attachment.from_bytes(b"\x89PNG", "image/png")
PIXEL_PART = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
}
WEATHER = ToolSchema("weather", "Tells it.", {"type": "object", "properties": {"city": {"type": "string"}}})
FOREIGN = ModelSource("other", "m")
MARK = {"type": "ephemeral", "ttl": "1h"}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def calls(*ids: str, arguments: str = "{}") -> Message:
    return create_assistant_message([ToolCallBlock(CallId(id), "t", arguments) for id in ids], FOREIGN)


async def refusal_of(model: AnthropicModel | str = "claude-opus-4-6", **fields: Any) -> LlmError:
    with pytest.raises(LlmError) as caught:
        await body_of(model, **fields)
    return caught.value


class TestFields:
    async def test_the_least_a_body_says(self) -> None:
        assert await body_of() == {
            "model": "claude-opus-4-6",
            "max_tokens": 64_000,
            "stream": True,
            "messages": [{"role": "user", "content": [said("hi")]}],
        }

    async def test_everything_in_its_order(self) -> None:
        body = await body_of(
            system="Be kind.",
            tools=[WEATHER],
            tool_choice="auto",
            temperature=0.5,
            top_p=0.9,
            max_tokens=4000,
            stop=["END"],
            reasoning_effort=ReasoningEffortId("low"),
            response_format=ResponseFormat({"type": "object"}),
            provider_options={"top_k": 5, "metadata": {"user_id": "u"}},
        )
        assert list(body) == [
            "model",
            "max_tokens",
            "stream",
            "tools",
            "tool_choice",
            "system",
            "messages",
            "thinking",
            "output_config",
            "temperature",
            "top_p",
            "stop_sequences",
            "metadata",
            "top_k",
        ]
        assert body["max_tokens"] == 4000
        assert body["stop_sequences"] == ["END"]
        assert body["output_config"] == {
            "effort": "low",
            "format": {"type": "json_schema", "schema": {"type": "object"}},
        }
        assert (body["temperature"], body["top_p"], body["top_k"]) == (0.5, 0.9, 5)

    async def test_session_and_purpose_are_ignored(self) -> None:
        assert await body_of(session_id="s", purpose="compaction") == await body_of()

    @pytest.mark.parametrize(
        ("choice", "wanted"),
        [
            ("auto", {"type": "auto"}),
            ("none", {"type": "none"}),
            ("required", {"type": "any"}),
            (NamedTool("weather"), {"type": "tool", "name": "weather"}),
        ],
    )
    async def test_tool_choice(self, choice: Any, wanted: dict[str, str]) -> None:
        assert (await body_of(tools=[WEATHER], tool_choice=choice))["tool_choice"] == wanted
        options = {"disable_parallel_tool_use": True}
        marked = wanted if choice == "none" else wanted | options
        body = await body_of(tools=[WEATHER], tool_choice=choice, provider_options=options)
        assert body["tool_choice"] == marked

    async def test_one_call_at_a_time_without_another_choice(self) -> None:
        body = await body_of(tools=[WEATHER], provider_options={"disable_parallel_tool_use": True})
        assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}

    async def test_tools(self) -> None:
        body = await body_of(tools=[WEATHER, ToolSchema("now", "", {})])
        assert body["tools"] == [
            {"name": "weather", "description": "Tells it.", "input_schema": WEATHER.parameters},
            {"name": "now", "description": "", "input_schema": {"type": "object"}},
        ]

    async def test_tools_that_run_at_the_provider(self) -> None:
        search = {"type": "web_search_20250305", "name": "web_search"}
        body = await body_of(
            tools=[WEATHER], provider_options={"server_tools": [search], "tools_cache_control": MARK}
        )
        assert [tool["name"] for tool in body["tools"]] == ["weather", "web_search"]
        assert [tool.get("cache_control") for tool in body["tools"]] == [None, MARK]

    @pytest.mark.parametrize("tools", ["web_search", {"type": "web_search"}, ["web_search"], None, 5])
    async def test_server_tools_that_are_no_list_of_tools(self, tools: Any) -> None:
        error = await refusal_of(provider_options={"server_tools": tools})
        assert error.code == "UNSUPPORTED_OPTION"
        assert "server_tools" in error.failure.message

    async def test_cache_control(self) -> None:
        body = await body_of(
            system="Be kind.", provider_options={"cache_control": MARK, "system_cache_control": MARK}
        )
        assert body["cache_control"] == MARK
        assert body["system"] == [said("Be kind.") | {"cache_control": MARK}]
        assert "tools" not in await body_of(provider_options={"tools_cache_control": MARK})

    @pytest.mark.parametrize("key", ["thinking", "model", "max_tokens", "betas", "stream"])
    async def test_other_provider_options_are_refused(self, key: str) -> None:
        error = await refusal_of(provider_options={key: 1})
        assert error.code == "UNSUPPORTED_OPTION"
        assert key in error.failure.message

    @pytest.mark.parametrize("field", ["temperature", "top_p"])
    async def test_sampling_is_refused_where_the_model_has_none(self, field: str) -> None:
        assert (await refusal_of("claude-opus-4-7", **{field: 0.5})).code == "UNSUPPORTED_OPTION"

    @pytest.mark.parametrize("choice", ["required", NamedTool("weather")])
    async def test_a_call_cannot_be_forced_everywhere(self, choice: Any) -> None:
        assert (await refusal_of("claude-opus-5-5", tool_choice=choice)).code == "UNSUPPORTED_OPTION"
        high = ReasoningEffortId("high")
        error = await refusal_of("claude-haiku-4-5", tool_choice=choice, reasoning_effort=high)
        assert error.code == "UNSUPPORTED_OPTION"
        assert "while it thinks" in error.failure.message
        await body_of("claude-haiku-4-5", tool_choice=choice)

    async def test_a_budget_goes_with_one_temperature_alone(self) -> None:
        high = ReasoningEffortId("high")
        error = await refusal_of("claude-haiku-4-5", temperature=0.5, reasoning_effort=high)
        assert error.code == "UNSUPPORTED_OPTION"
        await body_of("claude-haiku-4-5", temperature=1, reasoning_effort=high)

    async def test_a_format_that_is_not_enforced_is_refused(self) -> None:
        error = await refusal_of(response_format=ResponseFormat({}, strict=False))
        assert error.code == "UNSUPPORTED_OPTION"


class TestThinking:
    @pytest.mark.parametrize(
        ("model", "effort", "thinking", "output"),
        [
            ("claude-opus-5-5", None, None, None),
            ("claude-opus-5-5", "max", {"type": "adaptive"}, {"effort": "max"}),
            ("claude-sonnet-5-5", "off", {"type": "between_tools"}, None),
            ("claude-haiku-5-5", "off", {"type": "disabled"}, None),
            ("claude-haiku-5-5", "xhigh", {"type": "adaptive"}, {"effort": "xhigh"}),
            ("claude-opus-4-8", "off", None, None),
            ("claude-opus-4-6", "high", {"type": "adaptive"}, {"effort": "high"}),
            ("claude-opus-4-5", "low", {"type": "enabled", "budget_tokens": 2048}, {"effort": "low"}),
            (
                "claude-opus-4-5-20251101",
                "low",
                {"type": "enabled", "budget_tokens": 2048},
                {"effort": "low"},
            ),
            ("claude-sonnet-4-5", "medium", {"type": "enabled", "budget_tokens": 8192}, None),
            ("claude-haiku-4-5", "high", {"type": "enabled", "budget_tokens": 24576}, None),
            ("claude-haiku-4-5", "off", None, None),
            ("claude-haiku-4-5", None, None, None),
            ("another-model", "low", {"type": "adaptive"}, {"effort": "low"}),
        ],
    )
    async def test_an_effort_in_the_words_of_the_model(
        self, model: str, effort: Any, thinking: Any, output: Any
    ) -> None:
        body = await body_of(model, reasoning_effort=effort)
        assert body.get("thinking") == thinking
        assert body.get("output_config") == output
        assert body["model"] == model

    @pytest.mark.parametrize(
        ("model", "effort"),
        [
            ("claude-opus-4-6", "xhigh"),
            ("claude-opus-5-5", "off"),
            ("claude-haiku-4-5", "max"),
            ("m", "some"),
        ],
    )
    async def test_an_effort_that_is_not_on_offer_is_refused_not_clamped(
        self, model: str, effort: str
    ) -> None:
        error = await refusal_of(model, reasoning_effort=ReasoningEffortId(effort))
        assert error.code == "UNSUPPORTED_REASONING_EFFORT"

    async def test_a_budget_leaves_room_for_the_answer(self) -> None:
        high = ReasoningEffortId("high")
        body = await body_of("claude-haiku-4-5", max_tokens=4096, reasoning_effort=high)
        assert body["thinking"]["budget_tokens"] == 3072
        error = await refusal_of("claude-haiku-4-5", max_tokens=2047, reasoning_effort=high)
        assert error.code == "UNSUPPORTED_OPTION"

    async def test_a_deployment_without_thinking(self) -> None:
        body = await body_of("claude-opus-5", thinking=False)
        assert body["thinking"] == {"type": "disabled"}
        error = await refusal_of("claude-opus-5", thinking=False, reasoning_effort=ReasoningEffortId("low"))
        assert error.code == "UNSUPPORTED_REASONING_EFFORT"
        assert (await refusal_of("claude-opus-5-5", thinking=False)).code == "UNSUPPORTED_REASONING_EFFORT"

    @pytest.mark.parametrize(
        ("model", "effort", "wanted"),
        [
            ("claude-opus-5-5", None, {"type": "adaptive", "display": "summarized"}),
            ("claude-opus-5-5", "low", {"type": "adaptive", "display": "summarized"}),
            ("claude-opus-4-8", None, None),
            ("claude-haiku-5-5", "off", {"type": "disabled"}),
            ("claude-haiku-4-5", "low", {"type": "enabled", "budget_tokens": 2048, "display": "summarized"}),
        ],
    )
    async def test_settings_go_wherever_thinking_is_on(self, model: str, effort: Any, wanted: Any) -> None:
        body = await body_of(model, reasoning_effort=effort, settings={"display": "summarized"})
        assert body.get("thinking") == wanted


class TestSystem:
    async def test_leading_system_messages_join_the_prompt(self) -> None:
        first = create_message("system", "Rules.", PluginSource("p"))
        body = await body_of(system="Be kind.", messages=[first, create_user_message("hi")])
        assert body["system"] == "Be kind.\n\nRules."
        assert body["messages"] == [{"role": "user", "content": [said("hi")]}]

    async def test_a_later_one_is_user_text_where_it_stands(self) -> None:
        later = create_message("system", "Now French.", PluginSource("p"))
        empty = create_message("system", "", PluginSource("p"))
        sent = await sent_messages(create_user_message("hi"), later, empty, create_user_message("go on"))
        assert sent == [{"role": "user", "content": [said("hi"), said("Now French."), said("go on")]}]

    @pytest.mark.parametrize("role", ["system", "assistant"])
    async def test_images_are_the_users_alone(self, role: Any) -> None:
        for messages in (
            [create_message(role, [ImageBlock(PIXEL)], PluginSource("p"))],
            [create_user_message("hi"), create_message(role, [ImageBlock(PIXEL)], PluginSource("p"))],
        ):
            assert (await refusal_of(messages=messages)).code == "UNSUPPORTED_CONTENT"


class TestMessages:
    async def test_neighbours_of_one_role_are_one_message(self) -> None:
        answer = create_assistant_message("b", FOREIGN)
        sent = await sent_messages(create_user_message("a"), answer, answer, create_user_message("c"))
        assert sent == [
            {"role": "user", "content": [said("a")]},
            {"role": "assistant", "content": [said("b"), said("b")]},
            {"role": "user", "content": [said("c")]},
        ]

    async def test_results_come_first_in_the_order_of_the_calls(self) -> None:
        answered = create_user_message(
            [
                TextBlock("so?"),
                ToolResultBlock(CallId("b"), "2"),
                ToolResultBlock(CallId("a"), "1", is_error=True),
            ]
        )
        sent = await sent_messages(create_user_message("go"), calls("a", "b"), answered)
        assert sent[1]["content"][0] == {"type": "tool_use", "id": "a", "name": "t", "input": {}}
        assert sent[2]["content"] == [
            {"type": "tool_result", "tool_use_id": "a", "content": [said("1")], "is_error": True},
            {"type": "tool_result", "tool_use_id": "b", "content": [said("2")]},
            said("so?"),
        ]

    async def test_a_result_with_an_image_and_one_with_nothing(self) -> None:
        shown = create_tool_result_message(
            CallId("a"), [TextBlock(" "), TextBlock("seen"), ImageBlock(PIXEL)]
        )
        empty = create_tool_result_message(CallId("b"), "")
        sent = await sent_messages(create_user_message("go"), calls("a", "b"), shown, empty)
        assert [part["content"] for part in sent[2]["content"]] == [
            [said("seen"), PIXEL_PART],
            [said(NO_OUTPUT)],
        ]

    async def test_images_of_the_user(self, tmp_path: Path) -> None:
        file = tmp_path / "a.png"
        file.write_bytes(b"\x89PNG")
        sent = await sent_messages(
            create_user_message(
                [
                    ImageBlock(PIXEL),
                    ImageBlock(Attachment.from_path(file)),
                    ImageBlock(Attachment.from_url("https://h/a.png")),
                ]
            )
        )
        by_url = {"type": "image", "source": {"type": "url", "url": "https://h/a.png"}}
        assert sent[0]["content"] == [PIXEL_PART, PIXEL_PART, by_url]

    async def test_an_image_of_another_type_is_refused(self) -> None:
        picture = ImageBlock(Attachment.from_bytes(b"x", "image/tiff"))
        assert (await refusal_of(messages=[create_user_message([picture])])).code == "UNSUPPORTED_CONTENT"

    @pytest.mark.parametrize(
        ("arguments", "input"),
        [("", {}), (" ", {}), ('{"a": 1}', {"a": 1}), ("[1]", {}), ("null", {})],
    )
    async def test_arguments_are_an_object(self, arguments: str, input: Any) -> None:
        sent = await sent_messages(create_user_message("go"), calls("a", arguments=arguments))
        assert sent[1]["content"][0]["input"] == input

    async def test_blank_text_and_unknown_blocks_are_left_out(self) -> None:
        odd = UnknownBlock("odd", {})
        sent = await sent_messages(
            create_user_message([TextBlock(" \n"), odd, TextBlock("a")]),
            create_assistant_message([TextBlock(""), odd], FOREIGN),
            create_user_message("b"),
        )
        assert sent == [{"role": "user", "content": [said("a"), said("b")]}]

    async def test_57_thinking_from_elsewhere_is_left_out(self) -> None:
        answer = create_assistant_message([ReasoningBlock("hm"), TextBlock("a")], FOREIGN)
        only = create_assistant_message([ReasoningBlock("hm")], FOREIGN)
        sent = await sent_messages(create_user_message("hi"), answer, create_user_message("go"), only)
        assert [message["content"] for message in sent] == [[said("hi")], [said("a")], [said("go")]]

    async def test_a_history_begins_with_the_user(self) -> None:
        sent = await sent_messages(create_assistant_message("a", FOREIGN), create_user_message("b"))
        assert sent[0] == {"role": "user", "content": [said(OPENING)]}
        assert [message["role"] for message in sent] == ["user", "assistant", "user"]
