"""What goes out: messages, settings, headers, and what is refused before anything does."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from trio_llm.model import codes
from trio_llm.model.chunks import Error, Finish
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
from trio_llm.model.identifiers import CallId
from trio_llm.model.identity import AppIdentity
from trio_llm.model.messages import (
    ModelSource,
    UserSource,
    create_assistant_message,
    create_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.requests import NamedTool, ResponseFormat, ToolSchema
from trio_llm.providers.pydantic_ai import PydanticAiAdapter, PydanticAiConfig, PydanticAiModel
from trio_llm.providers.pydantic_ai.library import PROVIDERS, REFUSED, load_library, make_model
from trio_llm.providers.pydantic_ai.serialize import model_messages
from trio_llm.testing.wire_script import Cut, Response, event_stream
from trio_llm.testing.wire_server import WireRequest, WireServer
from trio_llm.transport.credentials import EnvironmentVariable

from ..wire import RecordingSink, ask, run
from .support import ANSWER, KEY, adapter_for, needs_library

__all__ = ["needs_library"]

SOURCE = ModelSource("other", "m")
PNG = Attachment.from_bytes(b"png", "image/png")
TOOL = ToolSchema("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})


async def sent(options: Mapping[str, Any], provider: str = "openai-chat", **config: Any) -> WireRequest:
    """The request that some options make."""
    async with (
        WireServer([event_stream(*ANSWER)]) as server,
        adapter_for(server, provider, **config) as adapter,
    ):
        await run(adapter, ask(**options))
    (request,) = server.requests
    return request


async def refused(options: Mapping[str, Any], provider: str = "openai-chat", **config: Any) -> str:
    """The code with which some options are refused; nothing is sent."""
    async with WireServer() as server, adapter_for(server, provider, **config) as adapter:
        chunks, _ = await run(adapter, ask(**options))
    assert server.connections == []
    (finish,) = chunks
    assert isinstance(finish, Finish)
    assert isinstance(finish.reason, Error)
    return finish.reason.failure.code


async def test_settings_go_out_under_their_wire_names() -> None:
    request = await sent(
        {
            "system": "Be brief.",
            "tools": [TOOL],
            "tool_choice": NamedTool("look"),
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 7,
            "stop": ["END"],
            "reasoning_effort": None,
            "provider_options": {"seed": 3, "parallel_tool_calls": False},
            "session_id": "s",
            "purpose": "compaction",
        }
    )
    body = request.json()
    assert request.target == "/chat/completions"
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    assert body["tools"][0]["function"]["parameters"] == dict(TOOL.parameters)
    # The library forces a named tool its own way; with a single one this is the same.
    assert body["tool_choice"] == "required"
    assert (body["temperature"], body["top_p"], body["seed"], body["stop"]) == (0.5, 0.9, 3, ["END"])
    assert 7 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert body["parallel_tool_calls"] is False
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


async def test_a_named_tool_is_forced_among_others() -> None:
    other = ToolSchema("other", "Does else.", {"type": "object"})
    body = (await sent({"tools": [TOOL, other], "tool_choice": NamedTool("look")})).json()
    choice = body["tool_choice"]
    assert choice != "auto"
    assert "other" not in str(choice)
    assert "look" in str(choice) or [tool["function"]["name"] for tool in body["tools"]] == ["look"]


async def test_a_response_format_goes_out_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    body = (await sent({"model": "gpt-4o", "response_format": ResponseFormat(schema, name="answer")})).json()
    assert body["response_format"]["type"] == "json_schema"
    assert body["response_format"]["json_schema"]["name"] == "answer"
    assert body["response_format"]["json_schema"]["schema"]["properties"] == schema["properties"]


async def test_a_declared_effort_goes_out() -> None:
    models = [PydanticAiModel("gpt-5", efforts=["low", "high"], default_effort="low")]
    body = (await sent({"model": "gpt-5", "reasoning_effort": "high"}, models=models)).json()
    assert body["reasoning_effort"] == "high"


async def test_P04_an_effort_that_is_not_declared_is_refused() -> None:
    assert await refused({"reasoning_effort": "high"}) == codes.UNSUPPORTED_REASONING_EFFORT
    models = [PydanticAiModel("m", efforts=["low"])]
    assert await refused({"reasoning_effort": "high"}, models=models) == codes.UNSUPPORTED_REASONING_EFFORT


@pytest.mark.parametrize(
    ("options", "provider", "code"),
    [
        ({"provider_options": {"extra_body": {"model": "other"}}}, "openai-chat", codes.UNSUPPORTED_OPTION),
        ({"provider_options": {"top_k": 3}}, "openai-chat", codes.UNSUPPORTED_OPTION),
        ({"stop": ["END"]}, "openai-responses", codes.UNSUPPORTED_OPTION),
        ({}, "mistral", codes.UNKNOWN_MODEL),
        ({}, "nobody", codes.UNKNOWN_MODEL),
    ],
)
async def test_P04_refused_before_any_request(options: dict[str, Any], provider: str, code: str) -> None:
    assert await refused(options, provider) == code


async def test_P04_an_unknown_route_has_no_adapter() -> None:
    async with PydanticAiAdapter({"p": PydanticAiConfig(provider="openai-chat")}) as adapter:
        with pytest.raises(LlmError) as caught:
            adapter.prepare_call("q")
    assert caught.value.code == codes.NO_ADAPTER


@pytest.mark.parametrize("role", ["system", "assistant"])
async def test_P04_images_stand_in_user_messages_alone(role: Any) -> None:
    message = create_message(role, [ImageBlock(PNG)], UserSource())
    assert await refused({"messages": [message]}) == codes.UNSUPPORTED_CONTENT


async def test_P04_an_image_needs_a_type() -> None:
    image = ImageBlock(attrs.evolve(PNG, media_type=None))
    assert await refused({"messages": [create_user_message([image])]}) == codes.UNSUPPORTED_CONTENT


async def test_P04_a_base_url_is_checked() -> None:
    assert await refused({}, base_url="ftp://x") == codes.INVALID_BASE_URL


async def test_images_go_out_in_their_place() -> None:
    content: list[ContentBlock] = [
        TextBlock("see"),
        ImageBlock(PNG),
        ImageBlock(Attachment.from_url("https://x.test/a.png")),
    ]
    body = (await sent({"messages": [create_user_message(content)]})).json()
    text, data, url = body["messages"][0]["content"]
    assert text == {"type": "text", "text": "see"}
    assert data["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(b"png").decode()
    assert url["image_url"]["url"] == "https://x.test/a.png"


async def test_P08_the_history_is_mended() -> None:
    messages = [
        create_message("system", "Later rule.", UserSource()),
        create_user_message("go"),
        create_assistant_message(
            [
                ReasoningBlock("hm"),
                TextBlock("I look."),
                ToolCallBlock(CallId("c1"), "look", '{ "at" : "x" }'),
                ToolCallBlock(CallId("c2"), "look", '{"at": "cu'),
                ToolCallBlock(CallId("c3"), "look", ""),
                ToolCallBlock(CallId("c4"), "look", "[1]"),
            ],
            SOURCE,
        ),
        create_tool_result_message(CallId("c1"), "found"),
        create_tool_result_message(CallId("c2"), [], is_error=False),
        create_tool_result_message(CallId("c3"), "no", is_error=True),
        create_tool_result_message(CallId("c4"), "four"),
        create_tool_result_message(CallId("lost"), "whose?"),
    ]
    body = (await sent({"messages": messages})).json()
    assistant = next(message for message in body["messages"] if message["role"] == "assistant")
    assert assistant["content"] == "I look."
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == [
        '{"at":"x"}',
        "{}",
        "{}",
        "{}",
    ]
    results = [message for message in body["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == ["c1", "c2", "c3", "c4", "lost"]
    assert results[0]["content"] == "found"
    assert results[1]["content"] == "(no output)"


async def test_P08_an_unmatched_result_is_named_unknown() -> None:
    options = ask(messages=[create_user_message("x"), create_tool_result_message(CallId("lost"), "whose?")])
    written = model_messages(load_library(), options, {}, lambda *told: None, particular=False)
    assert [part.tool_name for part in written[-1].parts] == ["unknown"]


async def test_lone_surrogates_become_replacement_characters() -> None:
    body = (await sent({"system": "a\ud800", "messages": [create_user_message("b\udc00")]})).json()
    assert [message["content"] for message in body["messages"]] == ["a\ufffd", "b\ufffd"]


async def test_a_result_holds_text_and_images() -> None:
    call = ToolCallBlock(CallId("c1"), "look", "{}")
    result = ToolResultBlock(CallId("c1"), [TextBlock("this"), ImageBlock(PNG)])
    messages = [create_assistant_message([call], SOURCE), create_user_message([result])]
    body = (await sent({"messages": messages})).body
    assert base64.b64encode(b"png") in body


async def test_P02_attribution_wins_over_configured_headers() -> None:
    request = await sent({}, headers={"User-Agent": "me", "X-Team": "blue"})
    assert request.header("user-agent") == f"trio-llm/{AppIdentity().version}"
    assert request.header("x-team") == "blue"
    assert not [name for name, _ in request.headers if name.startswith("x-stainless")]


async def test_P02_the_wires_own_headers_are_not_for_configuration() -> None:
    assert await refused({}, headers={"Authorization": "Bearer other"}) == codes.INVALID_CONFIG


AMBIENT = {
    "OPENAI_API_KEY": "sk-ambient",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/ambient",
    "OPENAI_ORG_ID": "org-ambient",
    "OPENAI_PROJECT_ID": "proj-ambient",
    "OPENAI_CUSTOM_HEADERS": "x-ambient: yes",
    "ANTHROPIC_API_KEY": "sk-ambient",
    "ANTHROPIC_AUTH_TOKEN": "ambient-token",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/ambient",
    "ANTHROPIC_CUSTOM_HEADERS": "x-ambient: yes",
    "CO_API_KEY": "sk-ambient",
    "CO_BASE_URL": "http://127.0.0.1:9/ambient",
    "GEMINI_API_KEY": "sk-ambient",
    "GOOGLE_API_KEY": "sk-ambient",
    "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9/ambient",
    "GROQ_API_KEY": "sk-ambient",
    "GROQ_BASE_URL": "http://127.0.0.1:9/ambient",
    "GROQ_CUSTOM_HEADERS": "x-ambient: yes",
}


@pytest.fixture
def ambient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AMBIENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "provider", ["openai-chat", "openai-responses", "anthropic", "groq", "google", "cohere"]
)
async def test_P05_a_missing_key_never_falls_back(provider: str, ambient: None) -> None:
    key = EnvironmentVariable("TRIO_LLM_TEST_NO_SUCH_KEY")
    assert await refused({}, provider, api_key=key) == codes.MISSING_CREDENTIAL
    assert await refused({}, provider, api_key=lambda: "") == codes.MISSING_CREDENTIAL


@pytest.mark.parametrize(
    "provider", ["openai-chat", "openai-responses", "anthropic", "groq", "google", "cohere"]
)
async def test_P05_nothing_of_the_environment_is_sent(provider: str, ambient: None) -> None:
    request = await sent({}, provider)
    assert not [value for _, value in request.headers if "ambient" in value]
    assert not [name for name, _ in request.headers if "ambient" in name]
    known = PROVIDERS[provider].key_header
    assert request.header(known[0]) == known[1] + KEY
    assert b"ambient" not in request.body


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_P05_the_environment_names_no_address(
    provider: str, ambient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = pytest.importorskip(PROVIDERS[provider].http)
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:9/ambient")
    model = make_model(provider, "upstream/m", None, http.AsyncClient(timeout=None))
    assert "ambient" not in str(model.base_url)
    if PROVIDERS[provider].retries == "client":
        assert model.client.max_retries == 0


def test_what_is_refused_is_not_served() -> None:
    assert not REFUSED.keys() & PROVIDERS.keys()


async def test_P03_a_call_runs_on_the_snapshot_it_was_prepared_with() -> None:
    routes = {"p": PydanticAiConfig(provider="openai-chat", api_key="first", models=["m1"])}
    async with WireServer([event_stream(*ANSWER)] * 2) as server:
        routes["p"] = attrs.evolve(routes["p"], base_url=server.base_url)
        async with PydanticAiAdapter(lambda: routes) as adapter:
            pinned = adapter.prepare_call("p")
            routes["p"] = attrs.evolve(routes["p"], api_key="second", models=["m2"])
            await pinned(ask(), RecordingSink())
            await run(adapter)
            assert [model.id for model in adapter.list_models("p")] == ["m2"]
    assert [request.header("authorization") for request in server.requests] == [
        "Bearer first",
        "Bearer second",
    ]


async def test_a_route_without_a_key_sends_none() -> None:
    request = await sent({}, "ollama", api_key=None)
    assert request.header("authorization") is None


async def test_the_catalogue_is_what_is_configured() -> None:
    model = PydanticAiModel("m", context_window=1000, efforts=["off", "high"], default_effort="high")
    config = PydanticAiConfig(provider="openai-chat", models=[model, "n"])
    async with PydanticAiAdapter({"p": config}) as adapter:
        assert [listed.id for listed in adapter.list_models("p")] == ["m", "n"]
        known = await adapter.resolve_model("p", "m")
        other = await adapter.resolve_model("p", "x")
        assert adapter.provider_retry_policy("p") is None
    assert known is not None
    assert known.context is not None
    assert known.context.context_window == 1000
    assert known.reasoning is not None
    assert known.reasoning.default_effort == "high"
    assert other is not None
    assert other.reasoning is None


@pytest.mark.parametrize(
    "fields",
    [{"efforts": ["huge"]}, {"efforts": ["low"], "default_effort": "high"}, {"context_window": 0}],
)
def test_a_model_checks_itself(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"effort|count"):
        PydanticAiModel("m", **fields)


async def test_P06_an_error_whose_body_breaks_keeps_its_status() -> None:
    answer = Response(503, (), (b"half", Cut()), framing="length", content_length=100)
    async with WireServer([answer]) as server, adapter_for(server) as adapter:
        chunks, _ = await run(adapter)
    assert isinstance(chunks[-1], Finish)
    assert isinstance(chunks[-1].reason, Error)
    assert chunks[-1].reason.failure.code == codes.SERVER


async def test_P04_a_name_that_the_library_refuses_is_no_model() -> None:
    assert await refused({"model": "m"}, "openrouter", base_url=None) == codes.UNKNOWN_MODEL


async def test_P04_a_missing_sdk_or_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "groq", None)
    monkeypatch.delitem(sys.modules, "pydantic_ai.providers.groq", raising=False)
    assert await refused({}, "groq") == codes.INVALID_CONFIG
    load_library.cache_clear()
    monkeypatch.setitem(sys.modules, "pydantic_ai.direct", None)
    try:
        assert await refused({}) == codes.INVALID_CONFIG
    finally:
        load_library.cache_clear()


async def test_what_has_no_place_is_passed_over() -> None:
    unknown = UnknownBlock("odd", {})
    messages = [
        create_message("system", [unknown], UserSource()),
        create_user_message([unknown]),
        create_assistant_message([ReasoningBlock("elsewhere")], SOURCE),
        create_user_message("hi"),
    ]
    body = (await sent({"messages": messages})).json()
    assert body["messages"] == [{"role": "user", "content": "hi"}]


async def test_one_configuration_serves_every_route() -> None:
    config = PydanticAiConfig(provider="openai-chat", models=["m"])
    for routes in (config, lambda: config):
        async with PydanticAiAdapter(routes) as adapter:
            assert [model.provider for model in adapter.list_models("q")] == ["q"]
