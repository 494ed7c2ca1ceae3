"""Cancels a call at each of its steps, and judges what came of it by the cancellation table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import attrs
import trio
from trio._core import _run as scheduler
from trio.testing import MockClock

from trio_llm.model.chunks import Aborted, Finish, StreamChunk, ToolCalls
from trio_llm.model.signal import AbortSignal
from trio_llm.streaming.stream import ChunkStream
from trio_llm.testing.wire_server import WireServer

from ..runtime.test_leaks import tasks_below
from ..transport.http_parts import server_tls
from .house import QUIET, House, every_generator_ends, partial_texts, substance, texts
from .shapes import SCHEMES, SHAPES, Scheme, Shape

Act: TypeAlias = Literal["abort", "signal", "cancel", "deadline", "past", "runtime"]
"""``past`` sets a scope's deadline to minus infinity; ``runtime`` cancels around the whole runtime."""

ACTS: tuple[Act, ...] = get_args(Act)

Start: TypeAlias = Literal["fresh", "reused", "queued"]
"""What the call finds: no connection, an idle one, or the only one that may be in use by another call."""

STARTS: tuple[Start, ...] = get_args(Start)

TICK = 2.0**-20
"""How long a pass of the event loop takes, in seconds: what one pass sees is of one instant."""

NO_WAIT = 1000 * TICK
"""Less than any clock of the library counts: what takes longer has waited for one."""


@attrs.frozen
class Cell:
    """One row of the product of what can differ between two sweeps."""

    shape: Shape
    scheme: Scheme
    layers: int
    start: Start
    act: Act

    def __str__(self) -> str:
        return f"{self.shape.name}-{self.scheme}-{self.layers}-layers-{self.start}-{self.act}"


CELLS = [
    Cell(shape, scheme, layers, start, act)
    for shape, scheme, layers, start, act in itertools.product(SHAPES, SCHEMES, (0, 2), STARTS, ACTS)
]


class AtStep(trio.abc.Instrument):
    """Counts task steps, those of the server too, and acts before the n-th. Makes the clock tick."""

    def __init__(self, clock: MockClock, step: float, act: Callable[[], object]) -> None:
        self._clock = clock
        self._step = step
        self._act = act
        self.steps = 0
        self.acted_at: float | None = None

    def after_io_wait(self, timeout: float) -> None:
        self._clock.jump(TICK)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps == self._step:
            self.acted_at = trio.current_time()
            self._act()


@attrs.define
class Call:
    """One call, and what its consumer saw.

    Attributes:
        looped: the loop over the chunks came to its end.
        left_at: when the stream had been left.
        cancelled: a scope around the stream caught Cancelled.
    """

    stream: ChunkStream
    seen: list[StreamChunk] = attrs.field(factory=list)
    looped: bool = False
    left_at: float = math.nan
    cancelled: bool = False


def sweep(cell: Cell, seed: int = 0) -> int:
    """Cancel at step 1, 2, ... until the call is over before; returns how many steps it has.

    Args:
        seed: of the order in which the event loop runs the tasks of one pass.
    """
    clock = MockClock(autojump_threshold=QUIET)
    return trio.run(_sweep, cell, seed, clock, clock=clock)


async def _sweep(cell: Cell, seed: int, clock: MockClock) -> int:
    tls = server_tls() if cell.scheme == "https" else None
    steps = 0

    async def client() -> None:
        nonlocal steps
        whole, instrument = await _run(cell, seed, server, clock, math.inf)
        steps = instrument.steps
        assert isinstance(whole.stream.finish, ToolCalls)
        for step in itertools.count(1):
            try:
                call, instrument = await _run(cell, seed, server, clock, step)
                judge(cell, call, instrument.acted_at, whole.seen)
            except BaseException as error:
                error.add_note(f"{cell}, seed {seed}, cancelled at step {step}")
                raise
            if instrument.acted_at is None:
                break

    async with WireServer(cell.shape.answer(), tls=tls) as server, trio.open_nursery() as nursery:
        nursery.start_soon(client)
    return steps


