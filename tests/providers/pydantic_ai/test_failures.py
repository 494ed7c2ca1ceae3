"""What the library's exceptions become: structure first, wording second."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Error, Finish, Stop, TextDelta
from trio_llm.model.failures import LlmError
from trio_llm.model.policy import Timeouts
from trio_llm.providers.pydantic_ai.failures import error_of
from trio_llm.providers.pydantic_ai.library import load_library
from trio_llm.testing.wire_script import Cut, Pause, Repeat, Response, event_stream, json_response
from trio_llm.testing.wire_server import WireServer

from ..wire import ask, run
from .support import ANSWER, KEY, adapter_for, chunk, needs_library, sse

__all__ = ["needs_library"]

LIBRARY = load_library()
EXCEPTIONS = LIBRARY.exceptions


def code_of(error: Exception, *, asked: bool = True) -> str:
    """The code that an exception of the library gets."""
    made = error_of(LIBRARY, error, asked=asked, secrets=(KEY,))
    assert made is error or made.__cause__ is error
    return made.code


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"error": {"code": "context_length_exceeded", "message": "no"}}, codes.CONTEXT_WINDOW_EXCEEDED),
        (400, {"error": {"message": "prompt is too long: 9 tokens"}}, codes.CONTEXT_WINDOW_EXCEEDED),
        (400, {"error": {"message": "bad tool"}}, codes.INVALID_REQUEST),
        (401, None, codes.AUTH),
        (429, {"error": {"code": "insufficient_quota", "message": "pay"}}, codes.QUOTA),
        (429, {"error": {"message": "slow down"}}, codes.RATE_LIMIT),
        (529, "overloaded", codes.SERVER),
        (418, None, "HTTP_418"),
    ],
)
def test_P06_status_and_body_come_first(status: int, body: Any, code: str) -> None:
    assert code_of(EXCEPTIONS.ModelHTTPError(status, "m", body)) == code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ModelContextWindowExceededError", codes.CONTEXT_WINDOW_EXCEEDED),
        ("ModelAuthenticationError", codes.AUTH),
        ("ModelQuotaExceededError", codes.QUOTA),
        ("ModelRateLimitError", codes.RATE_LIMIT),
        ("ModelTimeoutError", codes.TIMEOUT),
        ("ModelConnectionError", codes.TRANSPORT),
        ("ModelOverloadedError", codes.SERVER),
        ("ModelNotFoundError", codes.INVALID_REQUEST),
    ],
)
def test_P06_the_librarys_classes_are_structure(name: str, code: str) -> None:
    assert code_of(getattr(EXCEPTIONS, name)("m", "words about a socket")) == code


@pytest.mark.parametrize(
    ("wording", "code"),
    [
        ("maximum context length is 8192 tokens", codes.CONTEXT_WINDOW_EXCEEDED),
        ("your credit balance is exhausted", codes.QUOTA),
        ("peer closed connection without sending complete message body", codes.TRANSPORT),
        ("socket hang up", codes.TRANSPORT),
        ("the response was truncated", codes.TRANSPORT),
        ("something else", codes.UNKNOWN),
    ],
)
def test_P06_wording_comes_second(wording: str, code: str) -> None:
    assert code_of(EXCEPTIONS.UnexpectedModelBehavior(wording)) == code
    assert code_of(RuntimeError(wording)) == code


def test_P06_a_body_in_the_stream_is_read_as_on_every_wire() -> None:
    error = EXCEPTIONS.ModelAPIError(
        "m", "x", body={"type": "overloaded_error", "message": "busy"}, in_stream=True
    )
    assert code_of(error) == codes.SERVER


def test_P06_the_providers_own_code_is_kept() -> None:
    assert code_of(EXCEPTIONS.ModelAPIError("m", "odd", provider_error_code="odd-thing")) == "ODD_THING"


def test_P06_the_wait_is_kept() -> None:
    error = EXCEPTIONS.ModelRateLimitError("m", "x", retry_after=1.5)
    made = error_of(LIBRARY, error, asked=True, secrets=())
    assert made.failure.provider_retry_after_ms == 1500
    for useless in (0, -1, float("inf"), float("nan")):
        error = EXCEPTIONS.ModelRateLimitError("m", "x", retry_after=useless)
        assert error_of(LIBRARY, error, asked=True, secrets=()).failure.provider_retry_after_ms is None


def test_P06_undecodable_json_is_malformed() -> None:
    error = RuntimeError("?")
    error.__cause__ = json.JSONDecodeError("no", "x", 0)
    assert code_of(error) == codes.MALFORMED_RESPONSE


def test_P04_what_the_library_refuses_before_a_request_is_an_option() -> None:
    assert code_of(EXCEPTIONS.UserError("no images here"), asked=False) == codes.UNSUPPORTED_OPTION
    assert code_of(EXCEPTIONS.UserError("no images here"), asked=True) == codes.UNKNOWN


def test_an_error_of_ours_is_itself() -> None:
    error = LlmError("x", codes.TRANSPORT)
    assert error_of(LIBRARY, error, asked=True, secrets=()) is error


def test_no_error_repeats_the_key() -> None:
    made = error_of(LIBRARY, RuntimeError(f"the key {KEY} is bad"), asked=True, secrets=(KEY,))
    assert KEY not in str(made)


async def failure_of(*responses: Response, provider: str = "openai-chat") -> tuple[Error, str, WireServer]:
    """How one call over the wire fails, and what it had shown."""
    async with WireServer(responses) as server, adapter_for(server, provider) as adapter:
        chunks, _ = await run(adapter, ask())
    last = chunks[-1]
    assert isinstance(last, Finish)
    assert isinstance(last.reason, Error)
    text = "".join(part.text for part in chunks if isinstance(part, TextDelta))
    return last.reason, text, server


async def test_P06_an_error_inside_the_stream_keeps_what_came() -> None:
    events = sse(chunk({"content": "Hel"}), {"error": {"message": "busy", "code": "rate_limit_exceeded"}})
    reason, text, server = await failure_of(event_stream(*events))
    assert reason.failure.code == codes.RATE_LIMIT
    assert reason.failure.message == "busy"
    assert text == "Hel"
    assert len(server.requests) == 1


async def test_P06_an_error_that_the_sdk_passes_over_is_seen() -> None:
    events = b'event: error\ndata: {"error":{"message":"tool","code":"tool_use_failed"}}\n\n'
    reason, _, _ = await failure_of(event_stream(events, b"data: [DONE]\n\n"), provider="groq")
    assert reason.failure.code == codes.INVALID_REQUEST


@pytest.mark.parametrize("body", [b"<html><title>Login</title></html>", b'{"ok": true}'])
async def test_P06_an_answer_that_is_no_stream(body: bytes) -> None:
    answer = Response(200, (("content-type", "text/html"),), body, framing="length")
    reason, _, _ = await failure_of(answer)
    assert reason.failure.code == codes.MALFORMED_RESPONSE


async def test_P06_an_undecodable_event_is_malformed() -> None:
    events = sse(chunk({"content": "Hel"}), done=False)
    reason, text, _ = await failure_of(event_stream(*events, b"data: {nonsense\n\n", b"data: [DONE]\n\n"))
    assert reason.failure.code == codes.MALFORMED_RESPONSE
    assert text == "Hel"


async def test_P06_a_data_field_that_carries_nothing_is_passed_over() -> None:
    events = [*ANSWER[:1], b"data: : proxy\n\n", b"data:\n\n", *ANSWER[1:]]
    async with WireServer([event_stream(*events)]) as server, adapter_for(server) as adapter:
        chunks, _ = await run(adapter)
    assert "".join(part.text for part in chunks if isinstance(part, TextDelta)) == "Hello"
    assert isinstance(chunks[-1], Finish)
    assert isinstance(chunks[-1].reason, Stop)


@pytest.mark.parametrize("name", ["ping", "keepalive", "heartbeat"])
async def test_pings_are_no_progress(name: str, autojump_clock: MockClock) -> None:
    ping = b"event: %s\ndata: %s\n\n" % (name.encode(), json.dumps(chunk({})).encode())
    steps = (ANSWER[0], Repeat((ping, Pause(1)), 100))
    async with WireServer([event_stream(*steps)]) as server, adapter_for(server) as adapter:
        _, stream = await run(adapter, ask(timeouts=Timeouts(idle=3, progress=10)))
    assert isinstance(stream.finish, Error)
    assert stream.finish.failure.code == codes.TIMEOUT
    assert "progress" in stream.finish.failure.message


async def test_P06_a_refused_connection_is_transport() -> None:
    async with WireServer() as server, adapter_for(server) as adapter:
        server_url = server.base_url
    async with WireServer() as other, adapter_for(other, base_url=server_url) as adapter:
        chunks, _ = await run(adapter)
    last = chunks[-1]
    assert isinstance(last, Finish)
    assert isinstance(last.reason, Error)
    assert last.reason.failure.code == codes.TRANSPORT


async def test_a_header_of_the_response_that_is_not_ascii_harms_nothing() -> None:
    whole = event_stream(*ANSWER)
    head = whole.encode_head().replace(b"\r\n", b"\r\nserver: caf\xc3\xa9 \xff\r\n", 1)
    answer = Response(head=head, body=whole.body)
    async with WireServer([answer]) as server, adapter_for(server) as adapter:
        chunks, _ = await run(adapter)
    assert isinstance(chunks[-1], Finish)
    assert isinstance(chunks[-1].reason, Stop)


async def test_an_errors_body_is_counted() -> None:
    async with WireServer([json_response({"error": "busy"}, 429)]) as server, adapter_for(server) as adapter:
        _, stream = await run(adapter)
    assert stream.settlement is not None
    assert stream.settlement.bytes_received == len(b'{"error": "busy"}')


async def test_P06_a_long_wait_in_the_error_is_kept() -> None:
    answer = json_response({"error": {"message": "slow"}}, 429, (("retry-after-ms", "1500"),))
    reason, _, _ = await failure_of(answer)
    assert reason.failure.provider_retry_after_ms == 1500


async def test_P06_a_body_cut_anywhere_is_one_clear_failure() -> None:
    body = b"".join(ANSWER[:2])
    shown = ("", "Hel", "Hello")
    for end in range(9, len(body) + 1, 9):  # a write of no bytes would be the last chunk
        reason, text, server = await failure_of(event_stream(body[:end], Cut()))
        assert reason.failure.code == codes.TRANSPORT
        assert text == shown[body[:end].count(b"\n\n")]
        assert len(server.requests) == 1


async def test_any_split_of_the_bytes_gives_the_same_answer() -> None:
    body = b"".join(ANSWER)
    answers = []
    for size in (1, 2, 7, 50, len(body)):
        reads = [body[start : start + size] for start in range(0, len(body), size)]
        async with WireServer([event_stream(*reads)]) as server, adapter_for(server) as adapter:
            chunks, _ = await run(adapter)
        answers.append(chunks[:-1])
    assert all(answer == answers[0] for answer in answers)
