"""Asking a server of the chat wire which models it has."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from trio_llm.model.catalogue import DiscoveredModel, ModelDiscoveryRequest
from trio_llm.model.failures import LlmError
from trio_llm.model.signal import AbortSignal
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
from trio_llm.providers.model_list import LIST_LIMIT
from trio_llm.providers.openai_chat import ChatAdapter
from trio_llm.providers.openai_chat.profiles import AZURE, VLLM
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.testing.wire_script import Cut, Hold, Repeat, Response, json_response
from trio_llm.testing.wire_server import WireRequest, WireServer

from .wire import PLAIN, chat_config

ROWS: list[tuple[Any, DiscoveredModel | None]] = [
    ({"id": "gpt", "object": "model", "owned_by": "openai"}, DiscoveredModel("gpt")),
    (
        {
            "id": "a/b",
            "name": "A: B",
            "context_length": 1000,
            "top_provider": {"context_length": 900, "max_completion_tokens": 100},
        },
        DiscoveredModel("a/b", "A: B", 1000, 100),
    ),
    (
        {"id": "a/none", "context_length": None, "top_provider": {"max_completion_tokens": None}},
        DiscoveredModel("a/none"),
    ),
    (
        {"id": "groq", "context_window": 131_072, "max_completion_tokens": 8_192},
        DiscoveredModel("groq", None, 131_072, 8_192),
    ),
    (
        {
            "id": "a/sees",
            "architecture": {"input_modalities": ["text", "image", 3], "output_modalities": ["text"]},
            "supported_parameters": ["tools", "temperature"],
        },
        DiscoveredModel("a/sees", None, None, None, ["text", "image"], tools=True, reasoning=False),
    ),
    (
        {"id": "fireworks", "supports_chat": True, "supports_image_input": False, "supports_tools": True},
        DiscoveredModel("fireworks", input_modalities=["text"], tools=True),
    ),
    (
        {"id": "pixtral", "capabilities": {"vision": True, "function_calling": False}},
        DiscoveredModel("pixtral", input_modalities=["text", "image"], tools=False),
    ),
    ({"id": "odd", "architecture": {"input_modalities": []}, "supports_tools": 1}, DiscoveredModel("odd")),
    ({"id": "vllm", "max_model_len": 4096}, DiscoveredModel("vllm", None, 4096)),
    (
        {"id": "mistral", "max_context_length": 32_768, "capabilities": {"completion_chat": True}},
        DiscoveredModel("mistral", None, 32_768),
    ),
    (
        {"id": "together", "display_name": "T", "context_length": 8_192},
        DiscoveredModel("together", "T", 8_192),
    ),
    ({"id": "llama.cpp", "meta": {"n_ctx_train": 32_768}}, DiscoveredModel("llama.cpp")),
    (
        {"id": "wrong", "name": 1, "context_length": "8k", "max_completion_tokens": 0, "top_provider": "x"},
        DiscoveredModel("wrong"),
    ),
    ({"id": "untrue", "context_length": True, "max_model_len": -1}, DiscoveredModel("untrue")),
    ({"id": "embed", "capabilities": {"completion_chat": False}}, None),
    ({"id": "image", "supports_chat": False}, None),
    ({"id": ""}, None),
    ({"id": 7}, None),
    ({"name": "x"}, None),
    ("x", None),
    (None, None),
]


async def ask_for(
    answer: Response, prefix: str | None = None, *, rest: dict[str, Any] | None = None, **config: Any
) -> tuple[list[DiscoveredModel], WireRequest]:
    """What the adapter finds, and the request it sent."""
    request = dict(rest or {})
    async with WireServer(answer) as server, ChatAdapter(chat_config(server, **config)) as adapter:
        if prefix is not None:
            request["base_url"] = server.base_url + prefix
        found = await adapter.discover(ModelDiscoveryRequest(**{"provider": "p"} | request))
    return found, server.requests[0]


@pytest.mark.parametrize(("row", "model"), ROWS)
async def test_P10_a_row_says_what_it_says_and_unusable_ones_are_skipped(
    row: Any, model: DiscoveredModel | None
) -> None:
    last = DiscoveredModel("last")
    found, _ = await ask_for(json_response({"object": "list", "data": [row, {"id": "last"}]}))
    assert found == ([last] if model is None else [model, last])


async def test_P10_the_configured_endpoint_gets_the_configured_key_and_headers() -> None:
    found, request = await ask_for(json_response({"data": []}), headers={"x-team": "a"})
    assert found == []
    assert (request.method, request.target) == ("GET", "/models")
    assert request.header("authorization") == "Bearer sk-test-123"
    assert request.header("x-team") == "a"
    assert (request.header("user-agent") or "").startswith("trio-llm/")
    assert request.header("content-type") is None


async def test_P10_a_list_by_itself_and_a_list_that_is_null() -> None:
    assert (await ask_for(json_response([{"id": "m"}])))[0] == [DiscoveredModel("m")]
    assert (await ask_for(json_response({"data": None})))[0] == []


async def test_P10_another_endpoint_keeps_its_prefix_and_gets_its_own_key() -> None:
    answer = json_response({"data": []})
    _, request = await ask_for(answer, "/prefix/v1/", rest={"api_key": "sk-other"}, headers={"x-team": "a"})
    assert request.target == "/prefix/v1/models"
    assert request.header("authorization") == "Bearer sk-other"
    assert request.header("x-team") is None


async def test_P05_the_configured_key_never_goes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN_API_KEY", "sk-ambient")
    profile = attrs.evolve(PLAIN, key_variable="PLAIN_API_KEY")
    _, request = await ask_for(json_response({"data": []}), "/else", profile=profile)
    assert request.header("authorization") is None


async def test_a_key_for_this_once_and_a_server_without_keys() -> None:
    _, request = await ask_for(json_response({"data": []}), rest={"api_key": "sk-once"})
    assert request.header("authorization") == "Bearer sk-once"
    _, request = await ask_for(json_response({"data": []}), profile=VLLM, api_key=None)
    assert request.header("authorization") is None


@pytest.mark.parametrize(
    ("answer", "code", "hint"),
    [
        (json_response({"error": {"message": "bad key sk-test-123"}}, 401), "DISCOVERY_FAILED", True),
        (json_response({"error": {"message": "no"}}, 403), "DISCOVERY_FAILED", True),
        (json_response({"error": {"message": "busy"}}, 429), "DISCOVERY_FAILED", False),
        (json_response({"error": {"message": "oops"}}, 500), "DISCOVERY_FAILED", False),
        (json_response({"detail": "Not Found"}, 404), "DISCOVERY_UNSUPPORTED", False),
        (json_response({"detail": "Method Not Allowed"}, 405), "DISCOVERY_UNSUPPORTED", False),
        (json_response({"models": []}), "DISCOVERY_FAILED", False),
        (json_response({"data": {"id": "m"}}), "DISCOVERY_FAILED", False),
        (json_response("x"), "DISCOVERY_FAILED", False),
        (Response(200, {}, b"<html>"), "DISCOVERY_FAILED", False),
        (Response(204, {}, (), framing="none"), "DISCOVERY_FAILED", False),
        (Response(302, {"location": "http://127.0.0.1:9/"}, b""), "DISCOVERY_FAILED", False),
        (Response(200, {}, [b'{"data":[', Cut()]), "DISCOVERY_FAILED", False),
    ],
)
async def test_P10_failures(answer: Response, code: str, hint: bool) -> None:
    with pytest.raises(LlmError) as caught:
        await ask_for(answer)
    assert caught.value.code == code
    assert ("check the API key" in caught.value.failure.message) is hint
    assert "sk-test-123" not in str(caught.value)


async def test_P10_a_list_of_exactly_the_limit_is_read_and_one_byte_more_is_not() -> None:
    text = b'{"data":[{"id":"m"}]}'
    whole = text + b" " * (LIST_LIMIT - len(text))
    found, _ = await ask_for(Response(200, {}, [whole]))
    assert found == [DiscoveredModel("m")]
    with pytest.raises(LlmError) as caught:
        await ask_for(Response(200, {}, [whole + b" "]))
    assert caught.value.code == "DISCOVERY_FAILED"


async def test_P10_an_endless_list_is_left_at_the_limit() -> None:
    endless = Response(200, {}, [b'{"data":[', Repeat([b" " * 65_536])])
    async with WireServer(endless) as server, ChatAdapter(chat_config(server)) as adapter:
        with pytest.raises(LlmError) as caught:
            await adapter.discover(ModelDiscoveryRequest(provider="p"))
        with trio.fail_after(5):
            await (await server.wait_connection()).gone.wait()
    assert caught.value.code == "DISCOVERY_FAILED"


async def test_P10_nobody_listens_there(autojump_clock: object) -> None:
    async with WireServer(json_response({})) as server:
        gone = server.base_url
    async with ChatAdapter(chat_config(server, base_url=gone)) as adapter:
        with pytest.raises(LlmError) as caught:
            await adapter.discover(ModelDiscoveryRequest(provider="p"))
    assert caught.value.code == "DISCOVERY_FAILED"


async def test_P10_a_signal_ends_it_as_aborted_and_closes_the_socket() -> None:
    signal = AbortSignal()
    async with (
        WireServer(Response(200, {}, [b'{"data":[', Hold()])) as server,
        LlmRuntime() as llm,
        ChatAdapter(chat_config(server)) as adapter,
    ):
        llm.register_model_discovery("openai-chat", adapter.discover)
        request = ModelDiscoveryRequest(base_url=server.base_url, signal=signal)

        async def abort() -> None:
            await server.wait_request()
            signal.abort("enough")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(abort)
            with pytest.raises(LlmError) as caught:
                await llm.discover_models("openai-chat", request)
        with trio.fail_after(5):
            await (await server.wait_connection()).gone.wait()
    assert caught.value.code == "ABORTED"
    assert "enough" in str(caught.value)


async def test_P10_through_the_runtime_a_repeated_id_comes_once() -> None:
    rows = json_response({"data": [{"id": "b"}, {"id": "a", "context_length": 5}, {"id": "b"}]})
    async with WireServer(rows) as server, LlmRuntime() as llm, ChatAdapter(chat_config(server)) as adapter:
        llm.register_model_discovery("openai-chat", adapter.discover)
        request = ModelDiscoveryRequest(base_url=server.base_url + "/v1", api_key="sk-theirs")
        found = await llm.discover_models("openai-chat", request)
    assert found == (DiscoveredModel("b"), DiscoveredModel("a", None, 5))
    assert server.requests[0].header("authorization") == "Bearer sk-theirs"


async def test_P10_deepseek_asks_the_same_way() -> None:
    async with (
        WireServer(json_response({"data": [{"id": "deepseek-v4-pro"}]})) as server,
        DeepSeekAdapter(DeepSeekConfig(api_key="sk-1", base_url=server.base_url)) as adapter,
    ):
        assert await adapter.discover(ModelDiscoveryRequest()) == [DiscoveredModel("deepseek-v4-pro")]


async def test_a_deployment_without_an_address_and_a_header_that_is_not_to_be_set() -> None:
    async with WireServer(json_response({})) as server:
        for config, code in (
            (chat_config(server, profile=AZURE, base_url=None), "INVALID_BASE_URL"),
            (chat_config(server, headers={"Authorization": "x"}), "INVALID_CONFIG"),
            (chat_config(server, api_key="a\nb"), "INVALID_CREDENTIAL"),
        ):
            async with ChatAdapter(config) as adapter:
                with pytest.raises(LlmError) as caught:
                    await adapter.discover(ModelDiscoveryRequest(provider="p"))
                assert caught.value.code == code
        assert server.requests == []
