"""The adapter: its headers, its models, its configuration; its streams and failures over real sockets."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from trio_llm.model.catalogue import DiscoveredModel, ModelContext
from trio_llm.model.chunks import Error, Stop, TokenUsage
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import ReasoningEffortId
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.providers.model_data import ModelFacts
from trio_llm.providers.openai_responses import ResponsesAdapter, ResponsesConfig, ResponsesModel
from trio_llm.testing.wire_script import Cut, Hold, Pause, Repeat, event_stream, json_response
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.client import HttpClient

from .. import streams
from ..wire import RecordingSink, ask, run
from .responses import BENCH, HELLO, body, config, created, delta, end, event, frame, text, usage

refusal_of, sent_with = BENCH.refusal_of, BENCH.sent_with


class TestRequest:
    async def test_the_request_line_and_its_headers(self) -> None:
        request = await sent_with()
        assert (request.method, request.target) == ("POST", "/responses")
        assert request.header("authorization") == "Bearer sk-test-123"
        assert request.header("accept") == "text/event-stream"
        assert request.header("content-type") == "application/json"
        assert (request.header("user-agent") or "").startswith("trio-llm/")

    async def test_P02_configured_headers_do_not_replace_attribution(self) -> None:
        request = await sent_with({"headers": {"openai-project": "p", "User-Agent": "me"}})
        assert request.header("openai-project") == "p"
        assert (request.header("user-agent") or "").startswith("trio-llm/")

    @pytest.mark.parametrize("name", ["Authorization", "content-type", "Host"])
    async def test_headers_that_are_not_for_configuration(self, name: str) -> None:
        error = await refusal_of({"headers": [(name, "x")]})
        assert error.code == "INVALID_CONFIG"

    @pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/openai/v1"])
    async def test_65_the_base_url_is_a_prefix(self, path: str) -> None:
        async with (
            WireServer(event_stream(HELLO)) as server,
            ResponsesAdapter(config(server, base_url=server.base_url + path)) as adapter,
        ):
            await run(adapter)
        assert server.requests[0].target == f"{path.rstrip('/')}/responses"

    async def test_D10_the_key_comes_from_the_environment_or_is_missing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        error = await refusal_of({"api_key": None})
        assert error.code == "MISSING_CREDENTIAL"
        monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
        assert (await sent_with({"api_key": None})).header("authorization") == "Bearer sk-env"

    async def test_D10_a_bad_key_is_not_echoed(self) -> None:
        error = await refusal_of({"api_key": "sk ü"})
        assert error.code == "INVALID_CREDENTIAL"
        assert "sk ü" not in str(error)

    async def test_P04_refused_before_any_io(self) -> None:
        assert (await refusal_of(stop="x")).code == "UNSUPPORTED_OPTION"
        effort = ReasoningEffortId("odd")
        assert (await refusal_of(reasoning_effort=effort)).code == "UNSUPPORTED_REASONING_EFFORT"
        assert (await refusal_of({"base_url": "ftp://h"})).code == "INVALID_BASE_URL"

    async def test_summaries_stay_in_the_configuration(self) -> None:
        request = await sent_with({"reasoning_summary": "detailed"}, model="gpt-5.5")
        assert request.json()["reasoning"] == {"summary": "detailed"}


class TestConfiguration:
    @pytest.mark.parametrize("changes", [{"default_max_tokens": 0}, {"reasoning_summary": "long"}])
    def test_values_that_make_no_sense(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="|".join(changes)):
            ResponsesConfig(**changes)

    def test_keys_do_not_show(self) -> None:
        assert "sk-test" not in repr(ResponsesConfig(api_key="sk-test-123", headers={"x": "sk-test-123"}))

    async def test_D10_a_change_reaches_the_next_call_and_none_in_flight(self) -> None:
        async with WireServer([event_stream(HELLO), event_stream(HELLO)]) as server:
            present = [config(server)]
            async with ResponsesAdapter(lambda: present[0]) as adapter:
                prepared = adapter.prepare_call("p")
                present[0] = config(server, api_key="sk-new")
                await prepared(ask(), RecordingSink())
                await adapter.produce(ask(), RecordingSink())
        keys = [request.header("authorization") for request in server.requests]
        assert keys == ["Bearer sk-test-123", "Bearer sk-new"]

    async def test_http_and_what_would_make_another(self) -> None:
        async with HttpClient() as http, httpx.AsyncClient() as client:
            with pytest.raises(ValueError, match="either"):
                ResponsesAdapter(http=http, client=client)
            async with WireServer([event_stream(HELLO)] * 2) as server:
                async with ResponsesAdapter(config(server), http=http) as adapter:
                    await run(adapter)
                async with ResponsesAdapter(config(server), client=client) as adapter:
                    await run(adapter)
            assert not client.is_closed

    def test_names_and_policies(self) -> None:
        adapter = ResponsesAdapter(
            ResponsesConfig(retry_policy=NormalRetry(max_retries=1), timeouts=Timeouts(idle=5))
        )
        assert adapter.provider_info("openai").name == "OpenAI"
        assert adapter.provider_info("work").name == "work"
        assert adapter.provider_retry_policy("openai") == NormalRetry(max_retries=1)
        assert adapter.provider_timeouts("openai").idle == 5

    async def test_models(self) -> None:
        adapter = ResponsesAdapter(
            ResponsesConfig(
                models=["gpt-5.5", ResponsesModel("own", efforts=(), sampling=True)], default_max_tokens=7
            )
        )
        listed = adapter.list_models("p")
        assert [(model.id, model.name) for model in listed] == [("gpt-5.5", "GPT-5.5"), ("own", "own")]
        known = await adapter.resolve_model("p", "gpt-5.5-2026-04-23")
        assert known is not None
        assert (known.id, known.context, known.default_max_tokens) == (
            "gpt-5.5-2026-04-23",
            ModelContext(1_050_000),
            7,
        )
        assert known.reasoning is not None
        assert [effort.id for effort in known.reasoning.efforts] == ["none", "low", "medium", "high", "xhigh"]
        told = ResponsesAdapter(
            ResponsesConfig(model_data=lambda provider, model: ModelFacts(name=f"{provider} {model}"))
        )
        filled = await told.resolve_model("p", "own")
        assert filled is not None
        assert filled.name == "openai own"
        own = await adapter.resolve_model("p", "own")
        assert own is not None
        assert own.reasoning is None
        given = ResponsesAdapter(ResponsesConfig(models=[ResponsesModel("m", default_effort="low")]))
        resolved = await given.resolve_model("p", "m")
        assert resolved is not None
        assert resolved.reasoning is not None
        assert resolved.reasoning.default_effort == "low"


class TestStreams:
    async def test_D09_aborted_in_the_middle_closes_the_socket(self) -> None:
        await BENCH.check_abort(body(created(), text(0, "a")[:2]))

    async def test_a_body_cut_at_every_byte_is_one_clear_failure(self) -> None:
        small = b"".join(
            b"data: %b\n\n" % json.dumps(said, separators=(",", ":")).encode()
            for said in (*text(0, "Hi")[:2], event("completed", response={"usage": usage()}))
        )
        assert len(small) <= 600
        for length in range(1, len(small) - 1):
            async with (
                WireServer(event_stream(small[:length], Cut())) as server,
                ResponsesAdapter(config(server)) as adapter,
            ):
                chunks, stream = await run(adapter)
            streams.check_grammar(chunks)
            assert isinstance(stream.finish, Error)
            assert stream.finish.failure.code == "TRANSPORT"
            shown = small[:length].rfind(b"\n\n") >= small.find(b'"delta":"Hi"')
            assert stream.partial == ((TextBlock("Hi"),) if shown else ())

    async def test_the_connection_is_used_again(self) -> None:
        await BENCH.check_reuse()

    async def test_an_error_event_alone_ends_the_stream_soon(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        error = frame({"type": "error", "code": "server_error", "message": "no"})
        async with (
            WireServer(event_stream(body(created()), error, Hold())) as server,
            ResponsesAdapter(config(server)) as adapter,
        ):
            begun = trio.current_time()
            _, stream = await run(adapter)
            assert trio.current_time() - begun < 0.1
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "SERVER"

    async def test_47_keepalives_are_no_progress(self, autojump_clock: trio.testing.MockClock) -> None:
        beat = frame({"type": "keepalive", "sequence_number": 3})
        async with (
            WireServer(event_stream(body(created()), Repeat((beat, Pause(1.0))))) as server,
            ResponsesAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter, ask(timeouts=Timeouts(idle=2, progress=5)))
        assert isinstance(stream.finish, Error)
        assert "progress" in stream.finish.failure.message

    async def test_a_whole_answer_where_a_server_did_not_stream(self) -> None:
        answer = end(
            usage=usage(),
            output=[{"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hello"}]}],
        )["response"]
        async with (
            WireServer(json_response(answer)) as server,
            ResponsesAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert stream.finish == Stop(raw="completed")
        assert stream.usage == TokenUsage(4, 3)
        assert stream.message is not None
        assert stream.message.content == (TextBlock("Hello"),)

    @pytest.mark.parametrize("status", ["in_progress", "queued"])
    async def test_a_whole_answer_that_is_none(self, status: str) -> None:
        answer = end(output=[])["response"] | {"status": status}
        async with (
            WireServer(json_response(answer)) as server,
            ResponsesAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "MALFORMED_RESPONSE"

    async def test_facts_of_the_response(self) -> None:
        stream_body = body(created(), text(0, "a"), end(service_tier="flex"))
        async with (
            WireServer(event_stream(stream_body)) as server,
            ResponsesAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert stream.settlement is not None
        assert stream.settlement.facts == {"service_tier": "flex"}
        assert (stream.settlement.served_model, stream.settlement.response_id) == ("served", "resp_1")

    async def test_P01_a_failure_is_one_request(self) -> None:
        async with (
            WireServer(json_response({"error": {"message": "busy"}}, 503)) as server,
            ResponsesAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "SERVER"
        assert len(server.requests) == 1

    async def test_an_error_that_repeats_the_key_has_it_blacked_out(self) -> None:
        async with (
            WireServer(json_response({"error": {"message": "bad sk-test-123"}}, 401)) as server,
            ResponsesAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert "sk-test-123" not in stream.finish.failure.message

    async def test_an_error_in_the_stream_that_repeats_the_key_has_it_blacked_out(self) -> None:
        said = end("failed", error={"message": "bad sk-test-123"})
        async with (
            WireServer(event_stream(body(created(), said))) as server,
            ResponsesAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.message == "bad [redacted]"

    async def test_queued_responses_are_progress(self) -> None:
        queued = event("queued", response={"id": "resp_1", "status": "queued"})
        stream_body = body(queued, created(), delta("output_text", 0, "a"), end())
        async with (
            WireServer(event_stream(stream_body)) as server,
            ResponsesAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert stream.finish == Stop(raw="completed")


class TestDiscovery:
    async def test_P10_the_list_of_the_configured_endpoint(self) -> None:
        rows = [{"id": "gpt-a", "owned_by": "openai"}, {"id": ""}, {"name": "no id"}, "no row"]
        found, request = await BENCH.discovered(json_response({"data": rows}))
        assert found == [DiscoveredModel("gpt-a")]
        assert (request.method, request.target) == ("GET", "/models")
        assert request.header("authorization") == "Bearer sk-test-123"

    async def test_P10_another_endpoint_keeps_its_prefix_and_gets_its_own_key(self) -> None:
        _, request = await BENCH.discovered(json_response({"data": []}), "/prefix/v1", api_key="sk-other")
        assert request.target == "/prefix/v1/models"
        assert request.header("authorization") == "Bearer sk-other"

    async def test_P05_the_configured_key_never_goes_elsewhere(self) -> None:
        _, request = await BENCH.discovered(json_response({"data": []}), "/else")
        assert request.header("authorization") is None

    @pytest.mark.parametrize(("status", "hint"), [(401, True), (403, True), (500, False)])
    async def test_P10_failures(self, status: int, hint: bool) -> None:
        with pytest.raises(LlmError) as caught:
            await BENCH.discovered(json_response({"error": {"message": "no"}}, status))
        assert caught.value.code == "DISCOVERY_FAILED"
        assert ("check the API key" in caught.value.failure.message) is hint
