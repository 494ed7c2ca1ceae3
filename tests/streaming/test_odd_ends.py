"""Ends that come from odd places: other tasks, interrupts, adapters with several senders."""

from __future__ import annotations

import signal
from typing import NoReturn

import pytest
import trio
from trio.testing import MockClock

from trio_llm.model.chunks import (
    Aborted,
    Finish,
    Stop,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    Usage,
)
from trio_llm.model.content import TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import CallId
from trio_llm.model.requests import GenerateOptions
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.selection import Selection
from trio_llm.streaming.stream import ChunkStream

from .layers import assert_nothing_left
from .schedules import Layers, both
from .support import USAGE, LoneStream, open_stream, options


async def endless(sink: ChunkSink) -> None:
    for number in range(10_000):
        await trio.sleep(1)
        await sink.send_batch([TextDelta(0, str(number)), TextDelta(0, "+")])


# ---- aclose from elsewhere


@both
async def test_aclose_in_a_cancelled_scope_of_another_task_is_leaving(
    autojump_clock: MockClock, layers: Layers
) -> None:
    async with open_stream(endless, layers) as stream:
        await stream.receive()

        async def closer() -> None:
            with trio.move_on_after(0) as scope:
                scope.cancel()
                await stream.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(closer)
    assert isinstance(stream.finish, Aborted)
    assert stream.origin == "consumer"
    assert_nothing_left(stream)


@both
async def test_aclose_in_the_bodys_own_cancelled_scope_is_leaving(
    autojump_clock: MockClock, layers: Layers
) -> None:
    async with open_stream(endless, layers) as stream:
        with trio.move_on_after(1.5):
            try:
                await trio.sleep_forever()
            finally:
                await stream.aclose()
    assert stream.origin == "consumer"
    assert_nothing_left(stream)


@both
async def test_aclose_while_the_calls_scope_is_cancelled_is_ambient(
    autojump_clock: MockClock, layers: Layers
) -> None:
    for _ in range(20):
        with trio.move_on_after(1.5) as scope:
            async with open_stream(endless, layers) as stream:
                try:
                    await trio.sleep_forever()
                finally:
                    await stream.aclose()
        assert scope.cancelled_caught
        assert stream.origin == "ambient"
        assert_nothing_left(stream)


@pytest.mark.parametrize("instead", ["nothing", "an exception"])
async def test_an_ambient_cancel_that_the_adapter_swallows_is_ambient_for_a_shielded_consumer(
    instead: str, autojump_clock: MockClock
) -> None:
    async def producer(sink: ChunkSink) -> None:
        await sink.send(TextDelta(0, "x"))
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            if instead != "nothing":
                raise LlmError("x", "UNKNOWN") from None

    with trio.CancelScope() as around:
        async with open_stream(producer) as stream:
            with trio.CancelScope(shield=True):
                await stream.receive()
                around.cancel()
                assert isinstance(await stream.receive(), Finish)
            assert stream.origin == "ambient"
    assert around.cancelled_caught
    assert stream.origin == "ambient"


@both
async def test_aclose_ends_a_receive_parked_in_another_task(
    autojump_clock: MockClock, layers: Layers
) -> None:
    async with open_stream(endless, layers) as stream:
        await stream.receive()

        async def closer() -> None:
            await trio.sleep(0.5)
            await stream.aclose()
            assert trio.current_time() == 1.5

        async with trio.open_nursery() as nursery:
            nursery.start_soon(closer)
            assert await stream.receive() == TextDelta(0, "+")
            with pytest.raises(trio.ClosedResourceError):
                await stream.receive()
    assert stream.origin == "consumer"


@both
async def test_what_was_received_but_not_taken_is_not_handed_out_after_leaving(
    autojump_clock: MockClock, layers: Layers
) -> None:
    async with open_stream(endless, layers) as stream:
        await stream.receive()  # of a batch of two
        await stream.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await stream.receive()
    with pytest.raises(trio.ClosedResourceError):
        await stream.receive()
    assert stream.partial == (TextBlock("0+"),)


@both
async def test_a_cancelled_aclose_is_finished_by_leaving(autojump_clock: MockClock, layers: Layers) -> None:
    async def slow_to_close(sink: ChunkSink) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)

    async with open_stream(slow_to_close, layers) as stream:
        await trio.sleep(1)
        with trio.move_on_after(1) as scope:
            await stream.aclose()
        assert scope.cancelled_caught
        assert stream.settlements == ()
    assert trio.current_time() == 4
    assert stream.origin == "consumer"
    assert_nothing_left(stream)


# ---- interrupts


@both
def test_an_interrupt_while_the_stream_is_being_entered(layers: Layers) -> None:
    """It waits for the next checkpoint, instead of tearing the nursery that was just opened."""
    streams: list[ChunkStream] = []

    def select(_: GenerateOptions) -> NoReturn:
        signal.raise_signal(signal.SIGINT)
        raise LlmError("no route", "NO_ADAPTER")

    async def main() -> None:
        stream = LoneStream(options(), select, layers)
        streams.append(stream)
        async with stream:
            await trio.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        trio.run(main, clock=MockClock(autojump_threshold=0))
    assert_nothing_left(streams[0])


