"""The adapter: its headers, its models, its configuration; its streams and failures over real sockets."""

from __future__ import annotations

from typing import Any, ClassVar

import httpx
import pytest
import trio
import trio.testing

from trio_llm.model.catalogue import DiscoveredModel, ModelContext, ModelDiscoveryRequest, ResolvedModelInfo
from trio_llm.model.chunks import Error, Stop, TextDelta, TokenUsage
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import ReasoningEffortId
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.providers.anthropic import AnthropicAdapter, AnthropicConfig, AnthropicModel
from trio_llm.testing.wire_script import Cut, Hold, Pause, Repeat, Response, event_stream, json_response
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.client import HttpClient

from ..wire import RecordingSink, ask, run
from .messages import ANSWER, BENCH, begin, config, delta, frame, start, text

refusal_of, sent_with = BENCH.refusal_of, BENCH.sent_with


class TestRequest:
    async def test_the_request_line_and_its_headers(self) -> None:
        request = await sent_with()
        assert (request.method, request.target) == ("POST", "/v1/messages")
        assert request.header("x-api-key") == "sk-ant-123"
        assert request.header("authorization") is None
        assert request.header("anthropic-version") == "2023-06-01"
        assert request.header("anthropic-beta") is None
        assert request.header("accept") == "text/event-stream"
        assert request.header("content-type") == "application/json"
        assert (request.header("user-agent") or "").startswith("trio-llm/")

    async def test_a_bearer_token_betas_and_another_version(self) -> None:
        request = await sent_with(
            {"auth": "bearer", "betas": ["a-1", "b-2"], "version": "2030-01-01", "headers": {"x-team": "t"}}
        )
        assert request.header("authorization") == "Bearer sk-ant-123"
        assert request.header("x-api-key") is None
        assert request.header("anthropic-beta") == "a-1,b-2"
        assert request.header("anthropic-version") == "2030-01-01"
        assert request.header("x-team") == "t"

    @pytest.mark.parametrize("name", ["X-Api-Key", "authorization", "anthropic-beta", "Host"])
    async def test_headers_that_are_not_for_configuration(self, name: str) -> None:
        error = await refusal_of({"headers": [(name, "x")]})
        assert error.code == "INVALID_CONFIG"
        assert name in error.failure.message

    @pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/anthropic", "/anthropic/v1/messages"])
    async def test_65_the_base_url_is_a_prefix(self, path: str) -> None:
        async with WireServer(event_stream(ANSWER)) as server:
            settings = config(server, base_url=server.base_url + path)
            async with AnthropicAdapter(settings) as adapter:
                await run(adapter)
        prefix = "/anthropic" if "anthropic" in path else ""
        assert server.requests[0].target == f"{prefix}/v1/messages"

    @pytest.mark.parametrize(("auth", "variable"), [("x-api-key", "API_KEY"), ("bearer", "AUTH_TOKEN")])
    async def test_D10_the_key_comes_from_the_environment_or_is_missing(
        self, auth: str, variable: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(f"ANTHROPIC_{variable}", raising=False)
        error = await refusal_of({"api_key": None, "auth": auth})
        assert error.code == "MISSING_CREDENTIAL"
        assert f"ANTHROPIC_{variable}" in error.failure.message
        monkeypatch.setenv(f"ANTHROPIC_{variable}", "sk-env")
        request = await sent_with({"api_key": None, "auth": auth})
        assert "sk-env" in (request.header("x-api-key") or request.header("authorization") or "")

    async def test_D10_a_bad_key_is_not_echoed(self) -> None:
        error = await refusal_of({"api_key": "sk ü"})
        assert error.code == "INVALID_CREDENTIAL"
        assert "sk ü" not in str(error)

    async def test_a_limit_is_always_sent(self) -> None:
        for changes, model, limit in (
            ({}, "claude-opus-5", 128_000),
            ({}, "claude-haiku-4-5-20251001", 64_000),
            ({}, "unheard-of", 32_000),
            ({"default_max_tokens": 500}, "claude-opus-5", 500),
        ):
            assert (await sent_with(changes, model=model)).json()["max_tokens"] == limit
        assert (await sent_with(max_tokens=7)).json()["max_tokens"] == 7

    async def test_P04_refused_before_any_io(self) -> None:
        assert (await refusal_of(provider_options={"odd": 1})).code == "UNSUPPORTED_OPTION"
        effort = ReasoningEffortId("odd")
        assert (await refusal_of(reasoning_effort=effort)).code == "UNSUPPORTED_REASONING_EFFORT"
        assert (await refusal_of({"base_url": "ftp://h"})).code == "INVALID_BASE_URL"

    async def test_thinking_stays_in_the_configuration(self) -> None:
        settings = {"thinking_settings": {"display": "summarized"}}
        request = await sent_with(settings, model="claude-opus-5")
        assert request.json()["thinking"] == {"type": "adaptive", "display": "summarized"}
        request = await sent_with({"thinking": False}, model="claude-opus-5")
        assert request.json()["thinking"] == {"type": "disabled"}


class TestConfiguration:
    @pytest.mark.parametrize("changes", [{"default_max_tokens": 0}, {"auth": "none"}])
    def test_values_that_make_no_sense(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="|".join(changes)):
            AnthropicConfig(**changes)

    def test_keys_do_not_show(self) -> None:
        assert "sk-ant" not in repr(AnthropicConfig(api_key="sk-ant-123", headers={"x": "sk-ant-123"}))

    async def test_D10_a_change_reaches_the_next_call_and_none_in_flight(self) -> None:
        async with WireServer([event_stream(ANSWER), event_stream(ANSWER)]) as server:
            present = [config(server)]
            async with AnthropicAdapter(lambda: present[0]) as adapter:
                prepared = adapter.prepare_call("p")
                present[0] = config(server, api_key="sk-new")
                await prepared(ask(), RecordingSink())
                await adapter.produce(ask(), RecordingSink())
        assert [request.header("x-api-key") for request in server.requests] == ["sk-ant-123", "sk-new"]

    async def test_http_and_what_would_make_another(self) -> None:
        async with HttpClient() as http, httpx.AsyncClient() as client:
            with pytest.raises(ValueError, match="either"):
                AnthropicAdapter(http=http, client=client)
            async with AnthropicAdapter(http=http):
                pass
            async with WireServer(event_stream(ANSWER)) as server:
                async with AnthropicAdapter(config(server), http=http) as adapter:
                    await run(adapter)
                async with http.request("GET", server.base_url) as response:
                    assert response.status  # it is not closed with the adapter

    def test_retry_policy_and_timeouts(self) -> None:
        adapter = AnthropicAdapter(AnthropicConfig(retry_policy=NormalRetry(1), timeouts=Timeouts(idle=5)))
        assert adapter.provider_retry_policy("p") == NormalRetry(1)
        assert adapter.provider_timeouts("p").idle == 5
        assert adapter.provider_info("anthropic").name == "Anthropic"
        assert adapter.provider_info("mine").name == "mine"


class TestModels:
    async def test_the_catalogue(self) -> None:
        adapter = AnthropicAdapter()
        listed = adapter.list_models("p")
        assert len({model.id for model in listed}) == len(listed) > 10
        assert all(isinstance(model, ResolvedModelInfo) and model.provider == "p" for model in listed)

    async def test_what_is_known_of_a_model(self) -> None:
        model = await AnthropicAdapter().resolve_model("p", "claude-haiku-4-5@20251001")
        assert model is not None
        assert (model.id, model.name) == ("claude-haiku-4-5@20251001", "Claude Haiku 4.5")
        assert (model.context, model.default_max_tokens) == (ModelContext(200_000), 64_000)
        assert model.reasoning is not None
        assert [effort.id for effort in model.reasoning.efforts] == ["off", "low", "medium", "high"]
        assert model.reasoning.default_effort is None

    async def test_a_model_that_always_thinks(self) -> None:
        model = await AnthropicAdapter().resolve_model("p", "claude-opus-5-5")
        assert model is not None
        assert model.reasoning is not None
        assert [effort.id for effort in model.reasoning.efforts] == ["low", "medium", "high", "xhigh", "max"]
        silent = await AnthropicAdapter(AnthropicConfig(thinking=False)).resolve_model("p", "claude-opus-5-5")
        assert silent is not None
        assert silent.reasoning is None

    async def test_a_deployment_without_thinking_offers_off_alone(self) -> None:
        model = await AnthropicAdapter(AnthropicConfig(thinking=False)).resolve_model("p", "claude-opus-5")
        assert model is not None
        assert model.reasoning is not None
        assert [effort.id for effort in model.reasoning.efforts] == ["off"]
        assert model.reasoning.default_effort == "off"

    async def test_models_of_ones_own(self) -> None:
        own = AnthropicModel("m", efforts=("high",), default_effort="high", off=None, max_output_tokens=9)
        adapter = AnthropicAdapter(AnthropicConfig(models=[own, "claude-opus-5"]))
        assert [model.name for model in adapter.list_models("p")] == ["m", "Claude Opus 5"]
        model = await adapter.resolve_model("p", "m")
        assert model is not None
        assert model.reasoning is not None
        assert (model.reasoning.default_effort, model.default_max_tokens) == ("high", 9)


class TestFailures:
    async def test_D08_overloaded(self) -> None:
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        answer = json_response(error, 529, (("request-id", "req_1"), ("retry-after", "3")))
        async with WireServer(answer) as server, AnthropicAdapter(config(server)) as adapter:
            _, stream = await run(adapter)
        assert stream.finish == Error(LlmFailure("Overloaded", "SERVER", 529, 3000, "req_1"))  # type: ignore[arg-type]  # the id's NewType

    async def test_a_whole_answer_is_an_answer(self) -> None:
        answer = {
            "type": "message",
            "id": "msg_1",
            "content": [{"type": "text", "text": "hi"}],
            "stop_reason": "end_turn",
        }
        async with WireServer(json_response(answer)) as server, AnthropicAdapter(config(server)) as adapter:
            chunks, stream = await run(adapter)
        assert stream.finish == Stop(raw="end_turn")
        assert TextDelta(0, "hi") in chunks

    @pytest.mark.parametrize("value", [{"ok": True}, {"content": [], "stop_reason": None}, [1]])
    async def test_other_json_is_none(self, value: Any) -> None:
        async with WireServer(json_response(value)) as server, AnthropicAdapter(config(server)) as adapter:
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "MALFORMED_RESPONSE"

    async def test_early_usage_shows_when_the_attempt_does_not_end_well(self) -> None:
        body = start({"input_tokens": 4, "output_tokens": 1}) + text(0, "hi")
        async with (
            WireServer(event_stream(body, Cut())) as server,
            AnthropicAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert stream.settlement is not None
        assert (stream.settlement.usage, stream.settlement.usage_state) == (TokenUsage(4, 1), "early")
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "TRANSPORT"

    async def test_pings_are_no_progress(self, autojump_clock: trio.testing.MockClock) -> None:
        ping = frame({"type": "ping"})
        steps = (start(), Repeat((ping, Pause(1)), 100))
        async with WireServer(event_stream(*steps)) as server, AnthropicAdapter(config(server)) as adapter:
            _, stream = await run(adapter, ask(timeouts=Timeouts(idle=3, progress=10)))
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "TIMEOUT"
        assert "progress" in stream.finish.failure.message

    async def test_D09_aborted_in_the_middle_closes_the_socket(self) -> None:
        await BENCH.check_abort(start() + begin(0, type="text", text="") + delta(0, "text_delta", text="a"))

    async def test_a_body_cut_at_any_byte_is_one_clear_failure_and_keeps_what_came(self) -> None:
        body = (
            b'data: {"type":"message_start","message":{"id":"m"}}\n\n'
            b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
            b'data: {"type":"content_block_delta","index":0,"delta":{"text":"one"}}\n\n'
            b'data: {"type":"content_block_delta","index":0,"delta":{"text":"two"}}\n\n'
            b'data: {"type":"content_block_stop","index":0}\n\n'
            b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
            b'data: {"type":"message_stop"}\n\n'
        )
        await BENCH.check_cuts(body, b"\n\n")

    async def test_degraded_replay_state_is_told_to_the_runtimes_hook(self) -> None:
        await BENCH.check_degraded()


class TestSecrets:
    async def test_an_error_event_that_repeats_the_key_has_it_blacked_out(self) -> None:
        error = frame({"type": "error", "error": {"type": "api_error", "message": "bad key sk-ant-123"}})
        async with (
            WireServer(event_stream(start() + error)) as server,
            AnthropicAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.message == "bad key [redacted]"


class TestEventSize:
    async def test_an_oversized_event_by_the_configurations_measure(self) -> None:
        body = start() + text(0, "a") + text(1, "x" * 900)
        async with (
            WireServer(event_stream(body)) as server,
            AnthropicAdapter(config(server, max_event_size=800)) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "MALFORMED_RESPONSE"
        assert "800 bytes" in stream.finish.failure.message
        assert stream.partial == (TextBlock("a"),)


class TestDiscovery:
    CAPABILITIES: ClassVar = {
        "image_input": {"supported": True},
        "pdf_input": {"supported": True},
        "thinking": {"supported": True, "types": {"adaptive": {"supported": True}}},
    }
    ROWS = (
        {"id": "claude-a", "display_name": "A", "max_input_tokens": 1000, "max_tokens": 100},
        {"id": "claude-b", "display_name": "", "max_input_tokens": 0, "max_tokens": "many"},
        {"id": "claude-see", "capabilities": CAPABILITIES},
        {"id": "claude-read", "capabilities": {**CAPABILITIES, "pdf_input": {"supported": False}}},
        {"id": "claude-odd", "capabilities": {"image_input": True, "pdf_input": {"supported": 1}}},
        {"id": "claude-gone", "lifecycle": "retired"},
        {"id": ""},
        {"display_name": "no id"},
        "no row",
    )

    async def test_P10_the_list_of_the_configured_endpoint(self) -> None:
        found, request = await BENCH.discovered(json_response({"data": self.ROWS}))
        assert found == [
            DiscoveredModel("claude-a", "A", 1000, 100),
            DiscoveredModel("claude-b"),
            DiscoveredModel("claude-see", input_modalities=["text", "image", "pdf"], reasoning=True),
            DiscoveredModel("claude-read", input_modalities=["text", "image"], reasoning=True),
            DiscoveredModel("claude-odd"),
        ]
        assert (request.method, request.target) == ("GET", "/v1/models?limit=1000")
        assert request.header("x-api-key") == "sk-ant-123"
        assert request.header("anthropic-version") == "2023-06-01"

    async def test_P10_another_endpoint_keeps_its_prefix_and_gets_its_own_key(self) -> None:
        _, request = await BENCH.discovered(json_response({"data": []}), "/prefix/v1", api_key="sk-other")
        assert request.target == "/prefix/v1/models?limit=1000"
        assert request.header("x-api-key") == "sk-other"

    async def test_P05_the_configured_key_never_goes_elsewhere(self) -> None:
        _, request = await BENCH.discovered(json_response({"data": []}), "/else")
        assert request.header("x-api-key") is None

    async def test_a_key_for_this_once(self) -> None:
        async with (
            WireServer(json_response({"data": []})) as server,
            AnthropicAdapter(config(server)) as adapter,
        ):
            await adapter.discover(ModelDiscoveryRequest(provider="p", api_key="sk-once"))
        assert server.requests[0].header("x-api-key") == "sk-once"

    @pytest.mark.parametrize(
        ("answer", "code", "hint"),
        [
            (
                json_response({"error": {"type": "authentication_error", "message": "bad"}}, 401),
                "DISCOVERY_FAILED",
                True,
            ),
            (json_response({"error": {"message": "no"}}, 403), "DISCOVERY_FAILED", True),
            (json_response({"error": {"message": "busy"}}, 529), "DISCOVERY_FAILED", False),
            (json_response({"error": {"message": "what?"}}, 404), "DISCOVERY_UNSUPPORTED", False),
            (json_response([1]), "DISCOVERY_FAILED", False),
            (json_response({"models": []}), "DISCOVERY_FAILED", False),
            (Response(200, {}, b"<html>"), "DISCOVERY_FAILED", False),
            (Response(200, {}, [b"{", Cut()]), "DISCOVERY_FAILED", False),
            (Response(200, {}, [b" " * 4_200_000]), "DISCOVERY_FAILED", False),
        ],
    )
    async def test_P10_failures(self, answer: Response, code: str, hint: bool) -> None:
        with pytest.raises(LlmError) as caught:
            await BENCH.discovered(answer)
        assert caught.value.code == code
        assert ("check the API key" in caught.value.failure.message) is hint

    async def test_P10_cancelling_closes_the_socket(self) -> None:
        async with (
            WireServer(Response(200, {}, [b"{", Hold()])) as server,
            AnthropicAdapter(config(server)) as adapter,
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(adapter.discover, ModelDiscoveryRequest(provider="p"))
                await server.wait_request()
                nursery.cancel_scope.cancel()
            with trio.fail_after(5):
                await (await server.wait_connection()).gone.wait()
