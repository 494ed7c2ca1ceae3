"""Scripted routes, and the layers that the engine's tests stack on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

import attrs
import trio

from trio_llm.model import codes
from trio_llm.model.chunks import Aborted, Error, Finish, Stop, StreamChunk, TextDelta
from trio_llm.model.failures import LlmError
from trio_llm.model.policy import DEFAULT_TIMEOUTS, NormalRetry, Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.model.signal import AbortSignal
from trio_llm.streaming.contract import ChunkSink
from trio_llm.streaming.lanes import Next
from trio_llm.streaming.selection import Middleware, Selection
from trio_llm.streaming.stream import ChunkStream

from .support import LoneStream
from .support import options as request

Step: TypeAlias = "tuple[float, str | Finish | Exception | None]"
"""After so many seconds: a text, a Finish, a failure, or (None) silence for ever."""

Script: TypeAlias = Callable[[str], Sequence[Step]]
"""What the route of a model's name plays."""

Play: TypeAlias = Callable[[GenerateOptions, ChunkSink], Awaitable[None]]

DONE: Step = (0, Finish(Stop()))


class Wire:
    """Routes that play scripts, and what they noticed. A text is sent as ``model:text``.

    Args:
        closing: how long an attempt takes, shielded, to let go of its socket.
    """

    def __init__(self, script: Script, *, closing: float = 0) -> None:
        self._script = script
        self._closing = closing
        self.log: list[str] = []
        self.sockets = 0
        self.most_sockets = 0

    async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
        name = options.model
        self.log.append(f"open {name} @{trio.current_time():g}")
        self.sockets += 1
        self.most_sockets = max(self.most_sockets, self.sockets)
        try:
            for delay, what in self._script(name):
                await trio.sleep(delay)
                if what is None:
                    await trio.sleep_forever()
                elif isinstance(what, Exception):
                    raise what
                elif isinstance(what, Finish):
                    await sink.send_batch([what])
                    return
                else:
                    await sink.send_batch([TextDelta(0, f"{name}:{what}")])
        finally:
            if self._closing:
                with trio.CancelScope(shield=True):
                    await trio.sleep(self._closing)
            self.sockets -= 1
            self.log.append(f"close {name} @{trio.current_time():g}")

    def select(self, options: GenerateOptions) -> Selection:
        return Selection(
            provider=options.provider,
            model=options.model,
            produce=self.produce,
            timeouts=(options.timeouts or DEFAULT_TIMEOUTS).over(DEFAULT_TIMEOUTS),
            retry_policy=NormalRetry(),
        )

    def stream(
        self,
        *layers: Middleware,
        signal: AbortSignal | None = None,
        timeouts: Timeouts | None = None,
        buffer: int = 16,
    ) -> ChunkStream:
        options = attrs.evolve(request(signal), timeouts=timeouts)
        return LoneStream(options, self.select, layers, buffer=buffer)


def playing(*steps: Step) -> Script:
    """The same script on every route."""
    return lambda name: steps


def server_error() -> LlmError:
    return LlmError("overloaded", codes.SERVER)


def on(options: GenerateOptions, suffix: str) -> GenerateOptions:
    """The options with a longer model name."""
    return attrs.evolve(options, model=options.model + suffix)


def logged(name: str, log: list[str]) -> Middleware:
    """Writes down when it starts and when it is closed."""

    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        log.append(f"{name} starts")
        try:
            async for chunk in next(options):
                yield chunk
        finally:
            log.append(f"{name} closed")

    return layer


def failed(chunk: StreamChunk) -> bool:
    return isinstance(chunk, Finish) and isinstance(chunk.reason, Error)


