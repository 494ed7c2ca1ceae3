"""ChunkStream: the consumer's end of one call.

It is a class with ``__aenter__`` and ``__aexit__``, and not a generator, so that an exception of
the body keeps its identity, cause and traceback, and so that nothing is ever yielded inside the
call's nursery.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Literal, Self

import trio

from ..model.chunks import Finish, FinishReason, StreamChunk, TextDelta, TokenUsage
from ..model.content import ContentBlock, ToolCallBlock
from ..model.messages import Message, ModelSource
from ..model.policy import RetryPolicy
from ..model.requests import GenerateOptions
from ..protocol.assembler import BlockAssembler
from .attempt import Attempt
from .call import Call
from .fold import LazyFold
from .leaving import bare, carries_cancelled, raise_cleanup, raise_unchanged
from .pump import Pump
from .selection import Middleware, Select
from .settlement import Settlement
from .verdict import Cause, Origin, first_cause, leaving_cause
from .watchdog import Watchdog

_FAILED = ("error", "aborted")


class ChunkStream(trio.abc.ReceiveChannel[StreamChunk]):
    """The chunks of one call, as a channel that is open inside one ``async with``.

    Entering starts the call; leaving, by whatever path, ends it: when ``async with`` has been left,
    no task, generator, slot or socket of the call is in use any more. The first cause that ended
    the call is kept in :attr:`finish`:

    * the provider's end: its Finish is the last chunk.
    * :meth:`abort`, or the options' signal: the chunks received before it, then Finish(Aborted).
    * a phase that took too long: Finish(Error) with code TIMEOUT.
    * an enclosing cancel scope: ``trio.Cancelled``, never a chunk; recorded as Aborted.
    * leaving early: your own control flow or exception, as it is; recorded as Aborted.

    One task receives at a time; moving the stream between tasks is fine. A chunk that has already
    arrived is handed out without a checkpoint; there is at least one per network read.

    Args:
        options: the request.
        select: picks the route; an LlmError it raises becomes the Finish.
        middleware: layers, outermost first.
        watchdog: runs as long as the stream is open.
        buffer: how many network reads may wait for a consumer that is behind.
    """

    def __init__(
        self,
        options: GenerateOptions,
        select: Select,
        middleware: Sequence[Middleware] = (),
        *,
        watchdog: Watchdog,
        buffer: int = 16,
    ) -> None:
        self._call = Call(options, select, middleware, watchdog, buffer)
        self._state: Literal["new", "open", "closed"] = "new"
        self._manager: AbstractAsyncContextManager[trio.Nursery] = trio.open_nursery()
        self._unsubscribe: Callable[[], None] | None = None
        self._attempt: Attempt | None = None
        self._pump: Pump | None = None
        self._ahead: Iterator[StreamChunk] = iter(())
        """What is left of the last batch."""
        self._terminal: list[StreamChunk] = []
        self._finish: Finish | None = None
        self._busy = False
        self._own_fold = LazyFold()
        self._message: Message | None = None

    # ---- receiving

    async def receive(self) -> StreamChunk:
        """The next chunk. Cancel-safe: a cancelled receive loses nothing and ends nothing.

        Raises:
            trio.EndOfChannel: after the Finish.
            trio.ClosedResourceError: before entering, or after (or while) leaving.
            trio.BusyResourceError: another task is receiving.
            Exception: what a middleware layer raised.
        """
        for chunk in self._ahead:
            return chunk
        return await self._receive_batch()

    async def __anext__(self) -> StreamChunk:
        for chunk in self._ahead:
            return chunk
        try:
            return await self._receive_batch()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    async def _receive_batch(self) -> StreamChunk:
        if self._state != "open":
            raise trio.ClosedResourceError("the stream is open only inside its `async with`")
        if self._busy:
            raise trio.BusyResourceError("another task is receiving from this stream")
        self._busy = True
        try:
            batch = await self._take()
        finally:
            self._busy = False
        self._ahead = iter(batch)
        chunk = next(self._ahead)
        if type(chunk) is Finish:
            self._finish = chunk
        return chunk

    async def _take(self) -> Sequence[StreamChunk]:
        if self._terminal:
            return (self._terminal.pop(0),)
        if self._attempt is not None:
            if self._finish is not None:
                raise trio.EndOfChannel
            batch = await self._attempt.take()
            if batch is not None:
                return batch
            self._terminal = list(self._attempt.terminal())
            return (self._terminal.pop(0),)
        assert self._pump is not None  # an open stream has an attempt or a pump
        received = await self._pump.receive()
        self._own_fold.add(received)
        return received

    def text(self) -> AsyncIterator[str]:
        """The visible text alone, as it arrives; ends where the stream ends, so look at :attr:`finish`."""
        return _VisibleText(self)

    def abort(self, reason: str | None = None) -> None:
        """End the call now. Synchronous; the first abort counts, and one after the end changes nothing.

        The consumer still gets what was received before, then Finish(Aborted).
        """
        self._call.abort(reason)

    # ---- what is known of the call, readable after every kind of exit

    @property
    def options(self) -> GenerateOptions:
        """The request, as it was handed in."""
        return self._call.options

    @property
    def finish(self) -> FinishReason | None:
        """Why the call ended; None while it runs."""
        ending = self._ending
        return None if ending is None else ending.reason

    @property
    def origin(self) -> Origin | None:
        """Who ended the call; None while it runs, or where a layer made up the Finish."""
        recorded = self._recorded
        if recorded is None:
            return self._cause.origin if self._state == "closed" else None
        attempt, abort = self._final_attempt, self._call.causes.abort
        if attempt is not None:
            return attempt.freeze().origin
        return abort.origin if abort is not None and recorded is abort.finish else None

    @property
    def _recorded(self) -> Finish | None:
        """The Finish that the consumer got, or that was on its way when the consumer left."""
        if self._finish is None and self._pump is not None and self._state == "closed":
            return self._pump.finish
        return self._finish

    @property
    def _ending(self) -> Finish | None:
        """What is recorded as the call's end, once it is over."""
        recorded = self._recorded
        if recorded is None and self._state == "closed":
            return self._cause.finish
        return recorded

    @property
    def _cause(self) -> Cause:
        """What ended a call whose consumer left before any Finish."""
        attempt = self._final_attempt
        if attempt is not None:
            return attempt.freeze()
        shared = self._call.causes
        return first_cause((shared.ambient, shared.abort, shared.left)) or leaving_cause(0)

    @property
    def usage(self) -> TokenUsage | None:
        """The token counts of the attempt that :attr:`finish` speaks of; early ones if it ended badly."""
        attempt = self._final_attempt
        return attempt.usage if attempt is not None else self._own_fold.assembled().usage

    @property
    def message(self) -> Message | None:
        """The assistant message after a success (its id stays the same); else None."""
        finish = self.finish
        if finish is None or finish.kind in _FAILED:
            return None
        if self._message is None:
            attempt = self._final_attempt or self._last_attempt
            route = self.options if attempt is None else attempt.selection
            fold = self._assembled
            self._message = fold.message(ModelSource(route.provider, route.model, fold.replay_state))
        return self._message

    @property
    def partial(self) -> tuple[ContentBlock, ...]:
        """Text and reasoning received so far, where there is no :attr:`message` (blank ones left out)."""
        finish = self.finish
        if finish is not None and finish.kind not in _FAILED:
            return ()
        return tuple(self._assembled.interrupted_blocks())

    @property
    def incomplete_calls(self) -> tuple[ToolCallBlock, ...]:
        """Tool calls that were cut; shown, never offered for execution."""
        return tuple(self._assembled.incomplete_calls)

    @property
    def settlements(self) -> tuple[Settlement, ...]:
        """The account of every wire attempt that has ended, in order."""
        return tuple(record for attempt in self._call.attempts for record in attempt.settlements())

    @property
    def settlement(self) -> Settlement | None:
        """The last of :attr:`settlements`."""
        settlements = self.settlements
        return settlements[-1] if settlements else None

    @property
    def error(self) -> Exception | None:
        """The exact exception the adapter raised, if that is what ended the call."""
        attempt = self._final_attempt
        return attempt.error if attempt is not None else None

    @property
    def retry_policy(self) -> RetryPolicy | None:
        """The policy captured when the route was picked; None if none was."""
        attempt = self._final_attempt or self._last_attempt
        return attempt.selection.retry_policy if attempt is not None and attempt.refusal is None else None

    @property
    def _final_attempt(self) -> Attempt | None:
        """The attempt that the record speaks of; None where the layers are on their own.

        That is the one whose Finish the consumer got, or before any Finish the one that still runs.
        """
        if self._attempt is not None:
            return self._attempt
        recorded = self._recorded
        for attempt in reversed(self._call.attempts):
            if recorded is None:
                if not attempt.let_go:
                    return attempt
            elif attempt.verdict is not None and attempt.verdict.finish is recorded:
                return attempt
        return None

    @property
    def _last_attempt(self) -> Attempt | None:
        attempts = self._call.attempts
        return attempts[-1] if attempts else None

    @property
    def _assembled(self) -> BlockAssembler:
        """What the final attempt received, or without one what the consumer did; and how it ended."""
        attempt = self._final_attempt
        assembler = (self._own_fold if attempt is None else attempt.fold).assembled()
        if (ending := self._ending) is not None:
            assembler.push(ending)
        return assembler

    # ---- life

    # An interrupt between two lines here would tear the nursery; it waits for the next checkpoint.

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise RuntimeError("a stream is opened once")
        self._state = "open"
        call = self._call
        nursery = call.causes.nursery = await self._manager.__aenter__()
        if call.options.signal is not None:
            self._unsubscribe = call.options.signal.subscribe(call.abort)
        if call.middleware:
            self._pump = Pump(call)
            nursery.start_soon(self._pump.run)
        else:
            self._attempt = call.begin(call.options)
        return self

    async def aclose(self) -> None:
        """Leave the stream early: stop the call and wait until it is over. May be called again.

        The ``async with`` must still be left. Cancellation during the wait is raised, and leaving
        waits again.
        """
        if self._state == "new":
            self._state = "closed"
        if trio.current_effective_deadline() == -math.inf:
            # Is it the call's scope that is cancelled, or one inside its body, or another task's? The
            # call's own tasks know: they wake in the same pass of the loop and stamp.
            await trio.lowlevel.cancel_shielded_checkpoint()
        self._leave()
        for attempt in self._call.attempts:
            await attempt.done.wait()
        if self._pump is not None:
            await self._pump.done.wait()
        await trio.lowlevel.checkpoint()

    def _leave(self) -> None:
        """Stamp the leaving, then stop every task; synchronous."""
        if self._state == "closed":
            return
        self._state = "closed"
        self._ahead = iter(())
        call = self._call
        if call.causes.ambient is None and self._finish is None:
            call.causes.note_left()
        if self._attempt is not None:
            self._attempt.release()
            self._attempt.stop("the consumer left")
        if self._pump is not None:
            self._pump.stop()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ended = self._finish is not None and self._pump is None
        if not ended:
            self._call.causes.note_ambient()
        self._leave()
        # A plain exception of the body is not shown to the nursery: that would cancel it, which the
        # attempts would take for an ambient cancel, and wrap the exception in a group.
        plain = exc if exc is not None and not carries_cancelled(exc) else None
        raised: BaseException | None = None
        try:
            if plain is not None:
                await self._manager.__aexit__(None, None, None)
            else:
                await self._manager.__aexit__(exc_type, exc, traceback)
            if exc is None:
                await trio.lowlevel.checkpoint_if_cancelled()  # a nursery without children is none
        except BaseException as error:  # raised again below, where it must be
            raised = bare(error, exc)
        if not ended:  # an ambient cancel may have come in the very pass in which the last task ended
            self._call.causes.note_ambient()
        for attempt in self._call.attempts:
            attempt.freeze()
        if self._unsubscribe is not None:
            self._unsubscribe()
        cleanup = list(self._call.causes.cleanup_errors)
        if self._pump is not None and (layer_error := self._pump.take_error()) is not None:
            cleanup.append(layer_error)
        if raised is not None and not isinstance(raised, (Exception, trio.Cancelled, BaseExceptionGroup)):
            raise_unchanged(raised)  # KeyboardInterrupt and SystemExit pass, bare
        if plain is not None:
            # A Cancelled on top of the body's exception is raised again at the next checkpoint.
            for cleanup_error in cleanup:
                plain.add_note(f"while the stream was closed: {cleanup_error!r}")
        elif cleanup:
            raise_cleanup(raised or exc, cleanup)
        elif raised is not None and raised is not exc:
            raise_unchanged(raised)


class _VisibleText(AsyncIterator[str]):
    """A plain iterator, so that leaving it early abandons no generator."""

    __slots__ = ("_stream",)

    def __init__(self, stream: ChunkStream) -> None:
        self._stream = stream

    async def __anext__(self) -> str:
        while True:
            chunk = await self._stream.__anext__()
            if type(chunk) is TextDelta:
                return chunk.text
