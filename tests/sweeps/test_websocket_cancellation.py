"""A call over a session's WebSocket, cancelled at every step: the same promises as over HTTP.

Afterwards a connection whose response was not read to its end is closed, and one that is kept serves the
session's next call.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal, TypeAlias

import attrs
import pytest
import trio
from trio._core import _run as scheduler
from trio.testing import MockClock

from trio_llm.model.chunks import Aborted, ToolCalls

from ..runtime.test_leaks import tasks_below
from ..transport.websocket_server import Peer
from .cancelling import Act, AtStep, Call, Cell, Start, judge, sweep
from .extent import FULL
from .house import QUIET, every_generator_ends
from .shapes import SCHEMES
from .sockets import EVENTS, REFUSED, SHAPE, Answer, Server, SocketHouse, good_answer

Way: TypeAlias = Literal["good", "forgotten", "gone"]
"""How a request fares that goes on from a response: the provider may have forgotten that one, or hang up."""

FORGOTTEN = {
    "type": "error",
    "status": 400,
    "error": {"code": "previous_response_not_found", "message": "who?"},
}


async def forget(peer: Peer, request: Any) -> None:
    await peer.send(*([FORGOTTEN] if "previous_response_id" in request else EVENTS))


async def hang_up(peer: Peer, request: Any) -> None:
    if "previous_response_id" in request:
        await peer.cut()
    else:
        await good_answer(peer, request)


ANSWERS: dict[Way, Answer] = {"good": good_answer, "forgotten": forget, "gone": hang_up}


@attrs.frozen
class SocketCell(Cell):
    """One row; the start ``queued`` is a session whose connection is in use by another call."""

    way: Way = "good"

    def __str__(self) -> str:
        return f"{super().__str__()}-{self.way}"


ACTS: tuple[Act, ...] = ("abort", "cancel", "deadline")
STARTS: tuple[tuple[Start, Way], ...] = (
    ("fresh", "good"),
    ("reused", "good"),
    ("queued", "good"),
    ("reused", "forgotten"),
    ("reused", "gone"),
)
CELLS = [
    SocketCell(SHAPE, scheme, layers, start, act, way)
    for scheme, layers, (start, way), act in itertools.product(SCHEMES, (0, 2), STARTS, ACTS)
]

FALLBACKS = [
    Cell(REFUSED, scheme, layers, "fresh", act)
    for scheme, layers, act in itertools.product(SCHEMES, (0, 2), ACTS)
]


async def run(
    cell: SocketCell, seed: int, server: Server, clock: MockClock, step: float
) -> tuple[Call, AtStep]:
    """One call in a runtime of its own, cancelled at ``step``; checks that nothing is left of either."""
    scheduler._r.seed(seed)  # trio shuffles the tasks of a pass
    house = SocketHouse(server, cell.layers)
    around_stream = trio.CancelScope()
    call: Call | None = None

    def act() -> None:
        assert call is not None
        match cell.act:
            case "abort":
                call.stream.abort("because")
            case "cancel":
                around_stream.cancel()
            case "deadline":
                around_stream.deadline = trio.current_time()

    instrument = AtStep(clock, step, act)
    with every_generator_ends():
        async with house.runtime as runtime:
            tasks = len(tasks_below(trio.lowlevel.current_task()))
            options = await house.good_call() if cell.start == "reused" else SHAPE.request()
            async with trio.open_nursery() as beside:
                if cell.start == "queued":
                    beside.start_soon(house.good_call)
                    while not server.owed:
                        await trio.lowlevel.checkpoint()
                call = Call(runtime.stream(options))
                trio.lowlevel.add_instrument(instrument)
                with around_stream:
                    try:
                        async with call.stream as stream:
                            async for chunk in stream:
                                call.seen.append(chunk)
                            call.looped = True
                    finally:
                        call.left_at = trio.current_time()
                trio.lowlevel.remove_instrument(instrument)
            if cell.start == "queued" or not isinstance(call.stream.finish, Aborted):
                assert len(house.kept) == 1, "a clean connection is not kept"
            await house.check_after_stream(tasks)
    await house.check_after_runtime()
    call.cancelled = around_stream.cancelled_caught
    return call, instrument


async def run_steps(cell: SocketCell, seed: int, clock: MockClock, stride: int) -> int:
    """Cancel at step 1, 1 + stride, ... until the call is over before; returns how many steps it has."""
    steps = 0
    server = Server([], cell.scheme, answer=ANSWERS[cell.way])

    async def client() -> None:
        nonlocal steps
        whole, instrument = await run(cell, seed, server, clock, math.inf)
        assert isinstance(whole.stream.finish, ToolCalls)
        assert len(whole.stream.settlements) == (1 if cell.way == "good" else 2)
        steps = instrument.steps
        for step in itertools.count(1, stride):
            try:
                call, instrument = await run(cell, seed, server, clock, step)
                judge(cell, call, instrument.acted_at, whole.seen)
            except BaseException as error:
                error.add_note(f"{cell}, seed {seed}, cancelled at step {step} of {steps}")
                raise
            if instrument.acted_at is None:
                break

    async with server, trio.open_nursery() as nursery:
        nursery.start_soon(client)
    return steps


@pytest.mark.parametrize("seed", range(3 if FULL else 1))
@pytest.mark.parametrize("cell", CELLS if FULL else CELLS[::4], ids=str)
def test_cancelled_at_every_step(cell: SocketCell, seed: int) -> None:
    clock = MockClock(autojump_threshold=QUIET)
    steps = trio.run(run_steps, cell, seed, clock, 1 if FULL else 5, clock=clock)
    assert steps > 15


@pytest.mark.parametrize("cell", FALLBACKS if FULL else FALLBACKS[::7], ids=str)
def test_cancelled_at_every_step_of_a_fallback_to_http(cell: Cell) -> None:
    assert sweep(cell) > 15
