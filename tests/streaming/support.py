"""Small parts that the engine's tests share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Self

import trio

from trio_llm.model.chunks import (
    BlockEnd,
    BlockStart,
    Finish,
    Stop,
    StreamChunk,
    TextDelta,
    TokenUsage,
    Usage,
)
from trio_llm.model.content import TextBlock
from trio_llm.model.messages import create_user_message
from trio_llm.model.policy import DEFAULT_TIMEOUTS, NormalRetry, Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.model.signal import AbortSignal
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.selection import Middleware, Select, Selection
from trio_llm.streaming.stream import ChunkStream
from trio_llm.streaming.watchdog import Watchdog

Producer = Callable[[ChunkSink], Awaitable[None]]

USAGE = TokenUsage(7, 3)


def options(signal: AbortSignal | None = None) -> GenerateOptions:
    return GenerateOptions(provider="p", model="m", messages=[create_user_message("?")], signal=signal)


class LoneStream(ChunkStream):
    """A stream without a runtime: it runs a watchdog of its own."""

    def __init__(
        self, options: GenerateOptions, select: Select, layers: Sequence[Middleware] = (), *, buffer: int = 16
    ) -> None:
        self._watchdog = Watchdog()
        super().__init__(options, select, layers, watchdog=self._watchdog, buffer=buffer)

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Self:
        stream = await super().__aenter__()
        self._call.nursery.start_soon(self._watchdog.run)
        return stream

    def _leave(self) -> None:
        super()._leave()
        self._watchdog.stop()


def open_stream(
    producer: Producer,
    layers: Sequence[Middleware] = (),
    *,
    timeouts: Timeouts | None = None,
    signal: AbortSignal | None = None,
    buffer: int = 16,
) -> ChunkStream:
    """A stream over a function that sends into the sink."""

    async def produce(_: GenerateOptions, sink: ChunkSink) -> None:
        await producer(sink)

    selection = Selection(
        provider="p",
        model="m",
        produce=produce,
        timeouts=(timeouts or DEFAULT_TIMEOUTS).over(DEFAULT_TIMEOUTS),
        retry_policy=NormalRetry(),
    )
    return LoneStream(options(signal), lambda _: selection, layers, buffer=buffer)


def text_deltas(*texts: str) -> list[StreamChunk]:
    return [BlockStart(0, "text"), *(TextDelta(0, text) for text in texts)]


def text_ending(text: str, usage: TokenUsage = USAGE) -> list[StreamChunk]:
    return [BlockEnd(0, TextBlock(text)), Usage(usage), Finish(Stop())]


async def short(sink: ChunkSink) -> None:
    """A producer of one text."""
    await trio.lowlevel.checkpoint()
    await sink.send_batch([*text_deltas("short"), *text_ending("short")])
