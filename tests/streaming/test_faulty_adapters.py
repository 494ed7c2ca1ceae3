"""Adapters that raise, finish wrongly or twice, or do not stop when they are told to."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import (
    Error,
    Finish,
    Stop,
    TextDelta,
)
from trio_llm.model.failures import LlmError
from trio_llm.model.policy import Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.selection import Selection

from .schedules import Layers, both
from .support import LoneStream, open_stream, options, short


async def _cleanup_fails(sink: ChunkSink) -> None:
    await sink.send_batch([TextDelta(0, "x")])
    try:
        await trio.sleep_forever()
    finally:
        raise OSError("cleanup")


@both
async def test_L08_an_adapters_failing_cleanup_is_raised_by_leaving(
    autojump_clock: MockClock, layers: Layers
) -> None:
    with pytest.raises(OSError, match="cleanup"):
        async with open_stream(_cleanup_fails, layers) as stream:
            await stream.receive()
    assert stream.origin == "consumer"


@both
async def test_L08_the_bodys_exception_wins_and_carries_the_cleanup_as_a_note(
    autojump_clock: MockClock, layers: Layers
) -> None:
    with pytest.raises(KeyError) as caught:
        async with open_stream(_cleanup_fails, layers) as stream:
            await stream.receive()
            raise KeyError("mine")
    assert "OSError('cleanup')" in caught.value.__notes__[0]


@both
async def test_L08_a_failing_cleanup_under_ambient_cancellation_is_not_lost(
    autojump_clock: MockClock, layers: Layers
) -> None:
    with pytest.raises(BaseExceptionGroup) as caught, trio.move_on_after(1):
        async with open_stream(_cleanup_fails, layers) as stream:
            await stream.receive()
            await trio.sleep_forever()
    assert caught.group_contains(OSError, match="cleanup")
    assert not caught.group_contains(trio.Cancelled)


@both
async def test_L08_an_adapter_that_raises_after_its_finish(autojump_clock: MockClock, layers: Layers) -> None:
    async def producer(sink: ChunkSink) -> None:
        await short(sink)
        raise OSError("closing the socket failed")

    with pytest.raises(OSError, match="closing"):
        async with open_stream(producer, layers) as stream:
            assert [chunk async for chunk in stream][-1] == Finish(Stop())
    assert stream.finish == Stop()


@both
async def test_G02_produce_without_a_finish_is_stream_closed(
    autojump_clock: MockClock, layers: Layers
) -> None:
    async def producer(sink: ChunkSink) -> None:
        await sink.send(TextDelta(0, "x"))

    async with open_stream(producer, layers) as stream:
        chunks = [chunk async for chunk in stream]
    assert isinstance(stream.finish, Error)
    assert stream.finish.failure.code == codes.STREAM_CLOSED
    assert chunks[0] == TextDelta(0, "x")


@both
async def test_G02_a_chunk_after_the_finish_raises_in_the_adapter(
    autojump_clock: MockClock, layers: Layers
) -> None:
    raised: list[str] = []

    async def producer(sink: ChunkSink) -> None:
        await short(sink)
        try:
            await sink.send(TextDelta(0, "more"))
        except LlmError as error:
            raised.append(error.code)

    async with open_stream(producer, layers) as stream:
        chunks = [chunk async for chunk in stream]
    assert raised == [codes.INVALID_CHUNK_SEQUENCE]
    assert chunks[-1] == Finish(Stop())


@both
async def test_G02_a_finish_inside_a_batch_is_refused(autojump_clock: MockClock, layers: Layers) -> None:
    async def producer(sink: ChunkSink) -> None:
        await sink.send_batch([Finish(Stop()), TextDelta(0, "more")])

    async with open_stream(producer, layers) as stream:
        await anext(stream)
    assert isinstance(stream.finish, Error)
    assert stream.finish.failure.code == codes.INVALID_CHUNK_SEQUENCE


@both
@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (LlmError("busy", codes.SERVER), codes.SERVER, "busy"),
        (ExceptionGroup("own nursery", [LlmError("busy", codes.SERVER)]), codes.SERVER, "busy"),
        (ValueError("odd value"), codes.UNKNOWN, "odd value"),
        (RuntimeError(), codes.UNKNOWN, "RuntimeError"),
    ],
)
async def test_L06_failures_keep_their_facts(
    autojump_clock: MockClock, layers: Layers, raised: Exception, code: str, text: str
) -> None:
    async def producer(sink: ChunkSink) -> None:
        await trio.sleep(1)
        raise raised

    async with open_stream(producer, layers) as stream:
        (finish,) = [chunk async for chunk in stream]
    assert isinstance(finish, Finish)
    assert isinstance(finish.reason, Error)
    assert finish.reason.failure.code == code
    assert text in finish.reason.failure.message
    assert stream.error is raised


@both
async def test_L05_a_route_that_cannot_be_had_is_one_finish(
    autojump_clock: MockClock, layers: Layers
) -> None:
    refusal = LlmError("nobody serves 'p'", codes.NO_ADAPTER)

    def select(_: GenerateOptions) -> Selection:
        raise refusal

    async with LoneStream(options(), select, layers) as stream:
        assert [chunk async for chunk in stream] == [Finish(Error(refusal.failure))]
    assert (stream.error, stream.origin, stream.retry_policy) == (refusal, "runtime", None)


@both
async def test_an_adapter_with_its_own_nursery_that_fails_while_being_stopped(
    autojump_clock: MockClock, layers: Layers
) -> None:
    async def producer(sink: ChunkSink) -> None:
        async def fails() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise LlmError("child", codes.TRANSPORT)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            await sink.send_batch([TextDelta(0, "x")])
            await trio.sleep_forever()

    async with open_stream(producer, layers, timeouts=Timeouts(idle=3)) as stream:
        chunks = [chunk async for chunk in stream]
    assert isinstance(chunks[-1], Finish)
    assert stream.origin == "idle"
    with trio.move_on_after(2) as scope:
        async with open_stream(producer, layers) as stream:
            [chunk async for chunk in stream]
    assert scope.cancelled_caught
    assert stream.origin == "ambient"


@both
async def test_an_adapter_that_swallows_its_cancellation(autojump_clock: MockClock, layers: Layers) -> None:
    async def producer(sink: ChunkSink) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            pass  # a bug that the engine must survive

    with trio.move_on_after(1) as scope:
        async with open_stream(producer, layers) as stream:
            await stream.receive()
    assert scope.cancelled_caught
    assert stream.origin == "ambient"


@both
async def test_what_is_sent_after_an_abort_is_not_shown(autojump_clock: MockClock, layers: Layers) -> None:
    async def producer(sink: ChunkSink) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            pass  # a bug that the consumer must not see
        await sink.send_batch([TextDelta(0, "too late")])

    async with trio.open_nursery() as nursery, open_stream(producer, layers) as stream:

        async def abort() -> None:
            await trio.sleep(1)
            stream.abort()

        nursery.start_soon(abort)
        assert [type(chunk) async for chunk in stream] == [Finish]
