"""One stream of the soak: a random provider, fault, consumer and end."""

from __future__ import annotations

import math
import random
from collections import Counter

import attrs
import trio

from tests.sweeps.shapes import SCHEMES, SHAPES
from trio_llm.model.chunks import Aborted, Error, FinishReason, StreamChunk
from trio_llm.model.failures import LlmError
from trio_llm.model.policy import Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.model.signal import AbortSignal
from trio_llm.runtime.runtime import LlmRuntime

from .server import ANSWERS, BUSY, ENDLESS

_STUCK = 60.0
"""A stream that takes so many seconds will never end."""

_ENDS = ("read", "abort", "signal", "aclose", "leave", "raise", "generate", "channel", "retry")


class _Left(Exception):
    """What a body that leaves by raising raises."""


def _word(finish: FinishReason | None) -> str:
    assert finish is not None, "a stream was left without a finish"
    return finish.failure.code if isinstance(finish, (Error, Aborted)) else finish.kind


@attrs.frozen
class Soaked:
    """How to run streams in a runtime.

    Attributes:
        ends: counts how they ended.
    """

    runtime: LlmRuntime
    chance: random.Random
    ends: Counter[str]

    async def stream(self) -> None:
        """Run one."""
        chance = self.chance
        fault = chance.choice(tuple(ANSWERS))
        idle = chance.choice((0.05, 300))
        end = chance.choice(_ENDS)
        shape = chance.choice(SHAPES)
        signal = AbortSignal()
        options = attrs.evolve(
            shape.request(signal),
            provider=f"{shape.name}-{chance.choice(SCHEMES)}",
            model=f"soak-{fault}",
            timeouts=Timeouts(idle=idle),
        )
        soon = chance.expovariate(1 / 0.02)
        cancelled = (fault in ENDLESS and (idle == 300 or fault in BUSY)) or chance.random() < 0.3
        with trio.fail_after(_STUCK), trio.move_on_after(soon + 0.05 if cancelled else math.inf) as ambient:
            await self._end(end, options, signal, soon)
        if ambient.cancelled_caught:
            self.ends["cancelled"] += 1

    async def _end(self, end: str, options: GenerateOptions, signal: AbortSignal, soon: float) -> None:
        runtime = self.runtime
        if end == "generate":
            try:
                self.ends[_word((await runtime.generate(options)).finish)] += 1
            except LlmError as error:
                self.ends[error.code] += 1
        elif end == "channel":
            await self._through_a_channel(options)
        elif end == "retry":
            async for attempt in runtime.attempts(options):
                async with attempt as stream:
                    async for _ in stream:
                        pass
                self.ends[_word(stream.finish)] += 1
        else:
            await self._read(end, options, signal, soon)

    async def _through_a_channel(self, options: GenerateOptions) -> None:
        send, receive = trio.open_memory_channel[StreamChunk](1)
        leave_after = self.chance.randint(1, 20)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._feed, send, options)
            async with receive:
                async for _ in receive:
                    leave_after -= 1
                    if not leave_after:
                        break
        self.ends["channel"] += 1

    async def _feed(self, send: trio.MemorySendChannel[StreamChunk], options: GenerateOptions) -> None:
        try:
            await self.runtime.stream_to(send, options)
        except trio.BrokenResourceError:
            pass  # the reader has left

    async def _read(self, end: str, options: GenerateOptions, signal: AbortSignal, soon: float) -> None:
        slow = 0.005 if self.chance.random() < 0.2 else 0
        leave_after = self.chance.randint(1, 6)
        stream = self.runtime.stream(options)

        async def act() -> None:
            await trio.sleep(soon)
            if end == "abort":
                stream.abort()
            elif end == "signal":
                signal.abort("enough")
            else:
                await stream.aclose()

        async with trio.open_nursery() as nursery:
            try:
                async with stream:
                    if end in ("abort", "signal", "aclose"):
                        nursery.start_soon(act)
                    try:
                        async for _ in stream:
                            leave_after -= 1
                            if not leave_after and end == "leave":
                                break
                            if not leave_after and end == "raise":
                                raise _Left
                            await trio.sleep(slow)
                    except trio.ClosedResourceError:
                        assert end == "aclose"
            except _Left:
                self.ends["raised"] += 1
            nursery.cancel_scope.cancel()
        assert len(stream.settlements) == 1 or stream.settlement is None
        self.ends[f"{_word(stream.finish)} by {stream.origin}"] += 1
