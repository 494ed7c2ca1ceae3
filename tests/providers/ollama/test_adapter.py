"""The adapter: its requests, models and configuration; its streams and failures over real sockets."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from trio_llm.model.catalogue import DiscoveredModel, ModelContext
from trio_llm.model.chunks import Error, Stop, TokenUsage
from trio_llm.model.content import Attachment, ImageBlock, TextBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import ReasoningEffortId
from trio_llm.model.messages import create_user_message
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.providers.ollama import OllamaAdapter, OllamaConfig, OllamaModel
from trio_llm.testing.wire_script import Cut, Reset, Response, json_response
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.client import HttpClient

from ..wire import RecordingSink, ask, run
from .lines import ANSWER, BENCH, config, line, lines, says

refusal_of, sent_with, failure_of = BENCH.refusal_of, BENCH.sent_with, BENCH.failure_of


class TestRequest:
    async def test_the_request_line_and_its_headers_without_a_key(self) -> None:
        request = await sent_with()
        assert (request.method, request.target) == ("POST", "/api/chat")
        assert request.header("authorization") is None
        assert request.header("accept") == "application/x-ndjson"
        assert request.header("content-type") == "application/json"
        assert (request.header("user-agent") or "").startswith("trio-llm/")
        assert request.json()["messages"] == [{"role": "user", "content": "hi"}]

    async def test_a_key_and_a_header(self) -> None:
        request = await sent_with({"api_key": "sk-1", "headers": {"x-team": "t"}})
        assert request.header("authorization") == "Bearer sk-1"
        assert request.header("x-team") == "t"

    async def test_images_are_sent_as_base64(self) -> None:
        image = ImageBlock(Attachment.from_bytes(b"png", "image/png"))
        request = await sent_with(messages=[create_user_message([image])])
        assert request.json()["messages"][0]["images"] == ["cG5n"]

    @pytest.mark.parametrize("path", ["", "/", "/ollama", "/ollama/", "/ollama/api/chat"])
    async def test_65_the_base_url_is_a_prefix(self, path: str) -> None:
        async with (
            WireServer(lines(ANSWER)) as server,
            OllamaAdapter(config(server, base_url=server.base_url + path)) as adapter,
        ):
            await run(adapter)
        prefix = "/ollama" if "ollama" in path else ""
        assert server.requests[0].target == f"{prefix}/api/chat"

    async def test_P04_refused_before_any_io(self) -> None:
        assert (await refusal_of(provider_options={"odd": 1})).code == "UNSUPPORTED_OPTION"
        effort = ReasoningEffortId("odd")
        assert (await refusal_of(reasoning_effort=effort)).code == "UNSUPPORTED_REASONING_EFFORT"
        assert (await refusal_of({"base_url": "ftp://h"})).code == "INVALID_BASE_URL"
        assert (await refusal_of({"api_key": "sk ü"})).code == "INVALID_CREDENTIAL"
        assert (await refusal_of({"headers": {"Authorization": "x"}})).code == "INVALID_CONFIG"


class TestConfiguration:
    def test_an_effort_that_the_wire_has_not(self) -> None:
        with pytest.raises(ValueError, match="efforts"):
            OllamaModel("m", efforts=["odd"])

    def test_keys_do_not_show(self) -> None:
        assert "sk-1" not in repr(OllamaConfig(api_key="sk-1", headers=[("x", "sk-1")]))

    async def test_D10_a_change_reaches_the_next_call_and_none_in_flight(self) -> None:
        async with WireServer([lines(ANSWER), lines(ANSWER)]) as server:
            present = [config(server, api_key="sk-old")]
            async with OllamaAdapter(lambda: present[0]) as adapter:
                prepared = adapter.prepare_call("p")
                present[0] = config(server, api_key="sk-new")
                await prepared(ask(), RecordingSink())
                await adapter.produce(ask(), RecordingSink())
        keys = [request.header("authorization") for request in server.requests]
        assert keys == ["Bearer sk-old", "Bearer sk-new"]

    async def test_http_and_what_would_make_another(self) -> None:
        async with HttpClient() as http, httpx.AsyncClient() as client:
            with pytest.raises(ValueError, match="either"):
                OllamaAdapter(http=http, client=client)
            async with WireServer(lines(ANSWER)) as server:
                async with OllamaAdapter(config(server), http=http) as adapter:
                    await run(adapter)
                async with http.request("GET", server.base_url) as response:
                    assert response.status  # it is not closed with the adapter

    def test_retry_policy_and_timeouts(self) -> None:
        adapter = OllamaAdapter(OllamaConfig(retry_policy=NormalRetry(1), timeouts=Timeouts(idle=5)))
        assert adapter.provider_retry_policy("p") == NormalRetry(1)
        assert adapter.provider_timeouts("p").idle == 5
        assert adapter.provider_info("ollama").name == "Ollama"
        assert adapter.provider_info("mine").name == "mine"


class TestModels:
    MODELS = (
        "gemma3",
        OllamaModel("gpt-oss", efforts=("low", "high"), default_effort="low", context_window=9),
    )

    async def test_what_is_known_of_models(self) -> None:
        adapter = OllamaAdapter(OllamaConfig(models=self.MODELS))
        assert [model.id for model in adapter.list_models("p")] == ["gemma3", "gpt-oss"]
        for id in ("gpt-oss", "gpt-oss:latest"):
            model = await adapter.resolve_model("p", id)
            assert model is not None
            assert (model.id, model.context) == (id, ModelContext(9))
            assert model.reasoning is not None
            assert model.reasoning.default_effort == "low"

    async def test_a_model_that_is_listed_with_its_tag(self) -> None:
        adapter = OllamaAdapter(OllamaConfig(models=[OllamaModel("m:latest", context_window=9)]))
        model = await adapter.resolve_model("p", "m")
        assert model is not None
        assert (model.id, model.context) == ("m", ModelContext(9))

    async def test_a_model_that_is_not_listed_offers_what_the_wire_can_ask_for(self) -> None:
        model = await OllamaAdapter().resolve_model("p", "unheard-of")
        assert model is not None
        assert model.reasoning is not None
        assert [effort.id for effort in model.reasoning.efforts] == ["off", "on", "low", "medium", "high"]
        assert model.reasoning.default_effort is None

    async def test_a_model_that_does_not_think(self) -> None:
        adapter = OllamaAdapter(OllamaConfig(models=[OllamaModel("m", efforts=())]))
        model = await adapter.resolve_model("p", "m")
        assert model is not None
        assert model.reasoning is None


class TestFailures:
    async def test_D08_a_model_that_is_not_there(self) -> None:
        failure = await failure_of(json_response({"error": 'model "m" not found, try pulling it first'}, 404))
        assert (failure.code, failure.status) == ("INVALID_REQUEST", 404)
        assert "not found, try pulling it first" in failure.message

    async def test_D08_a_model_that_does_not_think(self) -> None:
        failure = await failure_of(json_response({"error": '"m" does not support thinking'}, 400))
        assert (failure.code, failure.message) == ("INVALID_REQUEST", '"m" does not support thinking')

    async def test_D07_an_error_line_names_the_request(self) -> None:
        answer = Response(200, {"x-request-id": "req_1"}, [line(error="broken")])
        failure = await failure_of(answer)
        assert (failure.code, failure.message, failure.request_id) == ("SERVER", "broken", "req_1")

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (b"", "EMPTY_RESPONSE"),
            (b"\n \r\n", "EMPTY_RESPONSE"),
            (b"<html><title>proxy</title></html>", "MALFORMED_RESPONSE"),
            (b"[1]", "MALFORMED_RESPONSE"),
            (b"upstream is gone", "STREAM_CLOSED"),
            (b'{"a":', "STREAM_CLOSED"),
            (says("a"), "STREAM_CLOSED"),
            (says("a") + b"what?\n", "MALFORMED_RESPONSE"),
        ],
    )
    async def test_D07_a_200_that_is_not_the_stream_it_should_be(self, body: bytes, code: str) -> None:
        assert (await failure_of(lines(*filter(None, [body])))).code == code

    async def test_an_error_line_that_repeats_the_key_has_it_blacked_out(self) -> None:
        async with (
            WireServer(lines(line(error="bad key sk-test-123"))) as server,
            OllamaAdapter(config(server, api_key="sk-test-123")) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.message == "bad key [redacted]"

    async def test_an_oversized_line_by_the_configurations_measure(self) -> None:
        body = lines(says("a"), says("x" * 500))
        async with (
            WireServer(body) as server,
            OllamaAdapter(config(server, max_event_size=400)) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "MALFORMED_RESPONSE"
        assert "400 bytes" in stream.finish.failure.message
        assert stream.partial == (TextBlock("a"),)

    async def test_a_last_line_without_its_end_counts(self) -> None:
        async with WireServer(lines(ANSWER[:-1])) as server, OllamaAdapter(config(server)) as adapter:
            _, stream = await run(adapter)
        assert stream.finish == Stop(raw="stop")
        assert stream.usage == TokenUsage(4, 3)

    @pytest.mark.parametrize("end", [Cut(), Reset()])
    async def test_D07_an_abrupt_end(self, end: Any) -> None:
        assert (await failure_of(lines(says("a"), end))).code == "TRANSPORT"

    async def test_the_connection_is_used_again(self) -> None:
        await BENCH.check_reuse()

    async def test_D09_aborted_in_the_middle_closes_the_socket(self) -> None:
        await BENCH.check_abort(says("a"))

    async def test_a_body_cut_at_any_byte_is_one_clear_failure_and_keeps_what_came(self) -> None:
        body = (
            b'{"model":"m","message":{"content":"one"}}\n'
            b'{"model":"m","message":{"content":"two"}}\n'
            b'{"model":"m","done":true,"done_reason":"stop"}\n'
        )
        await BENCH.check_cuts(body, b"\n")


class TestDiscovery:
    ROWS = (
        {"name": "qwen3:8b", "model": "qwen3:8b", "size": 1},
        {"name": "old:latest"},
        {"model": ""},
        "no row",
    )

    async def test_P10_the_list_of_the_configured_endpoint(self) -> None:
        found, request = await BENCH.discovered(
            json_response({"models": self.ROWS}), changes={"api_key": "sk-1"}
        )
        assert found == [DiscoveredModel("qwen3:8b", "qwen3:8b"), DiscoveredModel("old:latest", "old:latest")]
        assert (request.method, request.target) == ("GET", "/api/tags")
        assert request.header("authorization") == "Bearer sk-1"

    async def test_P05_the_configured_key_never_goes_elsewhere(self) -> None:
        secret = {"api_key": "sk-1", "headers": {"x-key": "sk-1"}}
        _, request = await BENCH.discovered(json_response({"models": []}), "/else", secret)
        assert request.target == "/else/api/tags"
        assert (request.header("authorization"), request.header("x-key")) == (None, None)

    async def test_a_key_for_this_once(self) -> None:
        for path in ("", "/else"):
            _, request = await BENCH.discovered(json_response({"models": []}), path, api_key="sk-once")
            assert request.header("authorization") == "Bearer sk-once"

    @pytest.mark.parametrize(
        ("answer", "code"),
        [
            (json_response({"error": "no"}, 401), "DISCOVERY_FAILED"),
            (json_response({"error": "what?"}, 404), "DISCOVERY_UNSUPPORTED"),
            (json_response({"data": []}), "DISCOVERY_FAILED"),
            (Response(200, {}, b"<html>"), "DISCOVERY_FAILED"),
        ],
    )
    async def test_P10_failures(self, answer: Response, code: str) -> None:
        with pytest.raises(LlmError) as caught:
            await BENCH.discovered(answer)
        assert caught.value.code == code
