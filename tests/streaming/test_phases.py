"""The phase clocks: what counts when, and that a thinking consumer stops them."""

from __future__ import annotations

import math

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Error, Finish, Stop, TextDelta
from trio_llm.model.policy import DEFAULT_TIMEOUTS, Timeouts
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.phases import PhaseClock

from .schedules import compare
from .support import Producer, open_stream, text_deltas, text_ending


async def outcome(producer: Producer, timeouts: Timeouts, *, think: float = 0, buffer: int = 16) -> str:
    """How the stream ends and when: "idle @ 3" or "stop @ 5"."""
    async with open_stream(producer, timeouts=timeouts, buffer=buffer) as stream:
        async for chunk in stream:
            if think and isinstance(chunk, TextDelta):
                await trio.sleep(think)
        at = trio.current_time()
        if isinstance(stream.finish, Error):
            assert stream.finish.failure.code == codes.TIMEOUT
    return f"{stream.origin if stream.finish != Stop() else 'stop'} @ {at:g}"


async def test_connect_covers_the_wait_for_a_connection_and_nothing_else(autojump_clock: MockClock) -> None:
    async def producer(sink: ChunkSink) -> None:
        sink.connecting()
        await trio.sleep(connect)
        sink.connected()
        await trio.sleep(upload)
        sink.sent()
        await trio.sleep(answer)
        await sink.send_batch(text_ending("")[-1:])

    limits = Timeouts(connect=3, first_event=4, idle=10)
    connect, upload, answer = 3.5, 0.0, 0.0
    assert await outcome(producer, limits) == "connect @ 3"
    connect, upload, answer = 2, 5, 3
    assert await outcome(producer, limits) == "stop @ 13"
    connect, upload, answer = 1, 0, 5
    assert await outcome(producer, limits) == "first_event @ 18"
    connect, upload, answer = 1, 11, 0  # idle counts the upload too
    assert await outcome(producer, limits) == "idle @ 29"


async def test_the_connect_phase_may_be_longer_than_the_idle_time(autojump_clock: MockClock) -> None:
    async def producer(sink: ChunkSink) -> None:
        sink.connecting()
        await trio.sleep(8)
        sink.connected()
        sink.sent()
        await trio.sleep(1.5)
        await sink.send_batch(text_ending("")[-1:])

    assert await outcome(producer, Timeouts(idle=2)) == "stop @ 9.5"


async def test_bytes_reset_idle_but_not_progress(autojump_clock: MockClock) -> None:
    async def comments(sink: ChunkSink) -> None:
        while True:
            await trio.sleep(1)
            sink.alive()

    assert await outcome(comments, Timeouts(idle=2, progress=7)) == "progress @ 7"


async def test_progress_applies_before_the_first_event_only_if_first_event_is_off(
    autojump_clock: MockClock,
) -> None:
    async def producer(sink: ChunkSink) -> None:
        await trio.sleep(6)
        await sink.send_batch(text_deltas("x"))
        await trio.sleep_forever()

    assert await outcome(producer, Timeouts(progress=5)) == "progress @ 5"
    assert await outcome(producer, Timeouts(progress=5, first_event=20)) == "progress @ 16"


async def test_a_model_event_without_a_chunk_is_progress(autojump_clock: MockClock) -> None:
    async def producer(sink: ChunkSink) -> None:
        for _ in range(5):
            await trio.sleep(4)
            await sink.send_batch(())
        await sink.send_batch(text_ending("")[-1:])

    assert await outcome(producer, Timeouts(progress=5, first_event=5, idle=5)) == "stop @ 20"


async def test_a_clock_due_earlier_after_the_first_event(autojump_clock: MockClock) -> None:
    async def producer(sink: ChunkSink) -> None:
        await trio.sleep(1)
        await sink.send_batch(text_deltas("x"))
        await trio.sleep_forever()

    assert await outcome(producer, Timeouts(progress=2, first_event=100)) == "progress @ 3"


