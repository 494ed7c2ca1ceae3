"""Races: concurrent legs below one layer, and everything that can end them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from trio_llm.model.chunks import Aborted, Finish, Stop, StreamChunk, TextDelta, TokenUsage, Usage
from trio_llm.model.content import TextBlock
from trio_llm.model.messages import ModelSource
from trio_llm.model.requests import GenerateOptions
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.lanes import Entrant, Next, Race
from trio_llm.streaming.selection import Middleware

from .layers import (
    DONE,
    LayerBug,
    Seen,
    Step,
    Wire,
    assert_nothing_left,
    hedge,
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
)
from .schedules import pass_through


def paced(**seconds: float) -> Wire:
    """Routes whose first word takes so long; then comes a second word, and the end."""

    def script(name: str) -> list[Step]:
        return [(seconds[name[-1]], "x"), (1, "y"), (1, Finish(Stop()))]

    return Wire(script)


def all_of(*names: str) -> Middleware:
    """Starts all entrants at once and passes on whatever comes, but for their Finish."""

    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        race = next.race()
        for name in names:
            race.start(on(options, name))
        try:
            while True:
                _, chunk = await race.receive()
                if not isinstance(chunk, Finish):
                    yield chunk
        except trio.EndOfChannel:
            yield Finish(Stop())

    return layer


async def test_the_second_wins(autojump_clock: MockClock) -> None:
    wire = paced(a=9, b=1)
    stream = wire.stream(logged("out", wire.log), hedge(2), logged("in", wire.log))
    async with stream:
        seen = await read(stream)
        assert trio.current_time() == 5
    assert seen.texts == ["m/b:x", "m/b:y"]
    assert "close m/a @3" in wire.log
    assert stream.message is not None
    assert stream.message.content == (TextBlock("m/b:xm/b:y"),)
    assert stream.message.source == ModelSource("p", "m/b", None)
    assert (stream.finish, stream.origin) == (Stop(), "provider")
    loser, winner = stream.settlements
    assert (loser.model, loser.origin, loser.finish.kind) == ("m/a", "middleware", "aborted")
    assert (winner.model, winner.origin, winner.finish) == ("m/b", "provider", Stop())
    assert_nothing_left(stream, wire)


async def test_the_first_wins_late(autojump_clock: MockClock) -> None:
    """The message is the winner's, though another attempt began after it."""
    wire = paced(a=3, b=9)
    stream = wire.stream(hedge(2), pass_through)
    async with stream:
        seen = await read(stream)
    assert seen.texts == ["m/a:x", "m/a:y"]
    assert stream.message is not None
    assert stream.message.source == ModelSource("p", "m/a", None)
    assert [(record.model, record.origin) for record in stream.settlements] == [
        ("m/a", "provider"),
        ("m/b", "middleware"),
    ]
    assert_nothing_left(stream, wire)


async def test_the_first_answers_in_time(autojump_clock: MockClock) -> None:
    wire = paced(a=1)
    async with wire.stream(hedge(2)) as stream:
        assert (await read(stream)).texts == ["m/a:x", "m/a:y"]
    assert len(stream.settlements) == 1
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("how", ["leave", "leave later", "ambient"])
async def test_leaving_while_the_winner_streams(autojump_clock: MockClock, how: str) -> None:
    """The loser that began last was dropped; what is recorded is the leaving, and the winner's text."""
    wire = paced(a=3, b=9)
    stream = wire.stream(hedge(2))
    with trio.move_on_after(3.5):
        async with stream:
            await stream.receive()
            if how == "ambient":
                await stream.receive()
            elif how == "leave later":
                await trio.sleep(0.25)
    assert isinstance(stream.finish, Aborted)
    assert stream.origin == ("ambient" if how == "ambient" else "consumer")
    assert stream.partial == (TextBlock("m/a:x"),)
    assert [record.origin for record in stream.settlements] == [stream.origin, "middleware"]
    assert_nothing_left(stream, wire)


async def test_abort_while_both_run(autojump_clock: MockClock) -> None:
    wire = paced(a=9, b=9)
    stream = wire.stream(pass_through, hedge(2), pass_through)
    seen, ended = await read_and_abort(stream, 3.5)
    assert (seen.texts, seen.aborted, ended) == ([], True, 3.5)
    assert [record.origin for record in stream.settlements] == ["signal", "signal"]
    assert stream.origin == "signal"
    assert_nothing_left(stream, wire)


