"""Runs the reference model's schedules through the engine, under a mock clock."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

import pytest
import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Aborted, Error, Finish, Stop, StreamChunk, TextDelta
from trio_llm.model.failures import LlmError
from trio_llm.model.messages import create_user_message
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.model.signal import AbortSignal
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.lanes import Next
from trio_llm.streaming.selection import Middleware, Selection
from trio_llm.streaming.stream import ChunkStream
from trio_llm.streaming.watchdog import Watchdog

from .reference import INF, Expected, Schedule, Verdict, expect, random_schedule


async def pass_through(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
    async for chunk in next(options):
        yield chunk


class BodyError(Exception):
    """What a body that leaves by raising raises."""


def verdict_of(finish: object, origin: str) -> Verdict:
    match finish:
        case Error(failure) | Aborted(failure):
            return failure.code, origin
        case Stop():
            return "stop", origin
    raise AssertionError(f"unexpected finish {finish!r}")


async def run_schedule(
    schedule: Schedule, clock: MockClock, layers: Sequence[Middleware]
) -> tuple[Verdict, list[int], Verdict | str | None, int]:
    """Returns the recorded verdict, the chunks seen, how the loop ended, and how many tasks are left."""
    start = math.ceil(trio.current_time()) + 1
    await trio.sleep_until(start)
    signal = AbortSignal()
    seen: list[int] = []
    how: object = None
    async with trio.open_nursery() as nursery:
        read = _wire(schedule, start, nursery)

        async def produce(options: GenerateOptions, sink: ChunkSink) -> None:
            count = 0
            while True:
                match await read():
                    case "E":
                        await sink.send_batch([TextDelta(count, "")])
                        count += 1
                    case "C":
                        sink.alive()
                    case "F":
                        await sink.send_batch([TextDelta(count, ""), Finish(Stop())])
                        return
                    case "X":
                        raise LlmError("wire", codes.TRANSPORT)
                    case _:
                        return

        selection = Selection(
            provider="p", model="m", produce=produce, timeouts=_timeouts(schedule), retry_policy=NormalRetry()
        )
        options = GenerateOptions(provider="p", model="m", messages=[create_user_message("?")], signal=signal)
        watchdog = Watchdog()
        nursery.start_soon(watchdog.run)
        stream = ChunkStream(options, lambda _: selection, layers, watchdog=watchdog, buffer=schedule.buffer)
        outer = trio.CancelScope()
        _disturb(schedule, start, nursery, stream, signal, outer, clock)
        mine = BodyError()
        with trio.move_on_after(200) as stuck:
            with outer:
                try:
                    async with stream:
                        how = await _consume(schedule, start, stream, seen, mine)
                except BodyError as error:
                    how = "left" if error is mine and error.__cause__ is None else "another exception"
        if stuck.cancelled_caught:
            how = "STUCK"
        elif outer.cancelled_caught:
            how = "Cancelled"
        left_over = len(stream._call.nursery.child_tasks)
        watchdog.stop()
        nursery.cancel_scope.cancel()
    assert stream.origin is not None
    recorded = verdict_of(stream.finish, stream.origin)
    if isinstance(how, Finish):
        return recorded, seen, verdict_of(how.reason, stream.origin), left_over
    return recorded, seen, str(how), left_over


async def _consume(
    schedule: Schedule, start: float, stream: ChunkStream, seen: list[int], mine: BodyError
) -> object:
    if schedule.never_reads_until is not None:
        await trio.sleep_until(start + schedule.never_reads_until)
        return "left"
    while True:
        chunk = await stream.receive()
        if isinstance(chunk, Finish):
            return chunk
        assert isinstance(chunk, TextDelta)
        seen.append(chunk.index)
        if schedule.think[len(seen) - 1]:
            await trio.sleep(schedule.think[len(seen) - 1])
        if len(seen) == schedule.leave_after:
            if schedule.leave_by == "raise":
                raise mine
            return "left"


def _timeouts(schedule: Schedule) -> Timeouts:
    def off(seconds: int | None) -> float:
        return INF if seconds is None else seconds

    return Timeouts(
        connect=INF,
        first_event=off(schedule.first_event),
        idle=1e9 if schedule.idle is None else schedule.idle,
        progress=off(schedule.progress),
        total=off(schedule.total),
    )


def _wire(schedule: Schedule, start: float, nursery: trio.Nursery):  # type: ignore[no-untyped-def]
    """A ``read()`` that gives the schedule's items, directly or through relay channels."""
    if not schedule.relays:
        items = iter(schedule.items)

        async def read_directly() -> str:
            item = next(items, None)
            if item is None:
                await trio.sleep_forever()
                raise AssertionError
            await trio.sleep_until(start + item[0])
            return item[1]

        return read_directly
    send, receive = trio.open_memory_channel[str](math.inf)

    async def server(channel: trio.MemorySendChannel[str]) -> None:
        for time, kind in schedule.items:
            await trio.sleep_until(start + time)
            channel.send_nowait(kind)

    if schedule.relays == 1:
        nursery.start_soon(server, send)
    else:
        first, second = trio.open_memory_channel[str](math.inf)

        async def relay() -> None:
            async for kind in second:
                send.send_nowait(kind)

        nursery.start_soon(server, first)
        nursery.start_soon(relay)
    return receive.receive


