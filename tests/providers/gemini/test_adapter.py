"""The adapter: its requests, models and configuration; its streams and failures over real sockets."""

from __future__ import annotations

from typing import Any

import pytest

from trio_llm.model.catalogue import DiscoveredModel, ModelContext, ResolvedModelInfo
from trio_llm.model.chunks import Error, Stop, TextDelta, TokenUsage
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import ReasoningEffortId
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.providers.gemini import GeminiAdapter, GeminiConfig, GeminiModel
from trio_llm.testing.wire_script import Cut, Reset, Response, event_stream, json_response
from trio_llm.testing.wire_server import WireServer

from ..wire import RecordingSink, ask, run
from .events import ANSWER, BENCH, config, event, frame, text

refusal_of, sent_with, failure_of = BENCH.refusal_of, BENCH.sent_with, BENCH.failure_of


class TestRequest:
    async def test_the_key_stands_in_a_header_and_never_in_the_url(self) -> None:
        request = await sent_with(model="gemini-3-flash-preview")
        assert (request.method, request.target) == (
            "POST",
            "/v1beta/models/gemini-3-flash-preview:streamGenerateContent?alt=sse",
        )
        assert request.header("x-goog-api-key") == "AIza-123"
        assert request.header("authorization") is None
        assert request.header("accept") == "text/event-stream"
        assert request.header("content-type") == "application/json"
        assert (request.header("user-agent") or "").startswith("trio-llm/")
        assert request.json()["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]

    async def test_vertex_ai(self) -> None:
        async with WireServer(event_stream(ANSWER)) as server:
            base = server.base_url + "/v1/projects/P/locations/L/publishers/google"
            settings = config(server, base_url=base, api_version="", auth="bearer", headers={"x-team": "t"})
            async with GeminiAdapter(settings) as adapter:
                await run(adapter, ask(model="gemini-2.5-pro"))
        [request] = server.requests
        assert request.target == (
            "/v1/projects/P/locations/L/publishers/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
        )
        assert request.header("authorization") == "Bearer AIza-123"
        assert request.header("x-goog-api-key") is None
        assert request.header("x-team") == "t"

    @pytest.mark.parametrize(
        ("model", "name"),
        [
            ("m", "models/m"),
            ("models/m", "models/m"),
            ("tunedModels/m", "tunedModels/m"),
            ("a?b#c d", "models/a%3Fb%23c%20d"),
        ],
    )
    async def test_models_are_named_in_the_url(self, model: str, name: str) -> None:
        request = await sent_with(model=model)
        assert request.target == f"/v1beta/{name}:streamGenerateContent?alt=sse"

    @pytest.mark.parametrize("path", ["", "/", "/v1beta", "/v1beta/", "/v1", "/proxy", "/proxy/v1beta"])
    async def test_65_the_base_url_is_a_prefix(self, path: str) -> None:
        async with WireServer(event_stream(ANSWER)) as server:
            settings = config(server, base_url=server.base_url + path)
            async with GeminiAdapter(settings) as adapter:
                await run(adapter)
        prefix = "/proxy" if "proxy" in path else ""
        version = "/v1" if path == "/v1" else "/v1beta"
        assert server.requests[0].target == f"{prefix}{version}/models/m:streamGenerateContent?alt=sse"

    async def test_D10_the_key_comes_from_the_environment_or_is_missing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("GEMINI_API_KEY", raising=False)
        error = await refusal_of({"api_key": None})
        assert error.code == "MISSING_CREDENTIAL"
        assert "GEMINI_API_KEY" in error.failure.message
        monkeypatch.setenv("GEMINI_API_KEY", "AIza-env")
        assert (await sent_with({"api_key": None})).header("x-goog-api-key") == "AIza-env"

    async def test_P04_refused_before_any_io(self) -> None:
        assert (await refusal_of(provider_options={"odd": 1})).code == "UNSUPPORTED_OPTION"
        effort = ReasoningEffortId("odd")
        assert (await refusal_of(reasoning_effort=effort)).code == "UNSUPPORTED_REASONING_EFFORT"
        assert (await refusal_of({"base_url": "ftp://h"})).code == "INVALID_BASE_URL"
        assert (await refusal_of({"api_key": "sk ü"})).code == "INVALID_CREDENTIAL"
        for name in ("X-Goog-Api-Key", "authorization", "Host"):
            assert (await refusal_of({"headers": [(name, "x")]})).code == "INVALID_CONFIG"


class TestConfiguration:
    def test_values_that_make_no_sense(self) -> None:
        with pytest.raises(ValueError, match="auth"):
            GeminiConfig(auth="none")  # type: ignore[arg-type]  # that is the point

    def test_keys_do_not_show(self) -> None:
        assert "AIza" not in repr(GeminiConfig(api_key="AIza-1", headers={"x": "AIza-1"}))

    async def test_D10_a_change_reaches_the_next_call_and_none_in_flight(self) -> None:
        async with WireServer([event_stream(ANSWER), event_stream(ANSWER)]) as server:
            present = [config(server)]
            async with GeminiAdapter(lambda: present[0]) as adapter:
                prepared = adapter.prepare_call("p")
                present[0] = config(server, api_key="AIza-new")
                await prepared(ask(), RecordingSink())
                await adapter.produce(ask(), RecordingSink())
        keys = [request.header("x-goog-api-key") for request in server.requests]
        assert keys == ["AIza-123", "AIza-new"]

    def test_retry_policy_and_timeouts(self) -> None:
        adapter = GeminiAdapter(GeminiConfig(retry_policy=NormalRetry(1), timeouts=Timeouts(idle=5)))
        assert adapter.provider_retry_policy("p") == NormalRetry(1)
        assert adapter.provider_timeouts("p").idle == 5
        assert adapter.provider_info("gemini").name == "Gemini"
        assert adapter.provider_info("mine").name == "mine"

    async def test_thoughts_are_not_asked_for_where_they_are_not_wanted(self) -> None:
        request = await sent_with({"include_thoughts": False}, model="gemini-2.5-pro")
        assert "generationConfig" not in request.json()


class TestModels:
    async def test_the_catalogue(self) -> None:
        listed = GeminiAdapter().list_models("p")
        assert len({model.id for model in listed}) == len(listed) >= 6
        assert all(isinstance(model, ResolvedModelInfo) and model.provider == "p" for model in listed)

    @pytest.mark.parametrize("id", ["gemini-2.5-flash", "models/gemini-2.5-flash"])
    async def test_what_is_known_of_a_model(self, id: str) -> None:
        model = await GeminiAdapter().resolve_model("p", id)
        assert model is not None
        assert (model.id, model.name, model.context) == (id, "Gemini 2.5 Flash", ModelContext(1_048_576))
        assert model.reasoning is not None
        assert [effort.id for effort in model.reasoning.efforts] == ["off", "low", "medium", "high"]

    async def test_a_model_that_is_not_listed_offers_what_the_wire_can_ask_for(self) -> None:
        model = await GeminiAdapter().resolve_model("p", "unheard-of")
        assert model is not None
        assert model.context is None
        assert model.reasoning is not None
        assert model.reasoning.efforts[0].id == "minimal"

    async def test_models_of_ones_own(self) -> None:
        own = GeminiModel("m", efforts=("high",), default_effort="high")
        mute = GeminiModel("n", efforts=())
        adapter = GeminiAdapter(GeminiConfig(models=[own, mute, "gemini-2.5-pro"]))
        assert [model.name for model in adapter.list_models("p")] == ["m", "n", "Gemini 2.5 Pro"]
        model = await adapter.resolve_model("p", "m")
        assert model is not None
        assert model.reasoning is not None
        assert model.reasoning.default_effort == "high"
        silent = await adapter.resolve_model("p", "n")
        assert silent is not None
        assert silent.reasoning is None


class TestFailures:
    async def test_D08_a_delay_in_the_body(self) -> None:
        details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]
        error = {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED", "details": details}
        failure = await failure_of(json_response({"error": error}, 429))
        assert (failure.code, failure.provider_retry_after_ms) == ("RATE_LIMIT", 7000)

    async def test_D08_an_error_as_a_list(self) -> None:
        error = {"code": 400, "message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID"}]}
        failure = await failure_of(json_response([{"error": error}], 400))
        assert (failure.code, failure.message) == ("AUTH", "API key not valid.")

    async def test_D07_an_error_in_the_stream(self) -> None:
        error = {"code": 500, "message": "Internal error.", "status": "INTERNAL"}
        answer = event_stream(event(text("a")), frame({"error": error}), headers=(("x-request-id", "r1"),))
        failure = await failure_of(answer)
        assert (failure.code, failure.message, failure.request_id) == ("SERVER", "Internal error.", "r1")

    async def test_a_blocked_prompt(self) -> None:
        failure = await failure_of(event_stream(frame({"promptFeedback": {"blockReason": "SAFETY"}})))
        assert failure.code == "CONTENT_FILTER"

    async def test_a_whole_answer_is_an_answer(self) -> None:
        answer = {
            "candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2},
        }
        async with WireServer(json_response(answer)) as server, GeminiAdapter(config(server)) as adapter:
            chunks, stream = await run(adapter)
        assert stream.finish == Stop(raw="STOP")
        assert stream.usage == TokenUsage(1, 2)
        assert TextDelta(0, "hi") in chunks

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (b"", "EMPTY_RESPONSE"),
            (b'{"ok": true}', "MALFORMED_RESPONSE"),
            (b"<html>", "MALFORMED_RESPONSE"),
            (b'{"error": {"code": 503, "message": "busy"}}', "SERVER"),
            (event(text("a")), "STREAM_CLOSED"),
            (event(text("a")) + b"data: what?\n\n", "MALFORMED_RESPONSE"),
        ],
    )
    async def test_D07_a_200_that_is_not_the_stream_it_should_be(self, body: bytes, code: str) -> None:
        assert (await failure_of(event_stream(*filter(None, [body])))).code == code

    async def test_an_event_that_is_too_large(self) -> None:
        body = event(text("a")) + event(text("b" * 500))
        async with (
            WireServer(event_stream(body)) as server,
            GeminiAdapter(config(server, max_event_size=400)) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "MALFORMED_RESPONSE"
        assert stream.partial == (TextBlock("a"),)

    async def test_a_last_event_without_its_blank_line_counts(self) -> None:
        async with (
            WireServer(event_stream(ANSWER.rstrip())) as server,
            GeminiAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert stream.finish == Stop(raw="STOP")

    @pytest.mark.parametrize("last", [Cut(), Reset()])
    async def test_D07_an_abrupt_end_even_after_the_word(self, last: Any) -> None:
        assert (await failure_of(event_stream(ANSWER, last))).code == "TRANSPORT"

    async def test_early_usage_shows_when_the_attempt_does_not_end_well(self) -> None:
        body = event(text("a"), usageMetadata={"promptTokenCount": 4, "candidatesTokenCount": 1})
        async with (
            WireServer(event_stream(body, Cut())) as server,
            GeminiAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert stream.settlement is not None
        assert (stream.settlement.usage, stream.settlement.usage_state) == (TokenUsage(4, 1), "early")

    async def test_the_connection_is_used_again(self) -> None:
        await BENCH.check_reuse()

    async def test_D09_aborted_in_the_middle_closes_the_socket(self) -> None:
        await BENCH.check_abort(event(text("a")))

    async def test_a_body_cut_at_any_byte_is_one_clear_failure_and_keeps_what_came(self) -> None:
        body = (
            b'data: {"candidates":[{"content":{"parts":[{"text":"one"}]}}]}\r\n\r\n'
            b'data: {"candidates":[{"content":{"parts":[{"text":"two"}]}}]}\r\n\r\n'
            b'data: {"candidates":[{"finishReason":"STOP"}]}\r\n\r\n'
        )
        await BENCH.check_cuts(body, b"\r\n\r", terminal=False)

    async def test_an_error_event_that_repeats_the_key_has_it_blacked_out(self) -> None:
        key = "AIza-secret-1"
        error = b'data: {"error": {"code": 400, "message": "bad key %b"}}\n\n' % key.encode()
        async with (
            WireServer(event_stream(event(text("h")) + error)) as server,
            GeminiAdapter(config(server, api_key=key)) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.message == "bad key [redacted]"

    async def test_degraded_replay_state_is_told_to_the_runtimes_hook(self) -> None:
        await BENCH.check_degraded()


class TestDiscovery:
    ROWS = (
        {
            "name": "models/gemini-a",
            "displayName": "A",
            "inputTokenLimit": 1000,
            "outputTokenLimit": 100,
            "thinking": True,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        },
        {"name": "models/embedding-b", "supportedGenerationMethods": ["embedContent"]},
        {"name": "tunedModels/c", "displayName": "", "inputTokenLimit": 0, "outputTokenLimit": "many"},
        {"displayName": "no name"},
        "no row",
    )

    async def test_P10_the_list_of_the_configured_endpoint(self) -> None:
        found, request = await BENCH.discovered(json_response({"models": self.ROWS}))
        assert found == [
            DiscoveredModel("gemini-a", "A", 1000, 100, reasoning=True),
            DiscoveredModel("tunedModels/c"),
        ]
        assert (request.method, request.target) == ("GET", "/v1beta/models?pageSize=1000")
        assert request.header("x-goog-api-key") == "AIza-123"

    async def test_P05_the_configured_key_never_goes_elsewhere(self) -> None:
        secret = {"headers": {"x-key": "AIza-123"}}
        _, request = await BENCH.discovered(json_response({"models": []}), "/else/v1", secret)
        assert request.target == "/else/v1/models?pageSize=1000"
        assert (request.header("x-goog-api-key"), request.header("x-key")) == (None, None)

    async def test_a_key_for_this_once(self) -> None:
        for path in ("", "/else"):
            _, request = await BENCH.discovered(json_response({"models": []}), path, api_key="AIza-once")
            assert request.header("x-goog-api-key") == "AIza-once"

    @pytest.mark.parametrize(
        ("answer", "code", "hint"),
        [
            (json_response({"error": {"message": "no"}}, 403), "DISCOVERY_FAILED", True),
            (json_response({"error": {"message": "what?"}}, 404), "DISCOVERY_UNSUPPORTED", False),
            (json_response({"data": []}), "DISCOVERY_FAILED", False),
            (Response(200, {}, [b" " * 4_200_000]), "DISCOVERY_FAILED", False),
        ],
    )
    async def test_P10_failures(self, answer: Response, code: str, hint: bool) -> None:
        with pytest.raises(LlmError) as caught:
            await BENCH.discovered(answer)
        assert caught.value.code == code
        assert ("check the API key" in caught.value.failure.message) is hint
