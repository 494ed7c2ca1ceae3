"""The same answer is the same failure on every wire over HTTP, and its facts are kept."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from trio_llm.model.chunks import Error, FinishReason
from trio_llm.model.messages import create_user_message
from trio_llm.model.requests import GenerateOptions
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.settlement import Settlement
from trio_llm.testing.wire_script import Response, event_stream, json_response

from .across.table import WIRES, row
from .across.wires import Wire

ID = ("x-request-id", "r-1")
each_wire = pytest.mark.parametrize("wire", [row(wire) for wire in WIRES if wire.name != "websocket"])


def answers(http: int, message: str = "no", headers: Any = (), **error: Any) -> Response:
    """An error as providers word it."""
    return json_response({"error": {"message": message, **error}}, http, (ID, *headers))


async def end_of(wire: Wire, answer: Response) -> tuple[FinishReason, Settlement]:
    """How a call ends, and its account; it took one request."""
    options = GenerateOptions(provider="one", model=wire.model, messages=[create_user_message("hi")])
    async with wire.serve([answer]) as server, LlmRuntime() as runtime:
        runtime.register_adapter("one", wire.make(server))
        async with runtime.stream(options) as stream:
            async for _ in stream:
                pass
        assert len(server.requests) == 1
    assert stream.finish is not None
    assert stream.settlement is not None
    return stream.finish, stream.settlement


@each_wire
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (answers(400), "INVALID_REQUEST"),
        (answers(400, "bad", status="INVALID_ARGUMENT", details=[{"reason": "API_KEY_INVALID"}]), "AUTH"),
        (answers(400, "maximum context length is 10 tokens"), "CONTEXT_WINDOW_EXCEEDED"),
        (answers(401), "AUTH"),
        (answers(403), "AUTH"),
        (answers(404), "INVALID_REQUEST"),
        (answers(413), "INVALID_REQUEST"),
        (answers(418), "HTTP_418"),
        (answers(422), "INVALID_REQUEST"),
        (answers(429), "RATE_LIMIT"),
        (answers(429, code="insufficient_quota"), "QUOTA"),
        (answers(500), "SERVER"),
        (answers(529), "SERVER"),
        (answers(599), "SERVER"),
        (answers(302, headers=[("location", "/elsewhere")]), "HTTP_302"),
        (event_stream(headers=(ID,)), "EMPTY_RESPONSE"),
        (event_stream(b"<html><title>Log in</title></html>", headers=(ID,)), "MALFORMED_RESPONSE"),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Response) else value,
)
async def test_D08_what_an_answer_that_is_no_stream_amounts_to(
    wire: Wire, answer: Response, code: str
) -> None:
    reason, settlement = await end_of(wire, answer)
    assert isinstance(reason, Error)
    failure = reason.failure
    assert (failure.code, failure.status, failure.request_id) == (code, answer.status, "r-1")
    assert (settlement.status, settlement.request_id) == (answer.status, "r-1")


@each_wire
@pytest.mark.parametrize(
    ("headers", "error", "asked"),
    [
        ([("retry-after", "1.5")], {}, 1500),
        ([("retry-after-ms", "250"), ("retry-after", "7")], {}, 250),
        ([("retry-after-ms", "0"), ("retry-after", "7")], {}, 7000),
        ([("retry-after", "0")], {}, None),
        ([], {"details": [{"retryDelay": "2s"}]}, 2000),
    ],
    ids=["seconds", "milliseconds", "nought", "none", "body"],
)
async def test_D08_the_delay_that_a_provider_asks_for(
    wire: Wire, headers: Any, error: dict[str, Any], asked: float | None
) -> None:
    reason, _ = await end_of(wire, answers(429, headers=headers, **error))
    assert isinstance(reason, Error)
    assert reason.failure.provider_retry_after_ms == asked


@each_wire
async def test_D08_a_request_id_is_kept_on_success(wire: Wire) -> None:
    answer = wire.answer(0)
    reason, settlement = await end_of(wire, attrs.evolve(answer, headers=(*answer.headers, ID)))
    assert reason.kind == "tool-calls"
    assert (settlement.status, settlement.request_id) == (200, "r-1")
