"""Odd uses, cleanup, interrupts, accounts: what a stream does besides streaming."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import (
    Aborted,
    BlockStart,
    Error,
    Finish,
    MaxTokens,
    ReasoningDelta,
    Stop,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    Usage,
)
from trio_llm.model.content import TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import CallId, ProviderRequestId
from trio_llm.model.messages import ModelSource, ReplayEnvelope
from trio_llm.model.policy import NormalRetry
from trio_llm.model.requests import GenerateOptions
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.lanes import Next

from .schedules import Layers, both
from .support import USAGE, open_stream, short, text_deltas, text_ending


async def endless(sink: ChunkSink) -> None:
    await sink.send_batch([BlockStart(0, "text")])
    for number in range(10_000):
        await trio.sleep(1)
        await sink.send_batch([TextDelta(0, str(number))])


# ---- odd uses


@both
async def test_two_receivers_at_once(autojump_clock: MockClock, layers: Layers) -> None:
    async with open_stream(endless, layers) as stream:
        await stream.receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.receive)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await stream.receive()


@both
async def test_moving_the_stream_between_tasks(autojump_clock: MockClock, layers: Layers) -> None:
    got: list[StreamChunk] = []
    async with open_stream(endless, layers) as stream:

        async def read(count: int) -> None:
            got.extend([await stream.receive() for _ in range(count)])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, 3)
        await read(2)
    assert got[1:] == [TextDelta(0, text) for text in "0123"]


@both
async def test_receiving_before_after_and_across_the_exit(autojump_clock: MockClock, layers: Layers) -> None:
    stream = open_stream(endless, layers)
    with pytest.raises(trio.ClosedResourceError):
        await stream.receive()
    async with trio.open_nursery() as nursery:
        raised: list[Exception] = []

        async def outlives() -> None:
            try:
                while True:
                    await stream.receive()
            except trio.ClosedResourceError as error:
                raised.append(error)

        async with stream:
            nursery.start_soon(outlives)
            await trio.sleep(2.5)
    assert len(raised) == 1
    with pytest.raises(trio.ClosedResourceError):
        await stream.receive()
    with pytest.raises(trio.ClosedResourceError):
        await anext(stream)


@both
async def test_entering_twice(autojump_clock: MockClock, layers: Layers) -> None:
    stream = open_stream(short, layers)
    async with stream:
        with pytest.raises(RuntimeError, match="once"):
            async with stream:
                raise AssertionError("entered twice")
    with pytest.raises(RuntimeError, match="once"):
        await stream.__aenter__()


@both
async def test_receiving_after_the_finish(autojump_clock: MockClock, layers: Layers) -> None:
    async with open_stream(short, layers) as stream:
        chunks = [chunk async for chunk in stream]
        assert isinstance(chunks[-1], Finish)
        for _ in range(2):
            with pytest.raises(trio.EndOfChannel):
                await stream.receive()


@both
async def test_aclose_is_an_idempotent_leaving(autojump_clock: MockClock, layers: Layers) -> None:
    async with open_stream(endless, layers) as stream:
        await stream.receive()
        await stream.aclose()
        assert isinstance(stream.finish, Aborted)
        assert all(attempt.done.is_set() for attempt in stream._call.attempts)
        await stream.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await stream.receive()
    assert stream.origin == "consumer"
    await stream.aclose()
    never = open_stream(short, layers)
    await never.aclose()
    with pytest.raises(RuntimeError):
        await never.__aenter__()


@both
async def test_nested_streams(autojump_clock: MockClock, layers: Layers) -> None:
    async with open_stream(endless, layers) as outer, open_stream(endless, layers) as inner:
        for stream in (outer, inner, outer, inner):
            await stream.receive()
    assert outer.origin == inner.origin == "consumer"


@both
async def test_a_cancelled_receive_loses_nothing(autojump_clock: MockClock, layers: Layers) -> None:
    got: list[str] = []
    async with open_stream(endless, layers) as stream:
        while len(got) < 6:
            with trio.move_on_after(0.7):
                chunk = await stream.receive()
                if isinstance(chunk, TextDelta):
                    got.append(chunk.text)
    assert got == list("012345")


@both
async def test_text_is_the_visible_text_and_may_be_left(autojump_clock: MockClock, layers: Layers) -> None:
    async def producer(sink: ChunkSink) -> None:
        await sink.send(BlockStart(0, "reasoning"))
        await sink.send(ReasoningDelta(0, "hm"))
        await sink.send_batch([BlockStart(1, "text"), TextDelta(1, "a"), TextDelta(1, "b")])
        await sink.send(Finish(Stop()))

    async with open_stream(producer, layers) as stream:
        assert [text async for text in stream.text()] == ["a", "b"]
    assert stream.finish == Stop()
    async with open_stream(producer, layers) as stream:
        async for text in stream.text():
            assert text == "a"
            break


# ---- exceptions on the way out


@both
@pytest.mark.parametrize("where", ["producer", "body", "inner nursery"])
async def test_keyboard_interrupt_passes_bare(autojump_clock: MockClock, layers: Layers, where: str) -> None:
    async def producer(sink: ChunkSink) -> None:
        await sink.send_batch([TextDelta(0, "x")])
        if where == "producer":
            raise KeyboardInterrupt
        await trio.sleep_forever()

    stream = open_stream(producer, layers)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # the type is looked at below
        async with stream:
            await stream.receive()
            if where == "body":
                raise KeyboardInterrupt
            if where == "inner nursery":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    raise KeyboardInterrupt
            await trio.sleep_forever()
    if where == "inner nursery":
        assert isinstance(caught.value, BaseExceptionGroup)
        assert isinstance(caught.value.exceptions[0], KeyboardInterrupt)
    else:
        assert type(caught.value) is KeyboardInterrupt
    assert not stream._call.nursery.child_tasks


@both
async def test_a_group_that_the_body_raises_stays_as_it_is(autojump_clock: MockClock, layers: Layers) -> None:
    group = ExceptionGroup("mine", [KeyError("a"), ValueError("b")])
    with pytest.raises(ExceptionGroup) as caught:
        async with open_stream(endless, layers) as stream:
            await stream.receive()
            raise group
    assert caught.value is group


@both
async def test_the_body_raises_while_ambient_is_cancelled(autojump_clock: MockClock, layers: Layers) -> None:
    mine = KeyError("mine")
    with pytest.raises(KeyError) as caught, trio.CancelScope() as scope:
        async with open_stream(endless, layers) as stream:
            await stream.receive()
            scope.cancel()
            raise mine
    assert caught.value is mine
    assert stream.origin == "ambient"


# ---- accounts


@both
async def test_settlement_of_a_success(autojump_clock: MockClock, layers: Layers) -> None:
    async def producer(sink: ChunkSink) -> None:
        sink.connecting()
        await trio.sleep(1)
        sink.connected()
        await trio.sleep(1)
        sink.sent()
        await trio.sleep(1)
        sink.note_response(status=200, request_id=ProviderRequestId("r1"), facts={"load": 5})
        sink.alive(10)
        await trio.sleep(1)
        sink.note_response(served_model="m-1", response_id="x", facts={"prompt": 6})
        await sink.send_batch([*text_deltas("a"), *text_ending("a")], received=90)
        sink.socket_closed()

    async with open_stream(producer, layers) as stream:
        [chunk async for chunk in stream]
    (record,) = stream.settlements
    assert record is not None
    assert (record.provider, record.model, record.attempt) == ("p", "m", 1)
    assert (record.finish, record.origin) == (Stop(), "provider")
    assert (record.started, record.sent, record.first_byte, record.first_event, record.ended) == (
        0,
        2,
        3,
        4,
        4,
    )
    assert (record.bytes_received, record.abort_to_closed) == (100, None)
    assert (record.usage, record.usage_state) == (USAGE, "reported")
    assert (record.status, record.request_id, record.served_model, record.response_id) == (
        200,
        "r1",
        "m-1",
        "x",
    )
    assert record.facts == {"load": 5, "prompt": 6}


@both
async def test_settlement_of_an_abort_knows_how_long_the_close_took(
    autojump_clock: MockClock, layers: Layers
) -> None:
    async def producer(sink: ChunkSink) -> None:
        sink.note_usage(TokenUsage(9, 0))
        await sink.send_batch(text_deltas("a"))
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.25)
            sink.socket_closed()

    async with trio.open_nursery() as nursery, open_stream(producer, layers) as stream:

        async def abort() -> None:
            await trio.sleep(1)
            stream.abort()

        nursery.start_soon(abort)
        chunks = [chunk async for chunk in stream]
    assert chunks[-2:] == [Usage(TokenUsage(9, 0)), Finish(stream.finish)]  # type: ignore[arg-type]  # set by now
    assert stream.usage == TokenUsage(9, 0)
    record = stream.settlement
    assert record is not None
    assert (record.ended, record.abort_to_closed) == (1, 0.25)
    assert (record.usage, record.usage_state) == (TokenUsage(9, 0), "early")


@both
async def test_usage_noted_early_is_not_shown_after_a_success(
    autojump_clock: MockClock, layers: Layers
) -> None:
    async def producer(sink: ChunkSink) -> None:
        sink.note_usage(TokenUsage(9, 0))
        await short(sink)

    async with open_stream(producer, layers) as stream:
        chunks = [chunk async for chunk in stream]
    assert [chunk.usage for chunk in chunks if isinstance(chunk, Usage)] == [USAGE]
    assert stream.usage == USAGE


@both
async def test_a_second_wire_attempt_has_an_account_of_its_own(
    autojump_clock: MockClock, layers: Layers
) -> None:
    refused = LlmFailure("upgrade refused", codes.TRANSPORT, status=426)

    async def producer(sink: ChunkSink) -> None:
        sink.note_response(status=426)
        await trio.sleep(1)
        sink.next_wire_attempt(refused)
        sink.note_response(status=200)
        await short(sink)
        with pytest.raises(LlmError, match="not repeated"):
            sink.next_wire_attempt(refused)

    async with open_stream(producer, layers) as stream:
        [chunk async for chunk in stream]
    first, second = stream.settlements
    assert (first.finish, first.status, first.ended) == (Error(refused), 426, 1)
    assert (second.finish, second.status, second.started) == (Stop(), 200, 1)


@both
async def test_the_message_is_whole_though_the_consumer_left(
    autojump_clock: MockClock, layers: Layers
) -> None:
    """The provider had ended before the body broke off: the record says so, and nothing is missing."""

    async def producer(sink: ChunkSink) -> None:
        for text in "abc":
            await sink.send_batch([TextDelta(0, text)])
        await sink.send_batch([Usage(USAGE), Finish(Stop())])

    async with open_stream(producer, layers) as stream:
        await stream.receive()
        await trio.sleep(1)
    if stream.finish == Stop():
        assert stream.message is not None
        assert stream.message.content == (TextBlock("abc"),)
    else:
        assert layers


async def test_replay_state_goes_into_the_message(autojump_clock: MockClock) -> None:
    envelope = ReplayEnvelope({"id": "x"}, ["signature"])

    async def producer(sink: ChunkSink) -> None:
        await sink.send_batch([TextDelta(0, "a"), Finish(Stop(), envelope)])

    async with open_stream(producer) as stream:
        [chunk async for chunk in stream]
    assert stream.message is not None
    assert stream.message.source == ModelSource("p", "m", envelope)


async def test_calls_cut_by_max_tokens_are_shown_but_not_in_the_message(autojump_clock: MockClock) -> None:
    async def producer(sink: ChunkSink) -> None:
        await sink.send_batch([TextDelta(0, "a"), ToolCallDelta(1, CallId("c"), "f", '{"x":')])
        await sink.send(Finish(MaxTokens()))

    async with open_stream(producer) as stream:
        [chunk async for chunk in stream]
    assert stream.message is not None
    assert stream.message.content == (TextBlock("a"),)
    assert stream.incomplete_calls == (ToolCallBlock(CallId("c"), "f", '{"x":'),)


async def test_what_is_readable_while_the_call_runs(autojump_clock: MockClock) -> None:
    async with open_stream(endless) as stream:
        assert (stream.finish, stream.origin, stream.message, stream.usage) == (None, None, None, None)
        assert (stream.partial, stream.settlements, stream.settlement, stream.error) == ((), (), None, None)
        await stream.receive()
        await stream.receive()
        assert stream.partial == (TextBlock("0"),)
        assert stream.retry_policy == NormalRetry()


async def test_a_layer_that_answers_by_itself(autojump_clock: MockClock) -> None:
    async def cached(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        for chunk in [*text_deltas("from the cache"), *text_ending("from the cache")]:
            yield chunk

    async with open_stream(endless, [cached]) as stream:
        [chunk async for chunk in stream]
    assert stream.message is not None
    assert stream.message.content == (TextBlock("from the cache"),)
    assert (stream.usage, stream.finish, stream.settlements) == (USAGE, Stop(), ())


@both
async def test_sigint_in_the_body(autojump_clock: MockClock, layers: Layers) -> None:
    with pytest.raises(KeyboardInterrupt):
        async with open_stream(endless, layers) as stream:
            await stream.receive()
            signal.raise_signal(signal.SIGINT)
            await trio.sleep(1)
    assert stream.origin == "consumer"
