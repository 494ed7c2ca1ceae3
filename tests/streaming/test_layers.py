"""The middleware protocol: legs, closing order, retries, what layers may do, the record behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import pytest
import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Error, Finish, Stop, StreamChunk, TextDelta, Usage
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.messages import ModelSource
from trio_llm.model.requests import GenerateOptions, mark_agent_loop_request
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.lanes import Next

from .layers import (
    DONE,
    TWO_WORDS,
    Wire,
    assert_nothing_left,
    failed,
    failing,
    limit,
    logged,
    on,
    playing,
    read,
    retry,
    server_error,
    smooth,
)
from .schedules import pass_through
from .support import USAGE, LoneStream, open_stream, options, text_deltas, text_ending

# ---- legs and their order


async def test_a_dropped_leg_is_closed_outermost_first_before_the_next_begins(
    autojump_clock: MockClock,
) -> None:
    async def second_thought(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for _ in next(on(options, "#0")):
            break
        async for chunk in next(on(options, "#1")):
            yield chunk

    wire = Wire(TWO_WORDS, closing=0.5)
    log = wire.log
    stream = wire.stream(second_thought, logged("outer", log), logged("inner", log))
    async with stream:
        await read(stream)
    assert log == [
        "outer starts",
        "inner starts",
        "open m#0 @0",
        "outer closed",
        "inner closed",
        "close m#0 @1.5",
        "outer starts",
        "inner starts",
        "open m#1 @1.5",
        "close m#1 @5",
        "inner closed",
        "outer closed",
    ]
    assert wire.most_sockets == 1
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("how", ["leave", "ambient", "aclose"])
async def test_a_chain_that_is_suspended_is_closed_outermost_first(
    autojump_clock: MockClock, how: str
) -> None:
    wire = Wire(playing((1, "x"), (1, "y"), (1, "z"), DONE))
    stream = wire.stream(logged("outer", wire.log), logged("inner", wire.log), buffer=0)
    with trio.move_on_after(10) as scope:
        async with stream:
            await trio.sleep(5)  # the pump waits for room meanwhile
            if how == "ambient":
                await trio.sleep_forever()
            elif how == "aclose":
                await stream.aclose()
    assert scope.cancelled_caught == (how == "ambient")
    assert [entry for entry in wire.log if "close" in entry and "@" not in entry] == [
        "outer closed",
        "inner closed",
    ]
    assert f"close m @{10 if how == 'ambient' else 5}" in wire.log
    assert stream.origin == ("ambient" if how == "ambient" else "consumer")
    assert_nothing_left(stream, wire)


async def test_nothing_starts_before_the_first_pull(autojump_clock: MockClock) -> None:
    wire = Wire(TWO_WORDS)

    async def hesitant(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        leg = next(options)
        chunks = aiter(leg)
        await trio.sleep(5)
        assert not wire.log
        yield await anext(chunks)
        async for chunk in chunks:
            yield chunk

    stream = wire.stream(hesitant, logged("inner", wire.log))
    async with stream:
        seen = await read(stream)
    assert wire.log[:2] == ["inner starts", "open m @5"]
    assert seen.texts == ["m:x", "m:y"]
    assert_nothing_left(stream, wire)


async def test_chains_that_are_never_pulled_are_closed_too(autojump_clock: MockClock) -> None:
    """Under -W error an abandoned generator would be heard of."""
    wire = Wire(TWO_WORDS)

    async def careless(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        for _ in range(3):
            aiter(next(options))
            next(options)
            next.race()
        yield Finish(Stop())

    stream = wire.stream(careless, pass_through)
    async with stream:
        assert (await read(stream)).finish == Finish(Stop())
    assert wire.log == []
    assert_nothing_left(stream, wire)


async def test_a_retry_over_a_limiter_of_one_does_not_deadlock(autojump_clock: MockClock) -> None:
    wire, semaphore = failing("#0", "#1"), trio.Semaphore(1)
    stream = wire.stream(retry, limit(semaphore), logged("inner", []))
    with trio.fail_after(100):
        async with stream:
            seen = await read(stream)
    assert seen.texts == ["m#0:lost", "m#1:lost", "m#2:x"]
    assert seen.finish == Finish(Stop())
    assert semaphore.value == 1
    assert wire.most_sockets == 1
    assert [record.finish.kind for record in stream.settlements] == ["error", "error", "stop"]
    assert [record.attempt for record in stream.settlements] == [1, 2, 3]
    assert stream.message is not None
    assert stream.message.content == (TextBlock("m#2:x"),)
    assert stream.message.source == ModelSource("p", "m#2", None)
    assert stream.error is None
    assert_nothing_left(stream, wire)


async def test_the_last_failure_of_a_retry_is_the_streams(autojump_clock: MockClock) -> None:
    errors = [server_error() for _ in range(3)]
    stream = (wire := Wire(lambda name: [(1, errors[int(name[-1])])])).stream(retry)
    async with stream:
        seen = await read(stream)
    assert seen.finish.reason == stream.finish == Error(errors[2].failure)
    assert stream.error is errors[2]
    assert stream.origin == "provider"
    assert_nothing_left(stream, wire)


async def test_the_previous_legs_socket_is_closed_before_the_next_leg_begins(
    autojump_clock: MockClock,
) -> None:
    """Also a leg that was dropped in the middle of a batch."""
    wire = Wire(playing((0, "x"), (0, "y"), (9, "z"), DONE), closing=0.5)

    async def impatient(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for _ in next(on(options, "#0")):
            break
        second = next(on(options, "#1"))
        yield await anext(second)
        await second.aclose()
        assert wire.sockets == 0
        async for chunk in next(on(options, "#2")):
            yield chunk

    stream = wire.stream(impatient, pass_through)
    async with stream:
        seen = await read(stream)
    assert seen.texts == ["m#1:x", "m#2:x", "m#2:y", "m#2:z"]
    assert wire.most_sockets == 1
    assert [record.origin for record in stream.settlements] == ["middleware", "middleware", "provider"]
    assert [record.finish.kind for record in stream.settlements] == ["aborted", "aborted", "stop"]
    assert_nothing_left(stream, wire)


async def test_a_leg_that_was_closed_is_over(autojump_clock: MockClock) -> None:
    wire = Wire(TWO_WORDS)

    async def fickle(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        first, second = next(on(options, "#0")), next(on(options, "#1"))
        yield await anext(first)
        yield await anext(second)
        with pytest.raises(StopAsyncIteration):
            await anext(first)
        yield await anext(second)
        async for chunk in second:
            yield chunk

    stream = wire.stream(fickle, pass_through)
    async with stream:
        seen = await read(stream)
    assert seen.texts == ["m#0:x", "m#1:x", "m#1:y"]
    assert wire.most_sockets == 1
    assert_nothing_left(stream, wire)


# ---- what layers may do


async def test_L21_layers_prepend_and_append(autojump_clock: MockClock) -> None:
    async def framing(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        yield TextDelta(0, "<")
        async for chunk in next(options):
            if isinstance(chunk, Finish):
                yield TextDelta(0, ">")
            yield chunk

    async with (wire := Wire(TWO_WORDS)).stream(framing, framing) as stream:
        assert (await read(stream)).texts == ["<", "<", "m:x", "m:y", ">", ">"]
    assert_nothing_left(stream, wire)


async def test_L21_a_short_circuit_starts_no_attempt(autojump_clock: MockClock) -> None:
    async def cached(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        for chunk in [*text_deltas("known"), *text_ending("known")]:
            yield chunk

    wire = Wire(TWO_WORDS)
    async with wire.stream(pass_through, cached, pass_through) as stream:
        assert (await read(stream)).texts == ["known"]
    assert wire.log == []
    assert stream.settlements == ()
    assert stream.message is not None
    assert stream.message.content == (TextBlock("known"),)
    assert (stream.finish, stream.origin, stream.usage, stream.error) == (Stop(), None, USAGE, None)
    assert_nothing_left(stream, wire)


async def test_L21_layers_reroute(autojump_clock: MockClock) -> None:
    async def rerouting(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(attrs.evolve(options, provider="other", model="else")):
            yield chunk

    async with (wire := Wire(TWO_WORDS)).stream(rerouting) as stream:
        assert (await read(stream)).texts == ["else:x", "else:y"]
    assert stream.message is not None
    assert stream.message.source == ModelSource("other", "else", None)
    assert stream.options.model == "m"
    assert_nothing_left(stream, wire)


async def test_a_layer_answers_instead_of_a_failed_attempt(autojump_clock: MockClock) -> None:
    """The Finish is the layer's, so the message is what the consumer saw."""

    async def consoling(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            if failed(chunk):
                break
        for chunk in [*text_deltas("sorry"), *text_ending("sorry")]:
            yield chunk

    async with (wire := failing("m")).stream(consoling) as stream:
        assert (await read(stream)).texts == ["sorry"]
    assert stream.finish == Stop()
    assert stream.message is not None
    assert stream.message.content == (TextBlock("sorry"),)
    assert (stream.usage, stream.error) == (USAGE, None)
    assert stream.settlements[0].finish == Error(server_error().failure)
    assert_nothing_left(stream, wire)


async def test_a_layer_rewrites_the_finish(autojump_clock: MockClock) -> None:
    async def renaming(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            yield Finish(Stop(raw="mine")) if isinstance(chunk, Finish) else chunk

    async with (wire := Wire(TWO_WORDS)).stream(renaming) as stream:
        await read(stream)
    assert stream.finish == Stop(raw="mine")
    assert stream.message is not None
    assert stream.message.content == (TextBlock("m:xm:y"),)
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("by", ["leg", "race"])
async def test_L28_changing_a_loop_built_request_raises(autojump_clock: MockClock, by: str) -> None:
    async def changing(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        changed = on(options, "!")
        if by == "race":
            next.race().start(changed)
        else:
            async for chunk in next(changed):
                yield chunk
        yield Finish(Stop())

    wire = Wire(TWO_WORDS)
    stream = LoneStream(mark_agent_loop_request(options()), wire.select, [pass_through, changing])
    with pytest.raises(LlmError, match="agent loop") as caught:
        async with stream:
            await read(stream)
    assert caught.value.failure.code == codes.INVALID_PREPARED_CALL
    assert wire.log == []
    assert_nothing_left(stream, wire)


async def test_L28_equal_options_of_a_loop_built_request_pass(autojump_clock: MockClock) -> None:
    async def copying(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(attrs.evolve(options)):
            yield chunk

    wire = Wire(TWO_WORDS)
    async with LoneStream(mark_agent_loop_request(options()), wire.select, [copying, copying]) as stream:
        assert (await read(stream)).texts == ["m:x", "m:y"]


# ---- the record behind layers


@pytest.mark.parametrize("how", ["leave", "ambient"])
async def test_the_message_is_whole_though_the_pump_was_behind(autojump_clock: MockClock, how: str) -> None:
    """The provider ended first; its batches wait in the attempt's channel when the consumer goes."""
    wire = Wire(playing((0, "a"), (0, "b"), (0, "c"), (0, "d"), (0, Finish(Stop()))))
    stream = wire.stream(pass_through, smooth(60))
    with trio.move_on_after(5):
        async with stream:
            await trio.sleep(1)
            if how == "ambient":
                await trio.sleep_forever()
    assert stream.settlements[0].finish == Stop()
    assert (stream.finish, stream.origin) == (Stop(), "provider")
    assert stream.message is not None
    assert stream.message.content == (TextBlock("m:am:bm:cm:d"),)
    assert_nothing_left(stream, wire)


async def test_a_finish_that_waits_for_the_consumer_is_the_record(autojump_clock: MockClock) -> None:
    wire = Wire(playing((1, "x"), DONE))
    stream = wire.stream(retry)
    async with stream:
        await trio.sleep(5)
    assert (stream.finish, stream.origin) == (Stop(), "provider")
    assert stream.message is not None
    assert_nothing_left(stream, wire)


async def test_usage_and_finish_are_those_of_the_attempt_that_counts(autojump_clock: MockClock) -> None:
    """Though all attempts of an adapter may send one and the same Finish object."""
    finish = Finish(Stop())

    async def twice(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        answer = [chunk async for chunk in next(on(options, "#0"))]
        async for _ in next(on(options, "#1")):
            pass
        for chunk in answer:
            yield chunk

    async with (wire := Wire(playing((1, "x"), (0, finish)))).stream(twice) as stream:
        assert (await read(stream)).finish == finish
    assert stream.message is not None
    assert stream.message.source == ModelSource("p", "m#0", None)
    assert_nothing_left(stream, wire)


async def test_a_layer_sees_usage_noted_early_of_an_attempt_that_fails(autojump_clock: MockClock) -> None:
    async def producer(sink: ChunkSink) -> None:
        sink.note_usage(USAGE)
        raise server_error()

    async with open_stream(producer, [pass_through]) as stream:
        chunks = [chunk async for chunk in stream]
    assert chunks == [Usage(USAGE), Finish(Error(server_error().failure))]
    assert stream.usage == USAGE