async def test_ambient_cancellation_while_both_run(autojump_clock: MockClock) -> None:
    wire = paced(a=9, b=9)
    stream = wire.stream(pass_through, hedge(2), logged("in", wire.log))
    with trio.move_on_after(3.5) as scope:
        async with stream:
            await read(stream)
    assert scope.cancelled_caught
    assert [record.origin for record in stream.settlements] == ["ambient", "ambient"]
    assert wire.log.count("in closed") == 2
    assert_nothing_left(stream, wire)


async def test_an_aborted_call_starts_no_entrant(autojump_clock: MockClock) -> None:
    async def late(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            if not isinstance(chunk, Finish):
                yield chunk
        race = next.race()
        race.start(on(options, "late"))
        try:
            while True:
                yield (await race.receive())[1]
        except trio.EndOfChannel:
            pass

    async def waits_first(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        if options.model.endswith("late"):
            await trio.sleep(60)
        async for chunk in next(options):
            yield chunk

    wire = Wire(playing((1, "x"), (0, None)))
    stream = wire.stream(late, waits_first)
    seen, ended = await read_and_abort(stream, 2)
    assert (seen.texts, seen.aborted, ended) == (["m:x"], True, 2)
    assert len([entry for entry in wire.log if entry.startswith("open")]) == 1
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("outcome", ["received", "left"])
async def test_a_layer_inside_a_leg_raises(autojump_clock: MockClock, outcome: str) -> None:
    wire = paced(a=1)
    stream = wire.stream(pass_through, hedge(9), raiser)
    if outcome == "received":
        async with stream:
            with pytest.raises(LayerBug):
                await read(stream)
    else:
        with pytest.raises(LayerBug):
            async with stream:
                await trio.sleep(5)
    assert_nothing_left(stream, wire)


async def test_a_layer_may_go_on_after_a_legs_exception(autojump_clock: MockClock) -> None:
    async def forgiving(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        race = next.race()
        bad, good = race.start(on(options, "bad")), race.start(on(options, "good"))
        with pytest.raises(LayerBug):
            await race.receive()
        assert bad.finished.is_set()
        race.keep(good)
        try:
            while True:
                yield (await race.receive())[1]
        except trio.EndOfChannel:
            pass

    async def picky(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            if options.model.endswith("bad"):
                raise LayerBug
            yield chunk

    wire = Wire(lambda name: [(1 if name.endswith("bad") else 2, "x"), DONE])
    async with wire.stream(forgiving, picky) as stream:
        assert (await read(stream)).texts == ["mgood:x"]
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("when", ["before it lost", "while it is given up"])
async def test_the_exception_of_a_losing_leg_is_not_lost(autojump_clock: MockClock, when: str) -> None:
    bug = LayerBug("in the losing leg")

    async def flawed(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        try:
            async for chunk in next(options):
                if options.model.endswith("b") and when == "before it lost":
                    raise bug
                yield chunk
        finally:
            if options.model.endswith("b") and when == "while it is given up":
                raise bug

    async def first_of_two(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        race = next.race()
        a, _ = race.start(on(options, "a")), race.start(on(options, "b"))
        entrant, chunk = await race.receive()
        assert entrant is a
        yield chunk
        await trio.sleep(0.5)
        race.keep(a)
        try:
            while True:
                yield (await race.receive())[1]
        except trio.EndOfChannel:
            pass

    wire = paced(a=1, b=1.25)
    stream = wire.stream(first_of_two, flawed)
    with pytest.raises(LayerBug) as caught:
        async with stream:
            assert (await read(stream)).texts == ["ma:x", "ma:y"]
    assert caught.value is bug
    assert_nothing_left(stream, wire)


async def test_when_all_legs_are_over_the_race_is(autojump_clock: MockClock) -> None:
    ended: list[float] = []

    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        race = next.race()
        with pytest.raises(trio.EndOfChannel):
            await race.receive()
        entrants = [race.start(on(options, name)) for name in "ab"]
        finishes = 0
        while finishes < 2:
            entrant, chunk = await race.receive()
            assert entrant in entrants
            assert isinstance(chunk, (Finish, TextDelta))
            finishes += isinstance(chunk, Finish)
        for _ in range(2):
            with pytest.raises(trio.EndOfChannel):
                await race.receive()
        ended.append(trio.current_time())
        yield Finish(Stop())

    wire = paced(a=1, b=2)
    async with wire.stream(layer, pass_through) as stream:
        await read(stream)
    assert ended == [4]
    assert_nothing_left(stream, wire)


async def test_a_receive_that_is_cut_short_loses_nothing(autojump_clock: MockClock) -> None:
    async def restless(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        race = next.race()
        race.start(on(options, "a"))
        race.start(on(options, "b"))
        while True:
            try:
                with trio.move_on_after(0.25):  # ends in the very instant in which data comes, too
                    chunk = (await race.receive())[1]
                    if not isinstance(chunk, Finish):
                        got.append(chunk)
            except trio.EndOfChannel:
                break
        for chunk in got:
            yield chunk
        yield Finish(Stop())

    got: list[StreamChunk] = []
    words = [str(number) for number in range(20)]
    wire = Wire(playing(*[(0.5, word) for word in words], DONE))
    async with wire.stream(restless, pass_through) as stream:
        seen = await read(stream)
    assert [text for text in seen.texts if text.startswith("ma")] == [f"ma:{word}" for word in words]
    assert [text for text in seen.texts if text.startswith("mb")] == [f"mb:{word}" for word in words]
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("buffer", [0, 1, 3])
async def test_entrants_wait_for_a_layer_that_is_behind(autojump_clock: MockClock, buffer: int) -> None:
    sent = 0

    async def produce(options: GenerateOptions, sink: ChunkSink) -> None:
        nonlocal sent
        for number in range(50):
            await sink.send(TextDelta(0, str(number)))
            sent += 1
        await sink.send(Finish(Stop()))

    async def slow(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        race = next.race()
        race.start(options)
        await trio.sleep(1)
        assert sent <= 2 * buffer + 4
        try:
            while True:
                yield (await race.receive())[1]
        except trio.EndOfChannel:
            pass

    wire = Wire(playing())
    wire.produce = produce  # type: ignore[method-assign]  # a wire without any pauses
    with trio.fail_after(100):
        async with wire.stream(slow, buffer=buffer) as stream:
            assert (await read(stream)).texts == [str(number) for number in range(50)]
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("how", ["abort", "ambient", "leave"])
async def test_entrants_that_wait_for_room_end_too(autojump_clock: MockClock, how: str) -> None:
    wire = Wire(playing(*[(0, str(number)) for number in range(50)], DONE))
    stream = wire.stream(pass_through, all_of("a", "b"), pass_through, buffer=1)
    with trio.move_on_after(1.5):
        async with stream:
            await trio.sleep(1)
            if how == "abort":
                stream.abort()
                seen = Seen()
                await read(stream, seen)
                assert seen.finishes
            elif how == "ambient":
                await trio.sleep_forever()
    assert_nothing_left(stream, wire)


async def test_a_given_up_leg_is_over_when_the_race_is_closed(autojump_clock: MockClock) -> None:
    """A retry above a race holds the attempts of one leg at a time, however slowly they close."""

    async def second_thought(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for _ in next(on(options, "#0")):
            break
        assert wire.sockets == 2
        async for chunk in next(on(options, "#1")):
            assert wire.sockets == 2 or isinstance(chunk, Finish)
            yield chunk

    wire = Wire(playing((1, "x"), (1, "y"), DONE), closing=0.5)
    stream = wire.stream(second_thought, all_of("a", "b"), pass_through)
    async with stream:
        seen = await read(stream)
    assert len(seen.texts) == 4
    assert wire.most_sockets == 2
    opened = [entry for entry in wire.log if entry.startswith("open m#1")]
    assert [entry.split("@")[1] for entry in opened] == ["1.5", "1.5"]
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("then", ["leg", "race"])
async def test_what_a_layer_pulls_after_a_race_closes_it(autojump_clock: MockClock, then: str) -> None:
    races: list[Race] = []

    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        race = next.race()
        races.append(race)
        race.start(on(options, "a"))
        await race.receive()
        if then == "leg":
            async for chunk in next(on(options, "b")):
                yield chunk
        else:
            second = next.race()
            second.start(on(options, "b"))
            try:
                while True:
                    yield (await second.receive())[1]
            except trio.EndOfChannel:
                pass
        with pytest.raises(trio.ClosedResourceError):
            race.start(options)
        with pytest.raises(trio.EndOfChannel):
            await race.receive()

    wire = Wire(playing((1, "x"), (1, "y"), DONE), closing=0.5)
    async with wire.stream(layer, pass_through) as stream:
        assert (await read(stream)).texts == ["mb:x", "mb:y"]
    assert wire.most_sockets == 1
    assert_nothing_left(stream, wire)


async def test_a_race_after_a_leg_waits_until_the_leg_is_closed(autojump_clock: MockClock) -> None:
    """Else a limiter below, whose slot the previous leg holds, would let no entrant run."""

    async def then_race(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for _ in next(on(options, "#0")):
            break
        race = next.race()
        entrant = race.start(on(options, "#1"))
        await trio.sleep(1)
        assert wire.log == ["open m#0 @0"]
        race.keep(entrant)
        try:
            while True:
                yield (await race.receive())[1]
        except trio.EndOfChannel:
            pass

    wire, semaphore = Wire(playing((1, "x"), (1, "y"), DONE)), trio.Semaphore(1)
    stream = wire.stream(then_race, limit(semaphore), pass_through)
    with trio.fail_after(50):
        async with stream:
            assert (await read(stream)).texts == ["m#1:x", "m#1:y"]
    assert (wire.most_sockets, semaphore.value) == (1, 1)
    assert_nothing_left(stream, wire)


async def test_a_race_that_was_only_prepared(autojump_clock: MockClock) -> None:
    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(on(options, "#0")):
            yield chunk
            break
        next.race().start(on(options, "#1"))
        yield Finish(Stop())

    async with (wire := Wire(playing((1, "x"), (1, "y"), DONE))).stream(layer, pass_through) as stream:
        assert (await read(stream)).texts == ["m#0:x"]
    assert wire.log == ["open m#0 @0", "close m#0 @1"]
    assert_nothing_left(stream, wire)


async def test_an_entrant_given_up_before_it_ran_starts_nothing(autojump_clock: MockClock) -> None:
    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        race = next.race()
        a, b = race.start(on(options, "a")), race.start(on(options, "b"))
        race.keep(b)
        assert isinstance(a, Entrant)
        assert (a.given_up, b.given_up) == (True, False)
        assert a.options.model == "ma"
        try:
            while True:
                yield (await race.receive())[1]
        except trio.EndOfChannel:
            pass

    async with (wire := paced(a=1, b=1)).stream(layer, logged("in", [])) as stream:
        assert (await read(stream)).texts == ["mb:x", "mb:y"]
    assert wire.log == ["open mb @0", "close mb @3"]
    assert [record.model for record in stream.settlements] == ["mb"]
    assert_nothing_left(stream, wire)


@pytest.mark.parametrize("how", ["end", "abort", "ambient"])
async def test_races_inside_races(autojump_clock: MockClock, how: str) -> None:
    wire = Wire(playing((1, "x"), (1, "y"), DONE), closing=0.25)
    stream = wire.stream(hedge(0.5), all_of("1", "2"), pass_through)
    with trio.move_on_after(1.5 if how == "ambient" else 100):
        if how == "abort":
            seen, ended = await read_and_abort(stream, 0.75)
            assert (seen.aborted or seen.finish == Finish(Stop()), ended) == (True, 1)
        else:
            async with stream:
                seen = await read(stream)
            assert sorted(seen.texts) == ["m/a1:x", "m/a1:y", "m/a2:x", "m/a2:y"]
    assert wire.most_sockets == 4
    assert_nothing_left(stream, wire)


async def test_a_retry_inside_every_leg(autojump_clock: MockClock) -> None:
    wire = Wire(lambda name: [(1, server_error())] if not name.endswith("#2") else [(1, "x"), DONE])
    async with wire.stream(hedge(0.5), retry, smooth(0.25)) as stream:
        seen = await read(stream)
    assert seen.texts == ["m/a#2:x"]
    assert stream.message is not None
    assert stream.message.source == ModelSource("p", "m/a#2", None)
    assert_nothing_left(stream, wire)


async def test_an_interrupt_in_a_leg_passes_bare(autojump_clock: MockClock) -> None:
    async def interrupted(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            yield chunk
            raise KeyboardInterrupt

    stream = (wire := paced(a=1, b=1)).stream(hedge(0.5), interrupted)
    with pytest.raises(KeyboardInterrupt):
        async with stream:
            await read(stream)
    assert_nothing_left(stream, wire)


async def test_usage_is_the_winners(autojump_clock: MockClock) -> None:
    async def produce(options: GenerateOptions, sink: ChunkSink) -> None:
        a = options.model.endswith("a")
        sink.note_usage(TokenUsage(1, 1))
        await trio.sleep(3 if a else 9)
        await sink.send_batch([TextDelta(0, "x"), Usage(TokenUsage(5, 5)), Finish(Stop())])

    wire = Wire(playing())
    wire.produce = produce  # type: ignore[method-assign]  # one that notes usage
    async with wire.stream(hedge(2)) as stream:
        await read(stream)
    assert stream.usage == TokenUsage(5, 5)
    assert [(record.usage, record.usage_state) for record in stream.settlements] == [
        (TokenUsage(5, 5), "reported"),
        (TokenUsage(1, 1), "early"),
    ]
