"""Every row of the cancellation table under virtual time, without layers and with two."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Aborted, Error, Finish, Stop, StreamChunk, TextDelta
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.messages import ModelSource
from trio_llm.model.policy import Timeouts
from trio_llm.model.signal import AbortSignal
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.stream import ChunkStream

from .schedules import Layers, both
from .support import USAGE, open_stream, text_deltas, text_ending


class Log:
    """What the producer noticed."""

    def __init__(self) -> None:
        self.started = 0
        self.ended_at: float | None = None


def ticking(log: Log | None = None, *, every: float = 1, count: int = 10_000):  # type: ignore[no-untyped-def]
    """A producer that sends a word now and then and, if it lives to see it, finishes."""

    async def producer(sink: ChunkSink) -> None:
        log_ = log or Log()
        log_.started += 1
        try:
            await sink.send_batch(text_deltas("0"))
            for number in range(1, count):
                await trio.sleep(every)
                await sink.send_batch([TextDelta(0, str(number))])
            await trio.sleep(every)
            await sink.send_batch(text_ending("".join(map(str, range(count)))))
        finally:
            log_.ended_at = trio.current_time()

    return producer


async def read_all(stream: ChunkStream) -> list[StreamChunk]:
    return [chunk async for chunk in stream]


def texts(chunks: Sequence[StreamChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


def assert_over(stream: ChunkStream) -> None:
    assert not stream._call.nursery.child_tasks
    for attempt in stream._call.attempts:
        assert attempt.done.is_set()


def assert_aborted(stream: ChunkStream, origin: str) -> None:
    assert isinstance(stream.finish, Aborted)
    assert stream.finish.failure.code == codes.ABORTED
    assert stream.origin == origin
    assert stream.message is None
    assert_over(stream)


@both
async def test_success(autojump_clock: MockClock, layers: Layers) -> None:
    stream = open_stream(ticking(count=3), layers)
    async with stream:
        chunks = await read_all(stream)
    assert texts(chunks) == "012"
    assert chunks[-1] == Finish(Stop())
    assert (stream.finish, stream.origin, stream.usage) == (Stop(), "provider", USAGE)
    assert stream.message is not None
    assert stream.message.content == (TextBlock("012"),)
    assert stream.message.role == "assistant"
    assert stream.message.source == ModelSource("p", "m", None)
    assert stream.message is stream.message
    assert stream.partial == ()
    assert_over(stream)


@both
@pytest.mark.parametrize("through", ["stream", "signal", "parent signal"])
async def test_abort_shows_what_was_received_then_aborted(
    autojump_clock: MockClock, layers: Layers, through: str
) -> None:
    parent = AbortSignal()
    signal = parent.child() if through == "parent signal" else parent
    stream = open_stream(ticking(), layers, signal=signal)
    async with trio.open_nursery() as nursery, stream:

        async def abort() -> None:
            await trio.sleep(2.5)
            {"stream": stream.abort, "signal": signal.abort, "parent signal": parent.abort}[through]("enough")

        nursery.start_soon(abort)
        chunks = await read_all(stream)
        assert trio.current_time() == 2.5
    assert texts(chunks) == "012"
    assert isinstance(chunks[-1], Finish)
    assert chunks[-1].reason == stream.finish
    assert_aborted(stream, "signal")
    assert stream.finish.failure.message == "enough"  # type: ignore[union-attr]  # shown above
    assert stream.partial == (TextBlock("012"),)
    assert stream.settlement is not None
    assert (stream.settlement.origin, stream.settlement.ended) == ("signal", 2.5)


@both
async def test_an_aborted_call_never_starts(autojump_clock: MockClock, layers: Layers) -> None:
    log, signal = Log(), AbortSignal()
    signal.abort("too late")
    stream = open_stream(ticking(log), layers, signal=signal)
    async with stream:
        chunks = await read_all(stream)
    assert log.started == 0
    assert [type(chunk) for chunk in chunks] == [Finish]
    assert_aborted(stream, "signal")


@both
async def test_abort_between_entering_and_the_first_receive(
    autojump_clock: MockClock, layers: Layers
) -> None:
    log = Log()
    stream = open_stream(ticking(log), layers)
    async with stream:
        stream.abort()
        chunks = await read_all(stream)
    assert log.started == 0
    assert [type(chunk) for chunk in chunks] == [Finish]
    assert_aborted(stream, "signal")


@both
async def test_one_signal_serves_many_calls_and_keeps_nothing_of_them(
    autojump_clock: MockClock, layers: Layers
) -> None:
    signal = AbortSignal()
    async with open_stream(ticking(count=1), layers, signal=signal) as done:
        await read_all(done)
    first, second = (open_stream(ticking(), layers, signal=signal) for _ in range(2))
    async with first, second:
        await first.receive()
        signal.abort("all of you")
        await read_all(first)
        await read_all(second)
    assert done.finish == Stop()
    assert_aborted(first, "signal")
    assert_aborted(second, "signal")
    assert not signal._subscribers


@both
@pytest.mark.parametrize(
    ("timeouts", "phase", "at"),
    [
        (Timeouts(idle=3), "idle", 3),
        (Timeouts(first_event=2), "first_event", 2),
        (Timeouts(total=4), "total", 4),
        (Timeouts(progress=5, idle=9), "progress", 5),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_phase_that_expires(
    autojump_clock: MockClock, layers: Layers, timeouts: Timeouts, phase: str, at: float
) -> None:
    async def silent(sink: ChunkSink) -> None:
        await trio.sleep_forever()

    stream = open_stream(silent, layers, timeouts=timeouts)
    async with stream:
        chunks = await read_all(stream)
        assert trio.current_time() == at
    (finish,) = chunks
    assert isinstance(finish, Finish)
    assert isinstance(finish.reason, Error)
    assert finish.reason.failure.code == codes.TIMEOUT
    assert phase in finish.reason.failure.message
    assert stream.origin == phase
    assert stream.error is None
    assert_over(stream)


@both
async def test_data_in_the_very_tick_of_its_deadline_is_data(
    autojump_clock: MockClock, layers: Layers
) -> None:
    stream = open_stream(ticking(every=3, count=4), layers, timeouts=Timeouts(idle=3))
    async with stream:
        chunks = await read_all(stream)
    assert texts(chunks) == "0123"
    assert stream.finish == Stop()


@both
@pytest.mark.parametrize("by", ["cancel", "deadline"])
async def test_the_enclosing_scope_is_cancelled(autojump_clock: MockClock, layers: Layers, by: str) -> None:
    log = Log()
    stream = open_stream(ticking(log), layers)
    chunks: list[StreamChunk] = []
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            if by == "deadline":
                scope.deadline = 2.5
            else:

                async def cancel() -> None:
                    await trio.sleep(2.5)
                    scope.cancel()

                nursery.start_soon(cancel)
            async with stream:
                async for chunk in stream:
                    chunks.append(chunk)  # noqa: PERF401  # what came before the Cancelled counts
            raise AssertionError("a Cancelled was swallowed")
    assert scope.cancelled_caught
    assert log.ended_at == 2.5
    assert texts(chunks) == "012"
    assert not any(isinstance(chunk, Finish) for chunk in chunks)
    assert_aborted(stream, "ambient")
    assert stream.partial == (TextBlock("012"),)


@both
async def test_opened_in_a_cancelled_scope(autojump_clock: MockClock, layers: Layers) -> None:
    log = Log()
    stream = open_stream(ticking(log), layers)
    with trio.CancelScope() as scope:
        scope.cancel()
        async with stream:
            await stream.receive()
    assert scope.cancelled_caught
    assert log.started == 0
    assert_aborted(stream, "ambient")


@both
async def test_the_body_breaks(autojump_clock: MockClock, layers: Layers) -> None:
    log = Log()
    stream = open_stream(ticking(log), layers)
    async with stream:
        async for chunk in stream:
            if chunk == TextDelta(0, "2"):
                break
    assert log.ended_at == 2
    assert_aborted(stream, "consumer")
    assert stream.partial == (TextBlock("012"),)


@both
async def test_the_body_raises(autojump_clock: MockClock, layers: Layers) -> None:
    mine, cause = KeyError("mine"), ZeroDivisionError()
    stream = open_stream(ticking(), layers)
    with pytest.raises(KeyError) as caught:
        async with stream:
            await stream.receive()
            raise mine from cause
    assert caught.value is mine
    assert caught.value.__cause__ is cause
    assert not hasattr(mine, "__notes__")
    assert_aborted(stream, "consumer")


@both
async def test_never_iterated(autojump_clock: MockClock, layers: Layers) -> None:
    log = Log()
    stream = open_stream(ticking(log), layers)
    async with stream:
        pass
    assert log.started == 0
    assert_aborted(stream, "consumer")


@both
async def test_the_provider_fails(autojump_clock: MockClock, layers: Layers) -> None:
    failure = LlmError("boom", codes.SERVER, status=503, provider_retry_after_ms=1500)

    async def producer(sink: ChunkSink) -> None:
        await sink.send_batch(text_deltas("half"))
        raise failure

    stream = open_stream(producer, layers)
    async with stream:
        chunks = await read_all(stream)
    assert texts(chunks) == "half"
    assert chunks[-1] == Finish(Error(failure.failure))
    assert stream.finish == Error(failure.failure)
    assert stream.origin == "provider"
    assert stream.error is failure
    assert stream.partial == (TextBlock("half"),)


@both
async def test_abort_after_the_terminal_was_recorded(autojump_clock: MockClock, layers: Layers) -> None:
    stream = open_stream(ticking(count=1), layers)
    async with stream:
        chunks = [await stream.receive()]
        await trio.sleep(5)  # the provider has ended meanwhile
        stream.abort("too late")
        chunks += await read_all(stream)
    assert chunks[-1] == Finish(Stop())
    assert stream.finish == Stop()
    assert stream.message is not None


@both
async def test_a_failure_after_an_abort_was_requested(autojump_clock: MockClock, layers: Layers) -> None:
    async def producer(sink: ChunkSink) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LlmError("the socket broke meanwhile", codes.TRANSPORT)

    stream = open_stream(producer, layers)
    async with trio.open_nursery() as nursery, stream:

        async def abort() -> None:
            await trio.sleep(1)
            stream.abort()

        nursery.start_soon(abort)
        chunks = await read_all(stream)
    assert [type(chunk) for chunk in chunks] == [Finish]
    assert_aborted(stream, "signal")
    assert stream.error is None


@both
async def test_ambient_cancellation_after_another_cause(autojump_clock: MockClock, layers: Layers) -> None:
    """The consumer sees Cancelled; the record keeps the earlier cause, and the message is whole."""
    stream = open_stream(ticking(count=3, every=0.25), layers)
    with trio.move_on_after(5) as scope:
        async with stream:
            await stream.receive()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert stream.finish == Stop()
    assert stream.message is not None
    assert stream.message.content == (TextBlock("012"),)
    assert stream.usage == USAGE
    assert_over(stream)


@both
async def test_deadline_and_abort_of_one_instant(autojump_clock: MockClock, layers: Layers) -> None:
    """Ambient beats abort, abort beats the clock, whichever task runs first."""
    for _ in range(20):
        stream = open_stream(ticking(every=9), layers, timeouts=Timeouts(idle=2))
        async with trio.open_nursery() as nursery, stream:

            async def abort(stream: ChunkStream) -> None:
                await trio.sleep(2)
                stream.abort()

            nursery.start_soon(abort, stream)
            await read_all(stream)
        assert_aborted(stream, "signal")
        stream = open_stream(ticking(every=9), layers, timeouts=Timeouts(idle=2))
        with trio.move_on_after(2) as scope:
            async with trio.open_nursery() as nursery, stream:
                nursery.start_soon(abort, stream)
                await read_all(stream)
        assert scope.cancelled_caught
        assert_aborted(stream, "ambient")
