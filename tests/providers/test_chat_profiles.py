"""The ready profiles: consistent, and each quirk where it belongs."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from trio_llm.model.chunks import Error, Stop
from trio_llm.model.content import ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import CallId, ReasoningEffortId, SessionId
from trio_llm.model.messages import (
    ModelSource,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.requests import NamedTool, ToolSchema
from trio_llm.protocol.json_text import encode_body
from trio_llm.providers.deepseek import DEEPSEEK, DeepSeekAdapter
from trio_llm.providers.openai_chat import ChatAdapter, ChatProfile, profiles
from trio_llm.providers.openai_chat.serialize import chat_body
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.testing.wire_script import Response, event_stream
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.urls import join_url

from .streams import not_degraded
from .wire import PLAIN, ask, chat_config, run

HI = b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
ALL = [pytest.param(profile, id=profile.id) for profile in (*profiles.PROFILES.values(), DEEPSEEK)]
TOOL = ToolSchema("t", "", {"type": "object"})
HISTORY = [
    create_user_message("go"),
    create_assistant_message(
        [ReasoningBlock("hm"), ToolCallBlock(CallId("call_0123456789"), "t", "{}")], ModelSource("p", "m")
    ),
    create_tool_result_message(CallId("call_0123456789"), "ok"),
    create_user_message("and?"),
    create_user_message("well?"),
]


def body(profile: ChatProfile, **fields: Any) -> dict[str, Any]:
    said = json.loads(encode_body(chat_body(ask(**fields), profile, {}, not_degraded)))
    assert isinstance(said, dict)
    return said


@pytest.mark.parametrize("profile", ALL)
class TestEveryProfile:
    def test_makes_a_body(self, profile: ChatProfile) -> None:
        tools = {} if "tools" in profile.unsupported else {"tools": [TOOL]}
        stop = ["x"] * (profile.max_stops or 5)
        said = body(profile, max_tokens=5, stop=stop, messages=HISTORY, system="s", **tools)
        assert said["stream"] is True
        assert said[profile.max_tokens_field] == 5
        assert said["messages"][0]["role"] == profile.system_role
        assert None not in said.values()

    def test_spells_its_efforts(self, profile: ChatProfile) -> None:
        plain = body(profile)
        for effort in profile.efforts:
            said = body(profile, reasoning_effort=ReasoningEffortId(effort))
            assert said == plain | profile.efforts[effort]
            assert said != plain

    def test_takes_its_options(self, profile: ChatProfile) -> None:
        options = dict.fromkeys(profile.options, 1)
        assert body(profile, provider_options=options) == body(profile) | options

    def test_has_an_address_and_a_key(self, profile: ChatProfile) -> None:
        if profile.base_url is not None:
            assert join_url(profile.base_url, profile.path).endswith("/chat/completions")
        assert profile.key_required is (profile.key_variable is not None)


class TestQuirks:
    def test_mistral_ids_and_turns(self) -> None:
        messages = body(profiles.MISTRAL, messages=HISTORY)["messages"]
        id = messages[1]["tool_calls"][0]["id"]
        assert len(id) == 9
        assert id.isalnum()
        assert messages[2]["tool_call_id"] == id
        assert [message["role"] for message in messages[2:]] == ["tool", "assistant", "user", "user"]
        assert body(profiles.MISTRAL, tool_choice="required", tools=[TOOL])["tool_choice"] == "any"

    def test_perplexity_wants_turns_to_alternate(self) -> None:
        said = body(profiles.PERPLEXITY, messages=HISTORY[3:])["messages"]
        assert said == [{"role": "user", "content": "and?well?"}]

    @pytest.mark.parametrize(
        "name", ["openrouter", "moonshot", "zai", "fireworks", "vllm", "llama.cpp", "ollama"]
    )
    def test_reasoning_goes_back_where_it_is_wanted(self, name: str) -> None:
        profile = profiles.PROFILES[name]
        assert profile.reasoning_field is not None
        assert body(profile, messages=HISTORY)["messages"][1][profile.reasoning_field] == "hm"

    @pytest.mark.parametrize(
        ("name", "honoured"),
        [
            ("openai", {"auto", "none", "required", "named"}),
            ("vllm", {"auto", "none", "required", "named"}),
            ("llama.cpp", {"auto", "none", "required"}),
            ("lmstudio", {"auto", "none", "required"}),
            ("zai", {"auto"}),
            ("ollama", {"auto"}),
        ],
    )
    def test_L11_a_tool_choice_that_a_server_drops_or_refuses_is_refused(
        self, name: str, honoured: set[str]
    ) -> None:
        for choice in ("auto", "none", "required", "named"):
            asked = NamedTool("t") if choice == "named" else choice
            if choice in honoured:
                assert "tool_choice" in body(profiles.PROFILES[name], tools=[TOOL], tool_choice=asked)
            else:
                with pytest.raises(LlmError, match=f"tool_choice '{choice}'") as caught:
                    body(profiles.PROFILES[name], tools=[TOOL], tool_choice=asked)
                assert caught.value.code == "UNSUPPORTED_OPTION"

    @pytest.mark.parametrize(
        ("name", "most"),
        [("openai", 4), ("azure", 4), ("groq", 4), ("moonshot", 5), ("cerebras", 4), ("zai", 1)],
    )
    def test_L11_more_stop_strings_than_documented_are_refused(self, name: str, most: int) -> None:
        assert len(body(profiles.PROFILES[name], stop=["x"] * most)["stop"]) == most
        with pytest.raises(LlmError, match=f"at most {most}") as caught:
            body(profiles.PROFILES[name], stop=["x"] * (most + 1))
        assert caught.value.code == "UNSUPPORTED_OPTION"

    @pytest.mark.parametrize(
        ("name", "effort", "fields"),
        [
            ("groq", "default", {"reasoning_effort": "default"}),
            ("xai", "xhigh", {"reasoning_effort": "xhigh"}),
            ("mistral", "high", {"reasoning_effort": "high"}),
            ("openrouter", "xhigh", {"reasoning": {"effort": "xhigh"}}),
            ("moonshot", "max", {"reasoning_effort": "max"}),
            ("moonshot", "off", {"thinking": {"type": "disabled"}}),
            ("qwen", "on", {"enable_thinking": True}),
            ("zai", "max", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
            ("zai", "off", {"thinking": {"type": "disabled"}}),
            ("cerebras", "none", {"reasoning_effort": "none"}),
            ("together", "low", {"reasoning_effort": "low"}),
            ("together", "on", {"reasoning": {"enabled": True}}),
            ("fireworks", "none", {"reasoning_effort": "none"}),
            ("perplexity", "minimal", {"reasoning_effort": "minimal"}),
            ("vllm", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
            ("llama.cpp", "on", {"chat_template_kwargs": {"enable_thinking": True}}),
            ("ollama", "none", {"reasoning_effort": "none"}),
        ],
    )
    def test_efforts_are_spelled_as_each_server_documents_them(
        self, name: str, effort: str, fields: dict[str, Any]
    ) -> None:
        profile = profiles.PROFILES[name]
        assert body(profile, reasoning_effort=ReasoningEffortId(effort)) == body(profile) | fields

    @pytest.mark.parametrize(
        ("name", "url", "variable"),
        [
            ("together", "https://api.together.ai/v1", "TOGETHER_API_KEY"),
            ("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
            ("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
            ("qwen", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
            ("azure", None, "AZURE_OPENAI_API_KEY"),
        ],
    )
    def test_addresses_and_keys_are_the_documented_ones(
        self, name: str, url: str | None, variable: str
    ) -> None:
        profile = profiles.PROFILES[name]
        assert (profile.base_url, profile.key_variable) == (url, variable)

    @pytest.mark.parametrize("name", ["groq", "cerebras"])
    def test_thinking_can_be_asked_for_apart_from_the_text(self, name: str) -> None:
        options = {"reasoning_format": "parsed"}
        assert body(profiles.PROFILES[name], provider_options=options)["reasoning_format"] == "parsed"

    def test_what_a_server_has_withdrawn_is_no_option(self) -> None:
        with pytest.raises(LlmError, match="search_parameters"):
            body(profiles.XAI, provider_options={"search_parameters": {}})

    @pytest.mark.parametrize("name", ["openai", "moonshot"])
    def test_a_session_is_a_cache_key(self, name: str) -> None:
        assert body(profiles.PROFILES[name], session_id=SessionId("s-1"))["prompt_cache_key"] == "s-1"

    @pytest.mark.parametrize("name", ["openrouter", "xai", "fireworks"])
    async def test_a_session_is_a_header(self, name: str) -> None:
        profile = profiles.PROFILES[name]
        async with (
            WireServer(event_stream(HI, DONE)) as server,
            ChatAdapter(chat_config(server, profile=profile)) as adapter,
        ):
            await run(adapter, ask(session_id="s-1"))
        assert profile.session_header is not None
        assert server.requests[0].header(profile.session_header) == "s-1"

    async def test_azure_has_its_own_key_header(self) -> None:
        async with (
            WireServer(event_stream(HI, DONE)) as server,
            ChatAdapter(chat_config(server, profile=profiles.AZURE)) as adapter,
        ):
            await run(adapter)
        assert server.requests[0].header("api-key") == "sk-test-123"
        assert server.requests[0].header("authorization") is None

    @pytest.mark.parametrize("key", [None, "local"])
    async def test_local_servers_need_no_key(self, key: str | None) -> None:
        async with (
            WireServer(event_stream(HI, DONE)) as server,
            ChatAdapter(chat_config(server, profile=profiles.VLLM, api_key=key)) as adapter,
        ):
            await run(adapter)
        assert server.requests[0].header("authorization") == (f"Bearer {key}" if key else None)

    @pytest.mark.parametrize(
        ("profile", "code"), [(profiles.CEREBRAS, "CONTEXT_WINDOW_EXCEEDED"), (PLAIN, "INVALID_REQUEST")]
    )
    async def test_cerebras_says_nothing_when_it_is_too_much(self, profile: ChatProfile, code: str) -> None:
        async with (
            WireServer(Response(400, framing="length")) as server,
            ChatAdapter(chat_config(server, profile=profile)) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == code


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"off_effort": "off"}, "off"),
            ({"default_effort": "high"}, "high"),
            ({"options": {"temperature"}}, "temperature"),
            ({"options": {"thinking"}, "efforts": {"on": {"thinking": True}}}, "thinking"),
            ({"options": {"session"}, "session_field": "session"}, "session"),
            ({"tool_choices": {"any"}}, "any"),
        ],
    )
    def test_a_profile_is_consistent(self, changes: dict[str, Any], named: str) -> None:
        with pytest.raises(ValueError, match=named):
            attrs.evolve(PLAIN, **changes)


class TestInARuntime:
    async def test_D02_the_default_effort_is_supplied_at_the_boundary(self) -> None:
        async with WireServer(event_stream(HI, DONE)) as server, LlmRuntime() as runtime:
            config = chat_config(server, profile=DEEPSEEK, default_max_tokens=77)
            runtime.register_adapter("deepseek", DeepSeekAdapter(config))
            options = ask(provider="deepseek", model="deepseek-v4-pro")
            async with runtime.stream(options) as stream:
                async for _ in stream:
                    pass
            titled = attrs.evolve(options, purpose="session-title")
            async with runtime.stream(titled) as stream:
                async for _ in stream:
                    pass
        assert stream.finish == Stop()
        assert stream.message is not None
        assert stream.message.content == (TextBlock("hi"),)
        first, second = (request.json() for request in server.requests)
        assert (first["thinking"], first["reasoning_effort"]) == ({"type": "enabled"}, "high")
        assert first["max_tokens"] == 77
        assert second["thinking"] == {"type": "disabled"}

    async def test_D10_a_changed_configuration_reaches_the_next_call(self) -> None:
        async with WireServer(event_stream(HI, DONE)) as server, LlmRuntime() as runtime:
            keys = iter(["sk-1", "sk-2"])
            present = chat_config(server, api_key=lambda: next(keys))
            runtime.register_adapter("p", ChatAdapter(lambda: present))
            for _ in range(2):
                async with runtime.stream(ask()) as stream:
                    async for _chunk in stream:
                        pass
                present = attrs.evolve(present, headers={"x-new": "1"})
        assert [request.header("authorization") for request in server.requests] == [
            "Bearer sk-1",
            "Bearer sk-2",
        ]
        assert [request.header("x-new") for request in server.requests] == [None, "1"]
