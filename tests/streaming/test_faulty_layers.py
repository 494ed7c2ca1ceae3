"""Layers that raise, end early, swallow, or do what no layer should: what the stream and its record say."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Error, Finish, Stop, StreamChunk, TextDelta
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.requests import GenerateOptions
from trio_llm.streaming.lanes import Next
from trio_llm.streaming.selection import Middleware

from .layers import (
    DONE,
    TWO_WORDS,
    LayerBug,
    Seen,
    Wire,
    assert_nothing_left,
    logged,
    on,
    playing,
    raiser,
    read,
    read_and_abort,
    retry,
    smooth,
    swallow,
    truncate,
)
from .schedules import pass_through


@pytest.mark.parametrize("outcome", ["received", "left"])
async def test_L08_a_layers_exception_is_raised_once(autojump_clock: MockClock, outcome: str) -> None:
    wire = Wire(TWO_WORDS)
    stream = wire.stream(logged("outer", wire.log), raiser, logged("inner", wire.log))
    if outcome == "received":
        async with stream:
            with pytest.raises(LayerBug):
                await read(stream)
            with pytest.raises(trio.EndOfChannel):
                await stream.receive()
            await trio.sleep(1)
    else:
        with pytest.raises(LayerBug):
            async with stream:
                await trio.sleep(5)
    assert wire.log[-1] == "close m @1"
    assert (stream.origin, stream.message) == ("consumer", None)
    assert stream.settlements[0].origin == "middleware"
    assert_nothing_left(stream, wire)


async def test_L08_a_layers_exception_keeps_its_context_and_cause(autojump_clock: MockClock) -> None:
    bug = LayerBug()

    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        yield TextDelta(0, "x")
        try:
            raise KeyError("context")
        except KeyError:
            raise bug  # noqa: B904  # the context is what is tested

    async with Wire(TWO_WORDS).stream(layer) as stream:
        with pytest.raises(LayerBug) as caught:
            await read(stream)
    assert caught.value is bug
    assert isinstance(bug.__context__, KeyError)
    assert not bug.__suppress_context__


async def test_L08_the_bodys_exception_wins_over_a_layers(autojump_clock: MockClock) -> None:
    stream = (wire := Wire(TWO_WORDS)).stream(raiser)
    mine = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with stream:
            await trio.sleep(5)
            raise mine
    assert caught.value is mine
    assert mine.__notes__ == ["while the stream was closed: LayerBug('bug in a layer')"]
    assert_nothing_left(stream, wire)


def untidy(bug: Exception) -> Middleware:
    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        try:
            async for chunk in next(options):
                yield chunk
        finally:
            raise bug

    return layer


@pytest.mark.parametrize("how", ["end", "leave", "ambient", "abort"])
async def test_L08_a_layer_that_raises_in_its_cleanup(autojump_clock: MockClock, how: str) -> None:
    bug = LayerBug("cleanup")
    wire = Wire(TWO_WORDS)
    stream = wire.stream(pass_through, untidy(bug), pass_through)
    if how in ("end", "abort"):
        async with trio.open_nursery() as nursery, stream:
            if how == "abort":

                async def abort() -> None:
                    await trio.sleep(1.5)
                    stream.abort()

                nursery.start_soon(abort)
            seen = Seen()
            with pytest.raises(LayerBug) as received:
                await read(stream, seen)
            assert received.value is bug
            assert seen.aborted == (how == "abort")
    elif how == "leave":
        with pytest.raises(LayerBug) as caught:
            async with stream:
                await stream.receive()
        assert caught.value is bug
    else:
        with pytest.raises(ExceptionGroup) as group, trio.move_on_after(1.5):
            async with stream:
                await read(stream)
        assert group.value.exceptions == (bug,)
    assert_nothing_left(stream, wire)


async def test_L08_no_exception_of_several_layers_is_lost(autojump_clock: MockClock) -> None:
    bugs = [LayerBug(number) for number in range(3)]
    wire = Wire(playing((1, "x"), (1, "y"), DONE))
    stream = wire.stream(*[untidy(bug) for bug in bugs], buffer=0)
    with pytest.raises(ExceptionGroup) as caught:
        async with stream:
            await trio.sleep(5)
    assert set(caught.value.exceptions) == set(bugs)
    assert_nothing_left(stream, wire)


async def test_a_layer_that_yields_after_the_finish(autojump_clock: MockClock) -> None:
    async def chatty(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            yield chunk
        yield TextDelta(0, "one more thing")

    stream = (wire := Wire(TWO_WORDS)).stream(chatty)
    seen = Seen()
    async with stream:
        with pytest.raises(LlmError, match="after the Finish") as caught:
            await read(stream, seen)
    assert caught.value.failure.code == codes.INVALID_CHUNK_SEQUENCE
    assert (seen.texts, seen.finish) == (["m:x", "m:y"], Finish(Stop()))
    assert stream.message is not None
    assert_nothing_left(stream, wire)


async def test_a_layer_that_ends_without_finish(autojump_clock: MockClock) -> None:
    async def forgetful(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            if not isinstance(chunk, Finish):
                yield chunk

    stream = (wire := Wire(TWO_WORDS)).stream(pass_through, forgetful)
    async with stream:
        seen = await read(stream)
    assert isinstance(seen.finish.reason, Error)
    assert seen.finish.reason.failure.code == codes.STREAM_CLOSED
    assert (stream.finish, stream.message) == (seen.finish.reason, None)
    assert stream.partial == (TextBlock("m:xm:y"),)
    assert stream.settlements[0].finish == Stop()
    assert_nothing_left(stream, wire)


async def test_a_layer_that_ends_early_closes_the_socket(autojump_clock: MockClock) -> None:
    stream = (wire := Wire(TWO_WORDS)).stream(truncate, pass_through)
    async with stream:
        seen = await read(stream)
        assert wire.log[-1] == "close m @1"
    assert (seen.texts, stream.finish) == (["m:x"], Stop(raw="truncated"))
    assert stream.settlements[0].origin == "middleware"
    assert stream.message is not None
    assert stream.message.content == (TextBlock("m:x"),)
    assert_nothing_left(stream, wire)


async def test_looking_at_a_stream_changes_no_record(autojump_clock: MockClock) -> None:
    stream = (wire := Wire(playing((1, "x"), (0, None)), closing=1)).stream(truncate, buffer=1)
    async with stream:
        while stream.finish is None:
            await stream.receive()
            _ = (
                stream.origin,
                stream.message,
                stream.partial,
                stream.usage,
                stream.settlements,
                stream.error,
            )
    assert stream.settlements[0].origin == "middleware"
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("how", ["ambient", "abort", "leave"])
async def test_a_layer_that_swallows_everything(autojump_clock: MockClock, how: str) -> None:
    wire = Wire(TWO_WORDS)
    stream = wire.stream(pass_through, swallow, smooth(0.25))
    with trio.move_on_after(1.125 if how == "ambient" else 100) as scope:
        if how == "abort":
            seen, ended = await read_and_abort(stream, 1.125)
            assert (seen.finish, ended) == (Finish(Stop(raw="swallowed")), 1.125)
        else:
            async with stream:
                if how == "ambient":
                    await read(stream)
                await trio.sleep(1.125)
    assert scope.cancelled_caught == (how == "ambient")
    assert stream.settlements[0].origin == {"ambient": "ambient", "abort": "signal", "leave": "consumer"}[how]
    assert_nothing_left(stream, wire)


async def test_a_layer_that_ignores_its_closing(autojump_clock: MockClock) -> None:
    """Suspended at a yield it swallows GeneratorExit, which Python refuses; all else is closed."""
    wire = Wire(playing((1, "x"), (1, "y"), (1, "z"), DONE))
    stream = wire.stream(logged("outer", wire.log), swallow, logged("inner", wire.log), buffer=0)
    with pytest.raises(RuntimeError, match="GeneratorExit"):
        async with stream:
            await trio.sleep(5)
    assert wire.log[-3:] == ["outer closed", "inner closed", "close m @5"]
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("how", ["leave", "end", "retry"])
async def test_a_layer_that_pulls_in_its_cleanup(autojump_clock: MockClock, how: str) -> None:
    wire = Wire(playing((1, "x"), (1, "y"), (1, "z"), DONE))

    async def greedy(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        try:
            async for chunk in next(options):
                yield chunk
        finally:
            async for _ in next(on(options, "again")):
                break

    async def twice(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        if how == "retry":
            async for _ in next(on(options, "#0")):
                break
        async for chunk in next(on(options, "#1")):
            yield chunk

    stream = wire.stream(twice, greedy, pass_through, buffer=0)
    async with stream:
        if how == "end":
            await read(stream)
        else:
            await trio.sleep(10)
    assert wire.most_sockets == 1
    assert_nothing_left(stream, wire)


async def test_a_layer_that_fails_before_it_runs(autojump_clock: MockClock) -> None:
    def broken(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        raise LayerBug("not even a generator")

    async with (wire := Wire(TWO_WORDS)).stream(pass_through, broken) as stream:
        with pytest.raises(LayerBug):
            await stream.receive()
    assert_nothing_left(stream, wire)


async def test_a_layer_that_hands_its_leg_on(autojump_clock: MockClock) -> None:
    """A layer need not be a generator: a plain function may choose the options alone."""

    def rerouting(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        return next(on(options, "!"))

    wire = Wire(TWO_WORDS)
    async with wire.stream(retry, rerouting, pass_through, rerouting) as stream:
        assert (await read(stream)).texts == ["m#0!!:x", "m#0!!:y"]
    assert stream.message is not None
    assert_nothing_left(stream, wire)


async def test_an_interrupt_in_a_layer_passes_bare(autojump_clock: MockClock) -> None:
    async def interrupted(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            yield chunk
            raise KeyboardInterrupt

    wire = Wire(TWO_WORDS)
    stream = wire.stream(pass_through, interrupted, pass_through)
    with pytest.raises(KeyboardInterrupt):
        async with stream:
            await read(stream)
    assert_nothing_left(stream, wire)