@pytest.mark.parametrize("buffer", [0, 1, 4])
async def test_a_consumer_that_thinks_never_times_out(autojump_clock: MockClock, buffer: int) -> None:
    async def producer(sink: ChunkSink) -> None:
        for number in range(12):
            await trio.sleep(1)
            await sink.send_batch([TextDelta(0, str(number))])
        await sink.send_batch(text_ending("")[-1:])

    limits = Timeouts(idle=2, progress=2, total=20)
    assert (await outcome(producer, limits, think=50, buffer=buffer)).startswith("stop")


async def test_the_clock_goes_on_behind_a_send_that_the_adapter_itself_gave_up(
    autojump_clock: MockClock,
) -> None:
    async def producer(sink: ChunkSink) -> None:
        for _ in range(2):
            with trio.move_on_after(1):
                await sink.send_batch([TextDelta(0, "x")])
        await trio.sleep_forever()

    with trio.fail_after(1000):
        assert await outcome(producer, Timeouts(idle=5), think=20, buffer=0) == "idle @ 40"


async def test_the_clock_runs_on_while_batches_wait_in_the_channel(autojump_clock: MockClock) -> None:
    async def producer(sink: ChunkSink) -> None:
        await sink.send_batch(text_deltas("x"))
        await trio.sleep_forever()

    assert await outcome(producer, Timeouts(idle=3), think=10) == "idle @ 10"


async def test_an_attempt_that_drains_longer_than_its_grace_is_cut(autojump_clock: MockClock) -> None:
    ended: list[float] = []

    async def producer(sink: ChunkSink) -> None:
        await sink.send_batch(text_ending("")[-1:])
        try:
            await trio.sleep(10)
        finally:
            ended.append(trio.current_time())

    async with open_stream(producer) as stream:
        assert await stream.receive() == Finish(Stop())
        assert trio.current_time() == 0
    assert ended == [0.05]
    assert stream.finish == Stop()


def test_timeouts_are_checked() -> None:
    for name in ("connect", "first_event", "idle", "progress", "total"):
        for bad in (0, -1, math.nan, -math.inf, "3", True):
            with pytest.raises(ValueError, match=name):
                Timeouts(**{name: bad})  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="idle"):
        Timeouts(idle=math.inf)
    assert Timeouts(total=math.inf).total == math.inf
    assert Timeouts(idle=5).over(DEFAULT_TIMEOUTS) == Timeouts(
        connect=30, first_event=math.inf, idle=5, progress=math.inf, total=math.inf
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["byte", "event", "pause", "resume", "connecting", "connected", "sent"]),
        st.integers(0, 5),
    ),
    max_size=12,
)


@given(STEPS)
def test_nothing_but_the_first_event_and_marks_makes_a_due_time_earlier(steps: list[tuple[str, int]]) -> None:
    """Whoever does must wake the watchdog; plain data need not."""
    clock, now = PhaseClock(Timeouts(connect=4, first_event=9, idle=5, progress=6, total=30), 0), 0.0
    for kind, wait in steps:
        now += wait
        before = clock.due()[0]
        match kind:
            case "byte":
                clock.last_byte = clock.provider_time(now)
            case "event":
                first = clock.last_event is None
                clock.last_byte = clock.last_event = clock.provider_time(now)
                if first:
                    continue
            case "pause":
                clock.pause(now)
            case _:
                getattr(clock, kind)(now)
                continue
        assert clock.due()[0] >= before or clock._paused_at is not None


@pytest.mark.parametrize("mistake", ["no settling", "paused clock runs", "leaving outranks abort"])
def test_the_model_catches_deliberate_mistakes(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mistake == "no settling":
        monkeypatch.setattr("trio_llm.streaming.watchdog.SETTLE_CHECKPOINTS", 0)
    elif mistake == "paused clock runs":
        monkeypatch.setattr(PhaseClock, "pause", lambda clock, now: None)
    else:
        monkeypatch.setattr(
            "trio_llm.streaming.attempt.first_cause",
            lambda causes: min(
                (cause for cause in causes if cause),
                key=lambda cause: (cause.time, -cause.rank),
                default=None,
            ),
        )
    clock = MockClock(autojump_threshold=0)

    async def main() -> tuple[int, list[str]]:
        return await compare(range(400), clock, layers=0)

    _, disagreements = trio.run(main, clock=clock)
    assert disagreements
