"""The middleware protocol: legs, closing order, retries, aborts, faulty layers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import pytest
import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Aborted, Error, Finish, Stop, StreamChunk, TextDelta, Usage
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.messages import ModelSource
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.model.requests import GenerateOptions, mark_agent_loop_request
from trio_llm.model.signal import AbortSignal
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.lanes import Next
from trio_llm.streaming.selection import Middleware

from .layers import (
    DONE,
    LayerBug,
    Seen,
    Step,
    Wire,
    assert_nothing_left,
    failed,
    limit,
    logged,
    on,
    playing,
    raiser,
    read,
    read_and_abort,
    retry,
    server_error,
    smooth,
    swallow,
    truncate,
)
from .schedules import pass_through
from .support import USAGE, LoneStream, open_stream, options, text_deltas, text_ending

TWO_WORDS = playing((1, "x"), (1, "y"), (1, Finish(Stop())))


def failing(*names: str) -> Wire:
    """Routes of these names fail after a second, all others answer."""

    def script(name: str) -> list[Step]:
        if name.endswith(names):
            return [(1, "lost"), (0, server_error())]
        return [(1, "x"), DONE]

    return Wire(script)


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


# ---- abort


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


# ---- faulty layers


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