async def _run(
    cell: Cell, seed: int, server: WireServer, clock: MockClock, step: float
) -> tuple[Call, AtStep]:
    """One call in a runtime of its own, cancelled at ``step``; checks that nothing is left of either."""
    scheduler._r.seed(seed)  # trio shuffles the tasks of a pass
    house = House(server, cell.shape.adapter, cell.layers, 1 if cell.start == "queued" else None)
    signal = AbortSignal()
    around_runtime, around_stream = trio.CancelScope(), trio.CancelScope()
    call: Call | None = None

    def act() -> None:
        assert call is not None
        match cell.act:
            case "abort":
                call.stream.abort("because")
            case "signal":
                signal.abort("because")
            case "cancel":
                around_stream.cancel()
            case "deadline":
                around_stream.deadline = trio.current_time()
            case "past":
                around_stream.deadline = -math.inf
            case "runtime":
                around_runtime.cancel()

    instrument = AtStep(clock, step, act)
    with every_generator_ends():
        with around_runtime:
            async with house.runtime as runtime:
                if cell.start == "reused":
                    await house.good_call(cell.shape.request())
                    assert house.transport.idle_connections == 1
                tasks = len(tasks_below(trio.lowlevel.current_task()))
                async with trio.open_nursery() as beside:
                    if cell.start == "queued":
                        beside.start_soon(house.good_call, cell.shape.request())
                        await server.wait_request()
                    call = Call(runtime.stream(cell.shape.request(signal)))
                    trio.lowlevel.add_instrument(instrument)
                    with around_stream:
                        try:
                            async with call.stream as stream:
                                async for chunk in stream:
                                    call.seen.append(chunk)
                                call.looped = True
                        finally:
                            call.left_at = trio.current_time()
                    if cell.act != "runtime":
                        trio.lowlevel.remove_instrument(instrument)
                await house.check_after_stream(tasks)
        if cell.act == "runtime":
            trio.lowlevel.remove_instrument(instrument)
    await house.check_after_runtime()
    assert call is not None
    call.cancelled = around_stream.cancelled_caught or around_runtime.cancelled_caught
    return call, instrument


def judge(cell: Cell, call: Call, acted_at: float | None, whole: list[StreamChunk]) -> None:
    """Whether the cancellation table allows what a call saw that was cancelled then, or not at all.

    Args:
        whole: what a call sees that nobody cancels.
    """
    stream, seen = call.stream, call.seen
    ambient = cell.act not in ("abort", "signal")
    received = substance(seen)
    assert received == substance(whole)[: len(received)], "chunks are lost or doubled"
    if call.cancelled:
        assert ambient
        assert acted_at is not None
        assert not any(isinstance(chunk, Finish) for chunk in seen) or seen == whole
    else:
        assert call.looped
        assert isinstance(seen[-1], Finish)
        assert seen[-1].reason == stream.finish
    settlement = stream.settlement
    ended_at = math.nan if settlement is None else settlement.started + settlement.ended
    if isinstance(stream.finish, Aborted):
        assert acted_at is not None
        assert call.cancelled == ambient
        assert stream.origin == ("ambient" if ambient else "signal")
        assert stream.message is None
        assert call.left_at - acted_at < NO_WAIT, "a cancel waited"
        if settlement is not None:
            assert settlement.finish == stream.finish
            assert settlement.origin == stream.origin
            assert ended_at == acted_at or (ambient and acted_at < ended_at)
        kept = "".join(partial_texts(stream))
        if ambient:
            assert kept.startswith("".join(texts(seen)))
        else:
            assert kept == "".join(texts(seen))
            assert stream.finish.failure.message == "because"
    else:
        assert stream.finish == whole[-1].reason  # type: ignore[union-attr]  # the last is the Finish
        assert stream.origin == "provider"
        assert stream.message is not None
        assert seen == whole or call.cancelled
        # Whom the provider's end had woken before the cancel takes it in the pass after it, and a scope that
        # was cancelled in that pass is found cancelled one pass later.
        latest = math.inf if acted_at is None else acted_at + 1.5 * TICK
        assert not ended_at > latest, "the provider's end came after the cancel"