async def retry(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
    """Three attempts on the routes ``#0``, ``#1``, ``#2``, with a second between them."""
    for number in range(3):
        async for chunk in next(on(options, f"#{number}")):
            if failed(chunk) and number < 2:
                break
            yield chunk
        else:
            return
        await trio.sleep(1)


def limit(semaphore: trio.Semaphore) -> Middleware:
    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async with semaphore:
            async for chunk in next(options):
                yield chunk

    return layer


def smooth(seconds: float) -> Middleware:
    """Waits before every chunk: a wait of the layer's own."""

    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            await trio.sleep(seconds)
            yield chunk

    return layer


def hedge(delay: float, entrants: str = "ab") -> Middleware:
    """Starts another entrant whenever nobody has answered for so long; the first to answer wins."""

    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        race = next.race()
        first = None
        for name in entrants:
            race.start(on(options, f"/{name}"))
            with trio.move_on_after(delay):
                first = await race.receive()
            if first is not None:
                break
        winner, chunk = first or await race.receive()
        race.keep(winner)
        yield chunk
        try:
            while True:
                yield (await race.receive())[1]
        except trio.EndOfChannel:
            pass

    return layer


class LayerBug(Exception):
    """What a faulty layer raises."""


async def raiser(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
    async for chunk in next(options):
        if not isinstance(chunk, Finish):
            raise LayerBug("bug in a layer")
        yield chunk


async def swallow(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
    """Catches what it must not, Cancelled and GeneratorExit included."""
    try:
        async for chunk in next(options):
            yield chunk
    except BaseException:
        yield Finish(Stop(raw="swallowed"))


async def truncate(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
    """One chunk, then a Finish of its own."""
    async for chunk in next(options):
        yield chunk
        if not isinstance(chunk, Finish):
            yield Finish(Stop(raw="truncated"))
        return


@attrs.frozen
class Seen:
    """What reached the consumer."""

    texts: list[str] = attrs.field(factory=list)
    finishes: list[Finish] = attrs.field(factory=list)

    @property
    def finish(self) -> Finish:
        (finish,) = self.finishes
        return finish

    @property
    def aborted(self) -> bool:
        return isinstance(self.finish.reason, Aborted)


async def read(stream: ChunkStream, seen: Seen | None = None) -> Seen:
    """Read to the end."""
    seen = seen or Seen()
    async for chunk in stream:
        if isinstance(chunk, TextDelta):
            seen.texts.append(chunk.text)
        elif isinstance(chunk, Finish):
            seen.finishes.append(chunk)
    return seen


async def read_and_abort(stream: ChunkStream, at: float) -> tuple[Seen, float]:
    """Read a stream that is aborted at some time; also returns when the Finish came."""
    start = trio.current_time()
    seen = Seen()
    async with trio.open_nursery() as nursery, stream:

        async def abort() -> None:
            await trio.sleep_until(start + at)
            stream.abort("enough")

        nursery.start_soon(abort)
        while not seen.finishes:
            chunk = await stream.receive()
            if isinstance(chunk, TextDelta):
                seen.texts.append(chunk.text)
            elif isinstance(chunk, Finish):
                seen.finishes.append(chunk)
        ended = trio.current_time() - start
        await read(stream, seen)
    return seen, ended


def assert_nothing_left(stream: ChunkStream, wire: Wire | None = None) -> None:
    """No task, generator, socket or unsettled attempt of the call is left."""
    call = stream._call
    assert not call.nursery.child_tasks
    assert not call.waiters
    for attempt in call.attempts:
        assert attempt.done.is_set()
        assert attempt.verdict is not None
    assert len(stream.settlements) >= len(call.attempts)
    if stream._pump is not None:
        assert not stream._pump._lane._open
    if wire is not None:
        assert wire.sockets == 0


TWO_WORDS = playing((1, "x"), (1, "y"), (1, Finish(Stop())))


def failing(*names: str) -> Wire:
    """Routes of these names fail after a second, all others answer."""

    def script(name: str) -> list[Step]:
        if name.endswith(names):
            return [(1, "lost"), (0, server_error())]
        return [(1, "x"), DONE]

    return Wire(script)