@both
@pytest.mark.parametrize("body", ["waits", "raises", "raises a group"])
async def test_interrupts_of_several_tasks_pass_as_one(
    autojump_clock: MockClock, layers: Layers, body: str
) -> None:
    async def interrupted(sink: ChunkSink) -> None:
        async def interrupt() -> None:
            try:
                await trio.sleep(1)
            finally:
                raise KeyboardInterrupt

        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupt)
            nursery.start_soon(interrupt)

    stream = open_stream(interrupted, layers)
    with pytest.raises(KeyboardInterrupt):
        async with stream:
            try:
                await trio.sleep(2)
            finally:
                if body == "raises":
                    raise KeyError("mine")
                if body == "raises a group":
                    raise ExceptionGroup("mine", [KeyError("mine")])
    assert_nothing_left(stream)


# ---- senders


@both
@pytest.mark.parametrize("how", ["abort", "ambient", "leave"])
async def test_nothing_of_several_blocked_senders_is_lost(
    autojump_clock: MockClock, layers: Layers, how: str
) -> None:
    async def several(sink: ChunkSink) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(1, 6):
                nursery.start_soon(sink.send_batch, [TextDelta(number, str(number))])

    stream = open_stream(several, layers, buffer=0)
    texts: list[str] = []
    with trio.move_on_after(2):
        async with stream:
            await trio.sleep(1)
            if how == "abort":
                stream.abort()
                texts = [chunk.text async for chunk in stream if isinstance(chunk, TextDelta)]
            elif how == "ambient":
                await trio.sleep_forever()
    received = [block.text for block in stream.partial if isinstance(block, TextBlock)]
    assert sorted(received) == list("12345")
    if how == "abort":
        assert sorted(texts) == list("12345")
    assert_nothing_left(stream)


async def test_a_chunk_after_the_finish_changes_no_account(autojump_clock: MockClock) -> None:
    async def producer(sink: ChunkSink) -> None:
        await sink.send_batch([TextDelta(0, "x"), Usage(USAGE), Finish(Stop())], received=10)
        with pytest.raises(LlmError, match="after the Finish"):
            await sink.send_batch([Usage(TokenUsage(99, 99))], received=90)

    async with open_stream(producer) as stream:
        chunks = [chunk async for chunk in stream]
    assert chunks == [TextDelta(0, "x"), Usage(USAGE), Finish(Stop())]
    assert stream.usage == USAGE
    assert stream.settlement is not None
    assert (stream.settlement.usage, stream.settlement.bytes_received) == (USAGE, 10)


@both
async def test_calls_cut_by_an_abort_are_shown(autojump_clock: MockClock, layers: Layers) -> None:
    async def producer(sink: ChunkSink) -> None:
        await sink.send_batch([ToolCallDelta(0, CallId("c"), "f", '{"x":')])
        await trio.sleep_forever()

    async with open_stream(producer, layers) as stream:
        await stream.receive()
    assert stream.incomplete_calls == (ToolCallBlock(CallId("c"), "f", '{"x":'),)
    assert (stream.message, stream.partial) == (None, ())


@both
async def test_the_finish_of_a_reviewing_route_is_the_record(
    autojump_clock: MockClock, layers: Layers
) -> None:
    async def produce(_: GenerateOptions, sink: ChunkSink) -> None:
        await sink.send_batch([TextDelta(0, "x"), Usage(USAGE), Finish(Stop())])

    def review(finish: Finish, usage: TokenUsage | None) -> Finish:
        assert usage == USAGE
        return Finish(Stop(raw="reviewed"), finish.replay_state)

    base = open_stream(endless)._call._select(options())
    selection = Selection(
        provider="p",
        model="m",
        produce=produce,
        timeouts=base.timeouts,
        retry_policy=base.retry_policy,
        review=review,
    )
    chunks: list[StreamChunk] = []
    async with LoneStream(options(), lambda _: selection, layers) as stream:
        chunks = [chunk async for chunk in stream]
    assert chunks[-1] == Finish(Stop(raw="reviewed"))
    assert (stream.finish, stream.origin) == (Stop(raw="reviewed"), "provider")
    assert stream.message is not None


async def test_a_receive_in_the_terminal_step_that_is_cut_loses_nothing(autojump_clock: MockClock) -> None:
    async def producer(sink: ChunkSink) -> None:
        sink.note_usage(USAGE)
        raise LlmError("no", "SERVER")

    async with open_stream(producer) as stream:
        chunks: list[StreamChunk] = []
        await trio.sleep(1)
        while not chunks or not isinstance(chunks[-1], Finish):
            with trio.CancelScope() as scope:
                scope.cancel()
                chunks.append(await stream.receive())
            if scope.cancelled_caught:
                chunks.append(await stream.receive())
    assert [type(chunk) for chunk in chunks] == [Usage, Finish]


@both
async def test_a_stream_inside_another_streams_scope_ends_with_it(
    autojump_clock: MockClock, layers: Layers
) -> None:
    """The outer provider's failure is no cancellation: only scopes and interrupts are ambient."""

    async def failing(sink: ChunkSink) -> None:
        await trio.sleep(0.5)
        raise LlmError("no", "SERVER")

    async with open_stream(failing, layers) as outer, open_stream(endless, layers) as inner:
        await inner.receive()
        assert trio.current_time() == 1
        assert isinstance(await outer.receive(), Finish)
    assert (outer.origin, inner.origin) == ("provider", "consumer")