def _disturb(
    schedule: Schedule,
    start: float,
    nursery: trio.Nursery,
    stream: ChunkStream,
    signal: AbortSignal,
    outer: trio.CancelScope,
    clock: MockClock,
) -> None:
    """Start what disturbs the call: abort, ambient cancellation, a stalled loop."""
    if schedule.abort is not None:
        abort = stream.abort if schedule.abort_through == "stream" else signal.abort
        when = start + schedule.abort

        async def aborter() -> None:
            await trio.sleep_until(when)
            abort("because")

        nursery.start_soon(aborter)
    if schedule.stall is not None:
        after, seconds = schedule.stall

        async def stall() -> None:
            await trio.sleep_until(start + after)
            clock.jump(seconds)

        nursery.start_soon(stall)
    if schedule.ambient is not None:
        cancel_at = start + schedule.ambient
        if schedule.ambient_by == "deadline":
            outer.deadline = cancel_at
        else:

            async def canceller() -> None:
                await trio.sleep_until(cancel_at)
                outer.cancel()

            nursery.start_soon(canceller)


def acceptable(
    expected: Expected, recorded: Verdict, seen: list[int], how: Verdict | str | None, *, layered: bool
) -> bool:
    """Whether the engine did what the model says."""
    right = recorded == expected.recorded
    if (
        not right
        and how == "left"
        and expected.recorded[1] in ("ambient", "signal")
        and recorded[1] == "consumer"
    ):
        right = expected.may_be_left_instead
    if not right and layered and expected.recorded[1] == "consumer":
        right = recorded == expected.taken_in_leaving
    return right and expected.allows(seen, how)


async def compare(seeds: range, clock: MockClock, *, layers: int) -> tuple[int, list[str]]:
    """Run the schedules of some seeds; returns how many were compared, and the disagreements."""
    compared, disagreements = 0, list[str]()
    for seed in seeds:
        schedule = random_schedule(seed, deep_buffer=layers > 0)
        expected = expect(schedule)
        if expected is None:
            continue
        compared += 1
        recorded, seen, how, left_over = await run_schedule(schedule, clock, [pass_through] * layers)
        if left_over or not acceptable(expected, recorded, seen, how, layered=layers > 0):
            disagreements.append(
                f"seed {seed}: {schedule}\n  want {expected.recorded} {expected.endings}\n"
                f"  got {recorded} seen {seen} ended {how} tasks left {left_over}"
            )
    return compared, disagreements


Layers: TypeAlias = Sequence[Middleware]

both = pytest.mark.parametrize("layers", [(), (pass_through, pass_through)], ids=["bare", "layers"])
"""With and without layers, for tests whose outcome is the same."""
