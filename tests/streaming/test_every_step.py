"""Cancelled, aborted or cut at every single task step of a call: the promises hold at each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Literal, TypeAlias

import pytest
import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Aborted, Finish, Stop, StreamChunk
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.requests import GenerateOptions
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.lanes import Next
from trio_llm.streaming.stream import ChunkStream

from .layers import (
    DONE,
    Seen,
    Step,
    Wire,
    assert_nothing_left,
    hedge,
    limit,
    on,
    playing,
    read,
    retry,
    server_error,
    smooth,
)
from .schedules import pass_through

Scenario: TypeAlias = Callable[[], tuple[Wire, ChunkStream]]
Action: TypeAlias = Literal["ambient", "abort", "cut"]


class AtStep(trio.abc.Instrument):
    """Does something before the n-th task step after it was armed."""

    def __init__(self, step: int, act: Callable[[], object]) -> None:
        self._left = step
        self._act = act
        self.acted_at: float | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self.acted_at = trio.current_time()
            self._act()


def plain() -> tuple[Wire, ChunkStream]:
    wire = Wire(playing((0, "a"), (1, "b"), (0, "c"), DONE))
    return wire, wire.stream()


def blocked() -> tuple[Wire, ChunkStream]:
    """The producer is ahead: its batches wait for room."""
    wire = Wire(playing((0, "a"), (0, "b"), (0, "c"), DONE), closing=0.25)
    return wire, wire.stream(buffer=0)


def layered() -> tuple[Wire, ChunkStream]:
    wire = Wire(playing((0, "a"), (1, "b"), (0, "c"), DONE), closing=0.25)
    return wire, wire.stream(pass_through, pass_through, buffer=1)


def retried() -> tuple[Wire, ChunkStream]:
    semaphore = trio.Semaphore(1)

    def script(name: str) -> list[Step]:
        if name.endswith("#2"):
            return [(0, "a"), (1, "b"), (0, "c"), DONE]
        return [(1, server_error())]

    wire = Wire(script)
    return wire, wire.stream(retry, limit(semaphore), pass_through)


def smoothed() -> tuple[Wire, ChunkStream]:
    wire = Wire(playing((0, "a"), (1, "b"), (0, "c"), DONE))
    return wire, wire.stream(pass_through, smooth(0.5), buffer=0)


def raced() -> tuple[Wire, ChunkStream]:

    def script(name: str) -> list[Step]:
        return [(9 if name.endswith("a") else 1, "a"), (1, "b"), (0, "c"), DONE]

    wire = Wire(script)
    return wire, wire.stream(pass_through, hedge(1), pass_through, buffer=1)


def dropped() -> tuple[Wire, ChunkStream]:
    async def second_thought(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for _ in next(on(options, "x")):
            break
        async for chunk in next(on(options, "y")):
            yield chunk

    wire = Wire(playing((0, "a"), (0, "b"), (0, "c"), DONE), closing=0.25)
    return wire, wire.stream(second_thought, hedge(1), pass_through, buffer=1)


def own_nursery() -> tuple[Wire, ChunkStream]:
    """An adapter with tasks of its own, whose reader turns its cancellation into a failure."""
    wire = Wire(playing((0, "a"), (1, "b"), (0, "c"), DONE))
    single = wire.produce

    async def produce(options: GenerateOptions, sink: ChunkSink) -> None:
        async with trio.open_nursery() as nursery:

            async def ping() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    if not over:
                        raise LlmError("connection lost", codes.TRANSPORT)

            nursery.start_soon(ping)
            over = False
            await single(options, sink)
            over = True
            nursery.cancel_scope.cancel()

    wire.produce = produce  # type: ignore[method-assign]  # the same with a nursery
    return wire, wire.stream()


async def run(scenario: Scenario, action: Action, step: int, think: float) -> bool:
    """Run it and check everything; whether the step was reached."""
    wire, stream = scenario()
    outer, seen = trio.CancelScope(), Seen()
    receiving: trio.CancelScope | None = None
    finished_at = 0.0

    def cut() -> None:
        if receiving is not None:
            receiving.cancel()

    act: dict[Action, Callable[[], object]] = {
        "ambient": outer.cancel,
        "abort": stream.abort,
        "cut": cut,
    }
    instrument = AtStep(step, act[action])
    trio.lowlevel.add_instrument(instrument)
    with trio.fail_after(1000), outer:
        async with stream:
            while not seen.finishes:
                with trio.CancelScope() as receiving:
                    chunk = await stream.receive()
                    if isinstance(chunk, Finish):
                        seen.finishes.append(chunk)
                    else:
                        seen.texts.append(chunk.text)  # type: ignore[union-attr]  # text alone
                await trio.sleep(think if not seen.finishes else 0)
            finished_at = trio.current_time()
            await read(stream, seen)
    trio.lowlevel.remove_instrument(instrument)

    assert_nothing_left(stream, wire)
    words = [text.split(":")[1] for text in seen.texts]
    assert words == list("abc")[: len(words)]
    assert len({text.split(":")[0] for text in seen.texts}) <= 1
    assert stream.finish is not None
    if outer.cancelled_caught:
        assert action == "ambient"
        assert stream.finish == Stop() or stream.origin == "ambient"
    else:
        assert seen.finish.reason == stream.finish
    if isinstance(stream.finish, Aborted):
        assert stream.origin == {"ambient": "ambient", "abort": "signal"}.get(action)
        assert stream.message is None
        received = "".join(block.text for block in stream.partial if isinstance(block, TextBlock))
        assert received.startswith("".join(seen.texts))
        if action != "ambient" and think == 0:
            assert finished_at - (instrument.acted_at or 0) <= 0.25, "an abort must not wait"
    else:
        assert stream.finish == Stop()
        assert stream.message is not None
        (block,) = stream.message.content
        assert isinstance(block, TextBlock)
        assert [part[-1] for part in block.text.split("m")[1:]] == list("abc")
        assert words == list("abc") or outer.cancelled_caught
    return instrument.acted_at is not None


@pytest.mark.parametrize("think", [0, 2], ids=["eager", "slow"])
@pytest.mark.parametrize("action", ["ambient", "abort", "cut"])
@pytest.mark.parametrize(
    "scenario",
    [plain, blocked, layered, retried, smoothed, raced, dropped, own_nursery],
    ids=lambda scenario: scenario.__name__,
)
def test_at_every_step(scenario: Scenario, action: Action, think: float) -> None:
    step = 1
    while True:
        try:
            reached = trio.run(run, scenario, action, step, think, clock=MockClock(autojump_threshold=0))
        except BaseException as error:
            error.add_note(f"at step {step}")
            raise
        if not reached:
            break
        step += 1
    assert step > 10
