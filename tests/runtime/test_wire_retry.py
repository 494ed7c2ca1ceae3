"""Retries on the wire: the runtime, a real adapter and real sockets."""

from __future__ import annotations

import json

import pytest
import trio.testing

from trio_llm.model import codes
from trio_llm.model.chunks import Error, Stop
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
from trio_llm.runtime.records import AttemptRecord
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.contract import Produce
from trio_llm.streaming.stream import ChunkStream
from trio_llm.testing.wire_script import Cut, Hold, Reset, Response, event_stream, json_response
from trio_llm.testing.wire_server import WireServer, unused_port

from .support import request

POLICY = NormalRetry(initial_delay_ms=1000, max_delay_ms=1000, max_retries=2)


def event(text: str) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": [{"delta": {"content": text}}]}).encode()


DONE = b"data: [DONE]\n\n"
GOOD = event_stream(event("good"), DONE)
FAULTS = {
    "reset before the head": (Response(before=[Reset()]), codes.TRANSPORT),
    "reset in the body": (event_stream(event("half"), Reset()), codes.TRANSPORT),
    "partial disconnect": (event_stream(event("half"), Cut()), codes.TRANSPORT),
    "closed without an end": (event_stream(event("half"), framing="close"), codes.STREAM_CLOSED),
    "stall": (event_stream(event("half"), Hold()), codes.TIMEOUT),
    "empty": (event_stream(), codes.EMPTY_RESPONSE),
    "empty answer": (event_stream(DONE), codes.EMPTY_RESPONSE),
    "busy": (json_response({"error": {"message": "overloaded"}}, 503), codes.SERVER),
}


def adapter_for(*base_urls: str) -> DeepSeekAdapter:
    """An adapter whose calls go to these places in turn, then to the last one."""
    left = list(base_urls)
    started = False

    def config() -> DeepSeekConfig:
        return DeepSeekConfig(
            api_key="sk-test",
            base_url=left[0],
            timeouts=Timeouts(idle=60),
            retry_policy=POLICY,
        )

    class Moving(DeepSeekAdapter):
        def prepare_call(self, provider: str) -> Produce:
            nonlocal started
            if started and len(left) > 1:
                left.pop(0)
            started = True
            return super().prepare_call(provider)

    return Moving(config)


async def attempt_all(adapter: DeepSeekAdapter) -> tuple[list[str], list[AttemptRecord], ChunkStream]:
    """The outcome of each attempt, the records, and the last stream."""
    outcomes: list[str] = []
    records: list[AttemptRecord] = []
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], adapter)
        async for attempt in runtime.attempts(request(model="deepseek-v4-pro"), record=records.append):
            async with attempt as stream:
                async for _ in stream:
                    pass
            finish = stream.finish
            assert finish is not None
            outcomes.append(finish.failure.code if isinstance(finish, Error) else finish.kind)
    return outcomes, records, stream


@pytest.mark.parametrize("fault", FAULTS)
async def test_R09_faults_on_the_wire_recover(fault: str, autojump_clock: trio.testing.MockClock) -> None:
    response, code = FAULTS[fault]
    async with WireServer([response, response, GOOD]) as server:
        outcomes, records, stream = await attempt_all(adapter_for(server.base_url))
    assert outcomes == [code, code, "stop"]
    assert [record.event for record in records] == ["scheduled", "started"] * 2
    assert stream.finish == Stop()
    assert stream.message is not None
    assert stream.message.content == (TextBlock("good"),)
    bodies = [one.body for one in server.requests]
    assert bodies == [bodies[0]] * 3  # the same request, byte for byte
    assert all(one.ended.is_set() for one in server.connections)


async def test_R09_a_refused_connection_recovers(autojump_clock: trio.testing.MockClock) -> None:
    nowhere = f"http://127.0.0.1:{unused_port()}"
    async with WireServer([GOOD]) as server:
        outcomes, _, _ = await attempt_all(adapter_for(nowhere, server.base_url))
    assert outcomes == [codes.TRANSPORT, "stop"]


async def test_R09_exhaustion_surfaces_the_last_failure(autojump_clock: trio.testing.MockClock) -> None:
    answers = [json_response({"error": {"message": f"overloaded {n}"}}, 503) for n in range(3)]
    async with WireServer(answers) as server:
        outcomes, records, stream = await attempt_all(adapter_for(server.base_url))
    assert outcomes == [codes.SERVER] * 3
    assert len(records) == 4
    assert isinstance(stream.error, LlmError)
    assert "overloaded 2" in stream.error.failure.message
    assert stream.finish == Error(stream.error.failure)


async def test_R03_retry_after_is_honoured_on_the_wire(autojump_clock: trio.testing.MockClock) -> None:
    busy = json_response({"error": {"message": "slow down"}}, 429, (("retry-after-ms", "250"),))
    async with WireServer([busy, GOOD]) as server:
        outcomes, records, _ = await attempt_all(adapter_for(server.base_url))
        first, second = (one.received_at for one in server.requests)
    assert outcomes == [codes.RATE_LIMIT, "stop"]
    assert {record.delay_ms for record in records} == {250}
    assert second - first == pytest.approx(0.25, abs=0.05)
