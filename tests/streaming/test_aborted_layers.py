"""A stream that is aborted or left while a layer runs or waits."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from trio_llm.model.chunks import Aborted, Error, Finish, Stop, StreamChunk, TextDelta
from trio_llm.model.content import TextBlock
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.model.signal import AbortSignal
from trio_llm.streaming.lanes import Next

from .layers import (
    DONE,
    TWO_WORDS,
    Seen,
    Wire,
    assert_nothing_left,
    on,
    playing,
    read,
    read_and_abort,
    retry,
    server_error,
    smooth,
)
from .schedules import pass_through


async def test_a_finish_aborted_flows_up_through_layers_that_do_not_wait(autojump_clock: MockClock) -> None:
    witnessed: list[StreamChunk] = []

    async def witness(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            witnessed.append(chunk)
            yield chunk

    wire = Wire(TWO_WORDS)
    stream = wire.stream(retry, witness)
    seen, ended = await read_and_abort(stream, 1.5)
    assert (seen.texts, seen.aborted, ended) == (["m#0:x"], True, 1.5)
    assert witnessed[-1] is seen.finish
    assert len(stream.settlements) == 1
    assert (stream.origin, stream.settlements[0].origin) == ("signal", "signal")
    assert_nothing_left(stream, wire)


async def test_abort_inside_a_layers_back_off(autojump_clock: MockClock) -> None:
    """The engine supplies the Finish; what the attempt before the wait ended with is not the call's."""
    wire = Wire(playing((1, "half"), (0, server_error())))
    stream = wire.stream(pass_through, retry, pass_through)
    seen, ended = await read_and_abort(stream, 1.5)
    assert (seen.texts, seen.aborted, ended) == (["m#0:half"], True, 1.5)
    assert isinstance(stream.finish, Aborted)
    assert stream.finish.failure.message == "enough"
    assert (stream.origin, stream.error, stream.message) == ("signal", None, None)
    assert stream.partial == (TextBlock("m#0:half"),)
    assert stream.retry_policy == NormalRetry()
    (record,) = stream.settlements
    assert (record.origin, record.finish) == ("provider", Error(server_error().failure))
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("how", ["leave", "ambient"])
async def test_leaving_inside_a_layers_back_off_is_recorded_as_that(
    autojump_clock: MockClock, how: str
) -> None:
    wire = Wire(playing((1, server_error())))
    stream = wire.stream(retry)
    with trio.move_on_after(1.5):
        async with stream:
            await trio.sleep(1.25)
            if how == "ambient":
                await stream.receive()
    assert isinstance(stream.finish, Aborted)
    assert (stream.origin, stream.error) == ("consumer" if how == "leave" else "ambient", None)
    assert stream.settlements[0].finish == Error(server_error().failure)
    assert_nothing_left(stream, wire)


async def test_abort_inside_a_smoothing_sleep_keeps_what_was_received(autojump_clock: MockClock) -> None:
    """What the layers have let through before the abort still reaches a slow consumer."""
    wire = Wire(playing((1, "a"), (0, "b"), (0, "c"), (0, None)))
    stream = wire.stream(pass_through, smooth(0.5))
    signal, seen = AbortSignal(), Seen()
    async with trio.open_nursery() as nursery, stream:

        async def abort() -> None:
            await trio.sleep(2.25)  # a and b have passed, c sleeps
            stream.abort()

        nursery.start_soon(abort)
        await trio.sleep(2.25)
        await read(stream, seen)
        assert trio.current_time() == 2.25
    assert seen.texts == ["m:a", "m:b"]
    assert seen.aborted
    assert stream.origin == "signal"
    assert not signal.aborted
    assert_nothing_left(stream, wire)


async def test_after_an_abort_all_that_the_attempts_received_flows_up(autojump_clock: MockClock) -> None:
    """More than the channels hold: nothing waits any more, and nothing is lost."""
    words = [str(number) for number in range(12)]
    wire = Wire(playing(*[(0, word) for word in words], (0, None)))
    stream = wire.stream(pass_through, pass_through, buffer=2)
    seen = Seen()
    async with stream:
        await trio.sleep(1)
        stream.abort()
        await trio.sleep(1)
        await read(stream, seen)
    assert seen.texts == [f"m:{word}" for word in words[: len(seen.texts)]]
    assert len(seen.texts) >= 4
    assert stream.partial == (TextBlock("".join(seen.texts)),)
    assert_nothing_left(stream, wire)


async def test_after_an_abort_a_layer_may_run_but_not_wait(autojump_clock: MockClock) -> None:
    """Also one that would begin to wait only then, and one that tries again."""

    async def stubborn(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        for number in range(3):
            async for chunk in next(on(options, f"#{number}")):
                if not isinstance(chunk, Finish):
                    yield chunk
        yield TextDelta(0, "last words")
        await trio.sleep(60)
        yield Finish(Stop())

    wire = Wire(playing((1, "x"), (0, None)))
    stream = wire.stream(stubborn)
    seen, ended = await read_and_abort(stream, 1.5)
    assert seen.texts == ["m#0:x", "last words"]
    assert (seen.aborted, ended) == (True, 1.5)
    assert [entry for entry in wire.log if entry.startswith("open")] == ["open m#0 @0"]
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("when", ["before entering", "after entering"])
async def test_a_call_aborted_before_it_starts_waits_for_no_layer(
    autojump_clock: MockClock, when: str
) -> None:
    async def waits_first(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        await trio.sleep(60)
        async for chunk in next(options):
            yield chunk

    signal = AbortSignal()
    wire = Wire(TWO_WORDS)
    stream = wire.stream(pass_through, waits_first, signal=signal)
    if when == "before entering":
        signal.abort()
    async with stream:
        signal.abort()
        seen = await read(stream)
        assert trio.current_time() == 0
    assert (seen.texts, seen.aborted, wire.log) == ([], True, [])
    assert (stream.origin, stream.settlements) == ("signal", ())
    assert_nothing_left(stream, wire)


async def test_abort_after_the_end_was_recorded_and_a_layer_holds_it_back(autojump_clock: MockClock) -> None:
    """The wait is cut, so the layer's Finish cannot come: the call was aborted, the attempt was not."""
    wire = Wire(playing((1, "x"), DONE))
    stream = wire.stream(smooth(3))
    seen, ended = await read_and_abort(stream, 5)  # x passes at 4, the Finish would at 7
    assert (seen.texts, seen.aborted, ended) == (["m:x"], True, 5)
    assert stream.origin == "signal"
    assert stream.settlements[0].finish == Stop()
    assert_nothing_left(stream, wire)


async def test_a_layers_wait_between_chunks_does_not_hold_the_clocks(autojump_clock: MockClock) -> None:
    """Phases count on the provider's clock: a layer that thinks is a consumer that thinks."""
    wire = Wire(playing(*[(1, "x")] * 4, DONE))
    stream = wire.stream(smooth(5), timeouts=Timeouts(idle=2), buffer=0)
    async with stream:
        seen = await read(stream)
    assert (len(seen.texts), stream.finish) == (4, Stop())
    assert_nothing_left(stream, wire)
