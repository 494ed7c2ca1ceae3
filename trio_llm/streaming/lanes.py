"""Driving layers: lanes, legs and races. A lane is one task's stack of open generators.

The task that drives a chain owns every generator in it and alone closes them, outermost first, also
when the chain was never iterated. Nothing of a leg starts before its first pull, and that pull
first closes the layer's previous leg and waits until its attempt is over: a retrying layer holds
one attempt at a time.

After an abort the layers may run but not wait. The lane tells the two apart: a wait that the engine
does for the chain (for a batch, for room) is *parked* and goes on, as the attempts behind it end at
once; any other wait is the layer's own and is cancelled.

A race is the one place where a layer may pull under a timeout: its legs run in tasks of the call's
nursery, and its ``receive`` loses nothing when it is cancelled.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar, TypeVarTuple, cast

import trio

from ..model import codes
from ..model.chunks import StreamChunk
from ..model.failures import LlmError
from ..model.requests import GenerateOptions, is_agent_loop_request
from .attempt import Attempt
from .call import Call

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Closable(Protocol):
    """Something on a lane's stack: a layer's generator, or a race."""

    def aclose(self) -> Awaitable[None]: ...


class Lane:
    """One task's stack of open generators, and the scope of that task's own waits."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.scope = trio.CancelScope()
        self.attempt: Attempt | None = None
        self._parked = False
        self._open: list[tuple[int, Closable]] = []

    def begin(self) -> None:
        """The task starts to drive: from now on it learns of an abort, also of an earlier one."""
        self.call.waiters.append(self)
        if self.call.causes.abort is not None:
            self.forbid_waiting()

    async def end(self) -> None:
        """The task is done: close everything. Raises as :meth:`close_from` does."""
        self.call.causes.note_ambient()
        self.call.waiters.remove(self)
        await self.close_from(0)

    @property
    def deepest(self) -> int:
        """The depth of the innermost open generator; -1 if none is open."""
        return self._open[-1][0] if self._open else -1

    def push(self, depth: int, entry: Closable) -> None:
        """Own one more thing that must be closed."""
        self._open.append((depth, entry))

    def build(self, depth: int, options: GenerateOptions) -> AsyncGenerator[StreamChunk, None]:
        """The generator of layer ``depth``, or of the attempt below the last layer; not started."""
        layers = self.call.middleware
        chain = layers[depth](options, Next(self, depth)) if depth < len(layers) else _root(self, options)
        generator = cast("AsyncGenerator[StreamChunk, None]", chain)
        self.push(depth, generator)
        return generator

    async def close_from(self, depth: int, *, keep: Closable | None = None) -> None:
        """Close what is open at ``depth`` and below it, outermost first, whatever happens.

        Args:
            keep: stays open.

        Raises:
            The first exception that closing raised, a Cancelled only if there was no other. Leaving
            the stream raises the rest.
        """
        first: BaseException | None = None
        # One by one, as the cleanup of a layer may pull again, and so close and open others.
        while (entry := self._pop(depth, keep)) is not None:
            try:
                await entry.aclose()
            except BaseException as error:  # the first is raised below
                if first is None or isinstance(first, trio.Cancelled):
                    first = error
                elif isinstance(error, Exception):
                    self.call.causes.cleanup_errors.append(error)
        if first is not None:
            raise first

    def _pop(self, depth: int, keep: Closable | None) -> Closable | None:
        for position, (level, entry) in enumerate(self._open):
            if level >= depth and entry is not keep:
                del self._open[position]
                return entry
        return None

    async def park(self, wait: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Wait for the engine's own side; an abort does not cut this short."""
        self._parked = True
        try:
            if self.call.causes.abort is None:
                return await wait(*args)
            # The attempts were cancelled, so this ends promptly; leaving the stream waits for them too.
            with trio.CancelScope(shield=True):
                return await wait(*args)
            raise AssertionError("nobody cancels the shield")
        finally:
            self._parked = False
            if self.call.causes.abort is not None:
                self.forbid_waiting()

    def give_up(self) -> None:
        """Stamp and cancel what runs in this lane; synchronous."""
        for _, entry in self._open:
            if isinstance(entry, Race):
                entry.keep(None)
        if self.attempt is not None:
            self.attempt.drop()
        self.scope.cancel("given up in a race")

    def forbid_waiting(self) -> None:
        """Cancel the layer's own waits, now and from now on; parked waits go on."""
        if not self._parked:
            self.scope.cancel("aborted: a layer may run but not wait")


class Next:
    """What a layer is handed to pull what lies below it."""

    __slots__ = ("depth", "lane")

    def __init__(self, lane: Lane, depth: int) -> None:
        self.lane = lane
        self.depth = depth

    def __call__(self, options: GenerateOptions) -> Leg:
        """A leg: an async iterator over the chunks below; nothing starts before its first pull.

        A plain leg must not be pulled under a timeout; for that there is :meth:`race`.

        Raises:
            LlmError: INVALID_PREPARED_CALL, if the call was built by an agent loop and these
                options differ from the loop's.
        """
        self.check(options)
        return Leg(self, options)

    def race(self) -> Race:
        """A race: legs that run concurrently. The lane closes it as it closes a leg."""
        return Race(self)

    def check(self, options: GenerateOptions) -> None:
        """Refuse changed options of a loop-built request."""
        original = self.lane.call.options
        if options is not original and is_agent_loop_request(original) and options != original:
            raise LlmError(
                "a middleware changed the options of a request that an agent loop built",
                codes.INVALID_PREPARED_CALL,
            )


class Leg(AsyncIterator[StreamChunk]):
    """One pass through what lies below a layer."""

    __slots__ = ("_next", "_options", "_pull")

    def __init__(self, next_: Next, options: GenerateOptions) -> None:
        self._next = next_
        self._options = options
        self._pull: Callable[[], Awaitable[StreamChunk]] = self._first

    def __aiter__(self) -> AsyncIterator[StreamChunk]:
        lane, depth = self._next.lane, self._next.depth
        if self._pull == self._first and lane.deepest == depth:
            # The usual case: no earlier leg to close, so the loop runs on the generator itself.
            generator = lane.build(depth + 1, self._options)
            self._pull = generator.__anext__
            return generator
        return self

    def __anext__(self) -> Awaitable[StreamChunk]:
        return self._pull()

    async def _first(self) -> StreamChunk:
        lane, depth = self._next.lane, self._next.depth + 1
        await lane.close_from(depth)
        self._pull = lane.build(depth, self._options).__anext__
        return await self._pull()

    async def aclose(self) -> None:
        """Give the leg up; its attempt is over when this returns."""
        await self._next.lane.close_from(self._next.depth + 1)


async def _root(lane: Lane, options: GenerateOptions) -> AsyncGenerator[StreamChunk, None]:
    """The innermost generator: the chunks of one attempt, then its Finish."""
    attempt = lane.attempt = lane.call.begin(options)
    try:
        while batches := await lane.park(_next_batches, lane.call, attempt):
            for batch in batches:
                for chunk in batch:
                    yield chunk
        for chunk in attempt.terminal():
            yield chunk
    finally:
        attempt.release()
        if not attempt.done.is_set():
            if trio.current_effective_deadline() == -math.inf:
                # Whose scope is it? The attempt knows: it wakes in the same pass of the loop and stamps.
                await trio.lowlevel.cancel_shielded_checkpoint()
            attempt.drop()
            # It ends at once; the shield is there so that whoever closes the leg knows that it has.
            with trio.CancelScope(shield=True):
                await attempt.done.wait()


async def _next_batches(call: Call, attempt: Attempt) -> list[Sequence[StreamChunk]]:
    """The next batch; after an abort all there are, since the chain may not wait again."""
    batches: list[Sequence[StreamChunk]] = []
    while (batch := await attempt.take()) is not None:
        batches.append(batch)
        if call.causes.abort is None:
            break
    return batches


class Entrant:
    """One leg of a race; ``options`` are what it was started with."""

    __slots__ = ("finished", "given_up", "lane", "options")

    def __init__(self, options: GenerateOptions, lane: Lane) -> None:
        self.options = options
        self.finished = trio.Event()
        self.given_up = False
        self.lane = lane

    def cancel(self) -> None:
        """Give it up: its attempt settles as Aborted, origin middleware. Synchronous."""
        self.given_up = True
        self.lane.give_up()


class Race:
    """Concurrent legs below one layer; made by ``next.race()``."""

    __slots__ = ("_arrived", "_closed", "_entrants", "_held", "_next", "_queue", "_room")

    def __init__(self, next_: Next) -> None:
        self._next = next_
        self._entrants: list[Entrant] = []
        self._queue: deque[tuple[Entrant, StreamChunk | Exception]] = deque()
        self._arrived = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self._closed = False
        self._held: list[Entrant] | None = [] if next_.lane.deepest > next_.depth else None
        """What waits for the layer's previous leg to be closed, where there is one."""
        next_.lane.push(next_.depth + 1, self)

    def start(self, options: GenerateOptions) -> Entrant:
        """Start a leg in the call's nursery; the layer's previous leg is closed before it begins.

        Where there is a previous leg, that is at the first :meth:`receive`; else it is now.

        Raises:
            LlmError: as calling ``next`` does.
            trio.ClosedResourceError: the race is over, as the layer has pulled something else since.
        """
        self._next.check(options)
        if self._closed:
            raise trio.ClosedResourceError("the race is over")
        entrant = Entrant(options, Lane(self._next.lane.call))
        self._entrants.append(entrant)
        if self._held is None:
            self._launch(entrant)
        else:
            self._held.append(entrant)
        return entrant

    def _launch(self, entrant: Entrant) -> None:
        self._next.lane.call.nursery.start_soon(self._drive, entrant)

    async def _begin(self, held: Sequence[Entrant]) -> None:
        """Close the layer's previous leg, then let those start that were held back."""
        self._held = None
        try:
            await self._next.lane.close_from(self._next.depth + 1, keep=self)
        finally:
            for entrant in held:
                self._launch(entrant)

    async def receive(self) -> tuple[Entrant, StreamChunk]:
        """The next chunk of any leg that has not been given up. Cancel-safe.

        Raises:
            trio.EndOfChannel: every leg is over.
            Exception: what a layer inside a leg raised.
        """
        lane = self._next.lane
        if self._held is not None:
            await self._begin(self._held)
        while True:
            while self._queue:
                entrant, item = self._queue.popleft()
                self._room.unpark()
                if entrant.given_up:
                    self._keep_error(item)
                    continue
                if isinstance(item, Exception):
                    raise item
                return entrant, item
            if all(entrant.finished.is_set() for entrant in self._entrants):
                # Legs also end because all is cancelled, and then that is what must be raised.
                await lane.park(trio.lowlevel.checkpoint_if_cancelled)
                raise trio.EndOfChannel
            await lane.park(self._arrived.park)

    def keep(self, winner: Entrant | None) -> None:
        """Give up every other leg. Synchronous; each settles."""
        for entrant in self._entrants:
            if entrant is not winner:
                entrant.cancel()

    async def aclose(self) -> None:
        """Give up every leg and wait until their attempts are over."""
        self._closed = True
        for entrant in self._held or ():
            entrant.finished.set()
        self.keep(None)
        # They end at once; as with a single leg, whoever closes the race must know that they have.
        with trio.CancelScope(shield=True):
            for entrant in self._entrants:
                await entrant.finished.wait()
        while self._queue:
            self._keep_error(self._queue.popleft()[1])

    def _keep_error(self, item: StreamChunk | Exception) -> None:
        """Nobody will receive this; if it is an exception, leaving the stream raises it."""
        if isinstance(item, Exception):
            self._next.lane.call.causes.cleanup_errors.append(item)

    async def _drive(self, entrant: Entrant) -> None:
        lane = entrant.lane
        lane.begin()
        errors: list[Exception] = []
        try:
            with lane.scope:
                if not entrant.given_up:
                    async for chunk in lane.build(self._next.depth + 1, entrant.options):
                        await self._put(entrant, chunk)
        except Exception as error:
            errors.append(error)
        finally:
            try:
                await lane.end()
            except Exception as error:
                errors.append(error)
            finally:
                for failure in errors:  # only now, so that a leg that raised is closed
                    self._add(entrant, failure)
                entrant.finished.set()
                self._arrived.unpark_all()

    async def _put(self, entrant: Entrant, chunk: StreamChunk) -> None:
        call = entrant.lane.call
        most = max(call.buffer, 1)
        while len(self._queue) >= most and call.causes.abort is None and not entrant.given_up:
            await entrant.lane.park(self._room.park)
        self._add(entrant, chunk)

    def _add(self, entrant: Entrant, item: StreamChunk | Exception) -> None:
        self._queue.append((entrant, item))
        self._arrived.unpark()
