"""One watchdog for many calls."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Error, TextDelta
from trio_llm.model.policy import DEFAULT_TIMEOUTS, NormalRetry, Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.selection import Selection
from trio_llm.streaming.stream import ChunkStream
from trio_llm.streaming.watchdog import Watchdog

from .support import options


def stalled(watchdog: Watchdog, idle: float) -> ChunkStream:
    """A stream whose provider says one thing and then nothing."""

    async def produce(_: GenerateOptions, sink: ChunkSink) -> None:
        await sink.send_batch([TextDelta(0, "x")])
        await trio.sleep_forever()

    selection = Selection(
        provider="p",
        model="m",
        produce=produce,
        timeouts=Timeouts(idle=idle).over(DEFAULT_TIMEOUTS),
        retry_policy=NormalRetry(),
    )
    return ChunkStream(options(), lambda _: selection, watchdog=watchdog)


async def test_each_call_expires_in_its_own_time(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    watchdog = Watchdog()
    nursery.start_soon(watchdog.run)
    ended: dict[float, float] = {}

    async def call(idle: float) -> None:
        async with stalled(watchdog, idle) as stream:
            async for _ in stream:
                pass
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == codes.TIMEOUT
        ended[idle] = trio.current_time()

    async with trio.open_nursery() as calls:
        for idle in (7.0, 3.0, 5.0, 3.5):
            calls.start_soon(call, idle)
    assert ended == {3.0: 3.0, 3.5: 3.5, 5.0: 5.0, 7.0: 7.0}
    watchdog.stop()


async def test_a_call_in_a_shield_is_watched_though_all_around_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    watchdog = Watchdog()
    with trio.CancelScope() as around:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watchdog.run)
            around.cancel()
            with trio.CancelScope(shield=True):
                async with stalled(watchdog, 3) as stream:
                    async for _ in stream:
                        pass
            watchdog.stop()
    assert stream.origin == "idle"
    assert trio.current_time() == 3


async def test_a_call_that_is_over_leaves_one_deadline_at_most(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    watchdog = Watchdog()
    nursery.start_soon(watchdog.run)
    for _ in range(3):
        async with stalled(watchdog, 3) as stream:
            await stream.receive()
        await trio.sleep(0.5)
    await trio.sleep(5)
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf")
    watchdog.stop()


async def test_it_may_be_stopped_before_it_runs(nursery: trio.Nursery) -> None:
    watchdog = Watchdog()
    watchdog.stop()
    with trio.fail_after(5):
        await watchdog.run()
