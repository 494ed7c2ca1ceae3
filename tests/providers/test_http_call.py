"""The loop that HTTP wires share, over real sockets."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from trio_llm.model.chunks import BlockEnd, BlockStart, Error, Finish, Stop, TextDelta, TokenUsage, Usage
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.identity import AppIdentity
from trio_llm.model.policy import Timeouts
from trio_llm.model.signal import AbortSignal
from trio_llm.protocol.ndjson import NdjsonDecoder
from trio_llm.providers.http_call import stream_call
from trio_llm.providers.openai_chat import ChatAdapter
from trio_llm.providers.openai_chat.translate import ChatTranslator
from trio_llm.providers.openai_chat.types import decode_event
from trio_llm.providers.reading import Wire
from trio_llm.testing.wire_script import (
    Cut,
    Hold,
    Pause,
    Repeat,
    Reset,
    Response,
    event_stream,
    json_response,
)
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.client import HttpClient
from trio_llm.transport.errors import ProviderResponseError

from .wire import RecordingSink, ask, chat_config, open_stream, run


def frame(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


HELLO = frame({"id": "c-1", "model": "served", "choices": [{"delta": {"content": "Hello"}}]})
STOP = frame(
    {
        "choices": [{"delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 3},
    }
)
ROLE = frame({"id": "c-1", "choices": [{"delta": {"role": "assistant", "content": ""}}]})
DONE = b"data: [DONE]\n\n"
HELLO_CHUNKS = [BlockStart(0, "text"), TextDelta(0, "Hello")]
END_CHUNKS = [BlockEnd(0, TextBlock("Hello")), Usage(TokenUsage(4, 3)), Finish(Stop(raw="stop"))]


async def record(response: Response) -> RecordingSink:
    """What one call tells a sink."""
    sink = RecordingSink()
    async with WireServer(response) as server, ChatAdapter(chat_config(server)) as adapter:
        await adapter.produce(ask(), sink)
    return sink


async def failure_of(response: Response) -> tuple[LlmError, RecordingSink]:
    """What one call raises, and what it told before."""
    sink = RecordingSink()
    async with WireServer(response) as server, ChatAdapter(chat_config(server)) as adapter:
        with pytest.raises(LlmError) as caught:
            await adapter.produce(ask(), sink)
    return caught.value, sink


class TestBatches:
    async def test_one_batch_for_each_network_read(self) -> None:
        sink = await record(event_stream(HELLO + HELLO, STOP, DONE))
        assert sink.batches == [
            [*HELLO_CHUNKS, TextDelta(0, "Hello")],
            [],
            [BlockEnd(0, TextBlock("HelloHello")), *END_CHUNKS[1:]],
        ]

    async def test_D07_comments_pings_and_empty_events_only_prove_life(self) -> None:
        ping = b'event: ping\ndata: {"type": "ping"}\n\n'
        sink = await record(event_stream(b": hm\n\n", ping, ROLE, b"data: : proxy\n\n", HELLO, STOP, DONE))
        assert [name for name, _ in sink.told if name in ("alive", "batch")] == ["alive"] * 4 + ["batch"] * 3

    async def test_early_usage_is_noted_once_for_each_change(self) -> None:
        sink = await record(event_stream(STOP, HELLO, DONE))
        assert [value for name, value in sink.told if name == "usage"] == [TokenUsage(4, 3)]

    async def test_D08_facts_of_a_success(self) -> None:
        timings = frame({"timings": {"prompt_ms": 1.5}})
        sink = await record(event_stream(HELLO, timings, DONE, headers=(("x-request-id", "r-1"),)))
        assert sink.facts == {
            "status": 200,
            "request_id": "r-1",
            "served_model": "served",
            "response_id": "c-1",
            "facts": {"prompt_ms": 1.5},
        }

    async def test_the_connection_is_used_again_after_the_marker(self) -> None:
        async with (
            WireServer(event_stream(HELLO, STOP, DONE)) as server,
            ChatAdapter(chat_config(server)) as adapter,
        ):
            for _ in range(3):
                chunks, _ = await run(adapter)
                assert chunks == HELLO_CHUNKS + END_CHUNKS
        assert len(server.connections) == 1

    async def test_a_body_that_goes_on_after_the_marker_costs_the_connection_not_the_answer(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with (
            WireServer(event_stream(HELLO, STOP, DONE, Hold())) as server,
            ChatAdapter(chat_config(server)) as adapter,
        ):
            chunks, _ = await run(adapter)
            assert chunks == HELLO_CHUNKS + END_CHUNKS
            await (await server.wait_connection()).gone.wait()


class TestEnds:
    async def test_D07_a_clean_end_without_a_terminal_signal(self) -> None:
        error, sink = await failure_of(event_stream(HELLO, headers=(("x-request-id", "r-2"),)))
        assert (error.code, error.failure.request_id) == ("STREAM_CLOSED", "r-2")
        assert sink.batches == [HELLO_CHUNKS]

    @pytest.mark.parametrize("end", [Cut(), Reset()])
    async def test_D07_an_abrupt_close_is_transport_also_after_a_finish_word(self, end: Cut | Reset) -> None:
        error, sink = await failure_of(event_stream(HELLO, STOP, end))
        assert error.code == "TRANSPORT"
        assert sink.batches == [HELLO_CHUNKS, []]

    async def test_D07_what_a_read_carried_before_a_bad_event_is_sent_first(self) -> None:
        error, sink = await failure_of(event_stream(HELLO + b"data: {]\n\n" + HELLO, DONE))
        assert error.code == "MALFORMED_RESPONSE"
        assert sink.batches == [HELLO_CHUNKS]

    async def test_an_oversized_event_by_the_configurations_measure(self) -> None:
        large = frame({"choices": [{"delta": {"content": "x" * 300}}]})
        async with WireServer([event_stream(HELLO, large, DONE)] * 2) as server:
            async with ChatAdapter(chat_config(server, max_event_size=300)) as adapter:
                _, stream = await run(adapter)
            assert isinstance(stream.finish, Error)
            assert stream.finish.failure.code == "MALFORMED_RESPONSE"
            assert "300 bytes" in stream.finish.failure.message
            assert stream.partial == (TextBlock("Hello"),)
            async with ChatAdapter(chat_config(server)) as adapter:
                _, stream = await run(adapter)
            assert stream.message is not None
        with pytest.raises(ValueError, match="max_event_size"):
            chat_config(server, max_event_size=0)

    async def test_an_error_inside_the_stream_is_a_finish(self) -> None:
        sink = await record(
            event_stream(
                HELLO + frame({"error": {"message": "no", "code": 429}}) + DONE,
                headers=(("x-request-id", "r-3"),),
            )
        )
        [batch] = sink.batches
        assert batch[:2] == HELLO_CHUNKS
        finish = batch[2]
        assert isinstance(finish, Finish)
        assert isinstance(finish.reason, Error)
        assert (finish.reason.failure.code, finish.reason.failure.request_id) == ("RATE_LIMIT", "r-3")

    @pytest.mark.parametrize(
        "rest",
        [(), (Hold(),), (Repeat((b": x\n\n", Pause(0.01))),), (Cut(),), (Reset(),), (b"data: {]\n\n",)],
    )
    async def test_after_an_error_nobody_waits_for_long(
        self, rest: tuple[Any, ...], autojump_clock: trio.testing.MockClock
    ) -> None:
        begun = trio.current_time()
        sink = await record(event_stream(HELLO, frame({"error": {"message": "no", "code": 502}}), *rest))
        finish = sink.batches[-1][-1]
        assert isinstance(finish, Finish)
        assert isinstance(finish.reason, Error)
        assert finish.reason.failure.code == "SERVER"
        assert trio.current_time() - begun < 0.1

    async def test_an_error_inside_the_stream_that_repeats_the_key_has_it_blacked_out(self) -> None:
        sink = await record(event_stream(HELLO, frame({"error": {"message": "bad key sk-test-123"}})))
        [finish] = [chunk for batch in sink.batches for chunk in batch if isinstance(chunk, Finish)]
        assert isinstance(finish.reason, Error)
        assert finish.reason.failure.message == "bad key [redacted]"

    async def test_counts_that_follow_an_error_are_taken(self) -> None:
        counts = frame({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 3}})
        sink = await record(event_stream(HELLO, frame({"error": {"message": "no", "code": 502}}), counts))
        assert sink.batches[-1][0] == Usage(TokenUsage(4, 3))


class TestForeignBodies:
    @pytest.mark.parametrize("head", [b"", b"\n", b"\xef\xbb\xbf \r\n"])
    async def test_a_web_page(self, head: bytes) -> None:
        page = Response(
            200, {"content-type": "text/html"}, [head or b" ", b"<html><body>Sign in", b" here</body></html>"]
        )
        error, sink = await failure_of(page)
        assert error.code == "MALFORMED_RESPONSE"
        assert "text/html" in error.failure.message
        assert "Sign in" in error.failure.message
        assert sink.batches == []

    async def test_a_json_error(self) -> None:
        error, _ = await failure_of(json_response({"error": {"message": "model not loaded", "code": 503}}))
        assert (error.code, error.failure.message) == ("SERVER", "model not loaded")

    async def test_a_json_answer_is_an_answer(self) -> None:
        answer = {
            "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 4, "completion_tokens": 3},
        }
        sink = await record(json_response(answer))
        assert sink.batches == [HELLO_CHUNKS + END_CHUNKS]

    @pytest.mark.parametrize("value", [{"ok": True}, [1], {"choices": [{"message": {"content": 5}}]}])
    async def test_other_json(self, value: Any) -> None:
        error, _ = await failure_of(json_response(value))
        assert error.code == "MALFORMED_RESPONSE"
        assert "application/json" in error.failure.message

    async def test_plain_text(self) -> None:
        error, _ = await failure_of(
            Response(200, {"content-type": "text/plain"}, [b"upstream ", b"connect error"])
        )
        assert error.code == "MALFORMED_RESPONSE"
        assert "upstream connect error" in error.failure.message

    async def test_text_that_claims_to_be_a_stream(self) -> None:
        error, _ = await failure_of(event_stream(b"upstream connect error"))
        assert error.code == "STREAM_CLOSED"

    @pytest.mark.parametrize("content_type", ["text/plain", "application/json", None])
    async def test_a_stream_under_another_name(self, content_type: str | None) -> None:
        headers = {"content-type": content_type} if content_type else {}
        sink = await record(Response(200, headers, [HELLO, STOP, DONE]))
        assert [chunk for batch in sink.batches for chunk in batch] == HELLO_CHUNKS + END_CHUNKS

    @pytest.mark.parametrize("body", [(), (b"\n",), (b" ", b"\r\n")])
    async def test_nothing_at_all(self, body: tuple[bytes, ...]) -> None:
        error, _ = await failure_of(event_stream(*body))
        assert error.code == "EMPTY_RESPONSE"

    async def test_only_comments(self) -> None:
        error, _ = await failure_of(event_stream(b": hm\n\n"))
        assert error.code == "STREAM_CLOSED"

    async def test_endless_comments_are_not_kept(self) -> None:
        sink = await record(event_stream(Repeat((b": " + b"x" * 1000 + b"\n\n",), 50), HELLO, STOP, DONE))
        assert sink.batches[0] == HELLO_CHUNKS

    async def test_a_wire_of_lines_takes_json_and_knows_pages(self) -> None:
        wire = Wire(decode_event, framing=NdjsonDecoder, media_type="ndjson", foreign=b"<")
        lines = Response(200, {"content-type": "application/x-ndjson"}, [HELLO[6:-1], STOP[6:-1]])
        page = Response(200, {"content-type": "text/html"}, [b"<html>"])
        async with WireServer([lines, page]) as server, HttpClient() as client:
            sink = RecordingSink()
            await stream_call(
                client, sink, wire, ChatTranslator(), url=server.base_url, headers=(), body=b"{}"
            )
            assert [chunk for batch in sink.batches for chunk in batch] == HELLO_CHUNKS + END_CHUNKS
            with pytest.raises(LlmError, match="text/html"):
                await stream_call(
                    client, sink, wire, ChatTranslator(), url=server.base_url, headers=(), body=b"{}"
                )


async def test_an_identity_beside_a_client_that_has_its_own_is_refused() -> None:
    async with HttpClient() as http, WireServer() as server:
        with pytest.raises(ValueError, match="http"):
            ChatAdapter(chat_config(server), http=http, identity=AppIdentity("other", "2"))


class TestStatuses:
    async def test_D08_the_bodys_message_and_the_raw_body_as_cause(self) -> None:
        error, sink = await failure_of(
            json_response(
                {"error": {"message": "slow down"}},
                429,
                (("retry-after", "7"), ("x-deepseek-request-id", "r-4")),
            )
        )
        failure = error.failure
        assert (failure.code, failure.status, failure.message) == ("RATE_LIMIT", 429, "slow down")
        assert (failure.provider_retry_after_ms, failure.request_id) == (7000, "r-4")
        assert isinstance(error.__cause__, ProviderResponseError)
        assert b"slow down" in error.__cause__.body
        assert sink.facts["status"] == 429

    async def test_a_cut_error_body_still_has_its_status(self) -> None:
        error, _ = await failure_of(Response(503, {}, [b"half", Reset()]))
        assert (error.code, error.failure.status) == ("SERVER", 503)

    @pytest.mark.parametrize("status", [200, 429])
    @pytest.mark.parametrize("begin", [b"", b"\n"])
    async def test_an_answer_that_is_no_stream_is_counted_too(self, status: int, begin: bytes) -> None:
        steps = (
            (begin, b'{"error": "busy"', Pause(0.01), b"}")
            if begin
            else (b'{"error": "busy"', Pause(0.01), b"}")
        )
        answer = Response(status, (("content-type", "application/json"),), steps)
        async with WireServer(answer) as server, ChatAdapter(chat_config(server)) as adapter:
            _, stream = await run(adapter)
        settlement = stream.settlement
        assert settlement is not None
        assert settlement.bytes_received == len(begin) + 17
        assert settlement.first_byte is not None
        assert settlement.first_event is None

    async def test_an_error_that_repeats_the_key_has_it_blacked_out(self) -> None:
        error, _ = await failure_of(json_response({"error": {"message": "bad key sk-test-123"}}, 401))
        assert error.code == "AUTH"
        assert "sk-test-123" not in str(error)


class TestThroughTheEngine:
    async def test_D09_aborted_before_the_start(self) -> None:
        signal = AbortSignal()
        signal.abort("no")
        async with WireServer() as server, ChatAdapter(chat_config(server)) as adapter:
            _, stream = await run(adapter, ask(signal=signal))
        assert stream.finish is not None
        assert stream.finish.kind == "aborted"
        assert server.requests == []

    async def test_D09_aborted_in_the_middle(self) -> None:
        async with (
            WireServer(event_stream(HELLO, Hold())) as server,
            ChatAdapter(chat_config(server)) as adapter,
        ):
            async with open_stream(adapter, ask()) as stream:
                assert [await stream.receive(), await stream.receive()] == HELLO_CHUNKS
                stream.abort("enough")
                finish = await stream.receive()
            assert isinstance(finish, Finish)
            assert finish.reason.kind == "aborted"
            await (await server.wait_connection()).gone.wait()

    async def test_D09_silence_is_a_timeout_and_the_socket_is_closed(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with (
            WireServer(event_stream(HELLO, Hold())) as server,
            ChatAdapter(chat_config(server)) as adapter,
        ):
            chunks, stream = await run(adapter, ask(timeouts=Timeouts(idle=2)))
            await (await server.wait_connection()).gone.wait()
        assert chunks[:2] == HELLO_CHUNKS
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "TIMEOUT"
        assert stream.partial == (TextBlock("Hello"),)

    async def test_D09_the_wait_for_headers_is_covered(self, autojump_clock: trio.testing.MockClock) -> None:
        silent = Response(before=(Hold(),))
        async with WireServer(silent) as server, ChatAdapter(chat_config(server)) as adapter:
            _, stream = await run(adapter, ask(timeouts=Timeouts(idle=2)))
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "TIMEOUT"

    async def test_the_wait_for_a_free_connection_counts_as_connecting(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        answers = [event_stream(HELLO, Hold()), event_stream(HELLO, STOP, DONE)]
        async with (
            WireServer(answers) as server,
            ChatAdapter(chat_config(server), max_connections=1) as adapter,
        ):
            async with open_stream(adapter, ask()) as first:
                assert await first.receive() == HELLO_CHUNKS[0]
                _, queued = await run(adapter, ask(timeouts=Timeouts(connect=3)))
                assert isinstance(queued.finish, Error)
                assert queued.finish.failure.code == "TIMEOUT"
                assert "connect" in queued.finish.failure.message
                assert len(server.connections) == 1
            _, after = await run(adapter)
        assert after.finish == Stop(raw="stop")

    async def test_D09_the_consumers_thinking_is_not_counted(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        body = [HELLO] * 200 + [STOP, DONE]
        async with (
            WireServer(event_stream(*body)) as server,
            ChatAdapter(chat_config(server)) as adapter,
            open_stream(adapter, ask(timeouts=Timeouts(idle=2))) as stream,
        ):
            async for _ in stream:
                await trio.sleep(10)
        assert stream.finish == Stop(raw="stop")

    async def test_D09_the_callers_scope_is_the_callers(self, autojump_clock: trio.testing.MockClock) -> None:
        async with (
            WireServer(event_stream(HELLO, Hold())) as server,
            ChatAdapter(chat_config(server)) as adapter,
        ):
            with pytest.raises(trio.TooSlowError):
                with trio.fail_after(1):
                    await run(adapter)
            await (await server.wait_connection()).gone.wait()

    async def test_early_usage_shows_when_the_attempt_does_not_end_well(self) -> None:
        async with (
            WireServer(event_stream(HELLO + STOP, Cut())) as server,
            ChatAdapter(chat_config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert stream.settlement is not None
        assert (stream.settlement.usage, stream.settlement.usage_state) == (TokenUsage(4, 3), "early")
        assert isinstance(stream.error, LlmError)

    async def test_over_a_callers_own_httpx_client(self) -> None:
        async with httpx.AsyncClient() as client, WireServer(event_stream(HELLO, STOP, DONE)) as server:
            async with ChatAdapter(chat_config(server), client=client) as adapter:
                chunks, _ = await run(adapter)
            assert not client.is_closed
        assert chunks == HELLO_CHUNKS + END_CHUNKS
