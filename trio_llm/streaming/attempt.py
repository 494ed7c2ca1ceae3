"""One provider attempt: the task that runs ``produce``, and the sink it sends into.

The attempt's channel carries batches of chunks, never its Finish: the Finish is a stamp, and what
the consumer sees last is the verdict over all stamps (see :mod:`.verdict`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import outcome
import trio

from ..model import codes
from ..model.chunks import Error, Finish, StreamChunk, TokenUsage, Usage
from ..model.failures import LlmError, LlmFailure
from ..model.identifiers import MessageId, ProviderRequestId
from ..model.requests import GenerateOptions
from .causes import CallCauses
from .contract import ChunkSink
from .fold import LazyFold
from .phases import PhaseClock
from .raised import failure_of, first_leaf, is_failure, while_cancelled
from .selection import Selection
from .settlement import Settlement, WireAccount
from .verdict import Cause, Origin, Phase, Rank, clock_cause, dropped_cause, first_cause, leaving_cause
from .watchdog import Watchdog

DRAIN_SECONDS = 0.05
"""How long an attempt whose end is recorded may go on, to drain its body for reuse."""


class Attempt(ChunkSink):
    """Runs one route's ``produce`` in a scope of its own and keeps what became of it.

    Args:
        refusal: why there is no route; the attempt then ends with it and runs nothing.
    """

    def __init__(
        self,
        causes: CallCauses,
        watchdog: Watchdog,
        selection: Selection,
        options: GenerateOptions,
        number: int,
        buffer: int,
        refusal: Exception | None = None,
    ) -> None:
        now = trio.current_time()
        self.selection = selection
        self.number = number
        self.refusal = refusal
        self.clock = PhaseClock(selection.timeouts, now)
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.fold = LazyFold()
        self.verdict: Cause | None = None
        self._options = options
        self._causes = causes
        self._watchdog = watchdog
        self._send, self._receive = trio.open_memory_channel[Sequence[StreamChunk]](buffer)
        self._stash: deque[Sequence[StreamChunk]] = deque()
        self._blocked = 0
        self._finished = False
        self._taken = False
        self._dropped: Cause | None = None
        self._ended: Cause | None = None
        self._expired: Cause | None = None
        self._end: outcome.Maybe[Finish] | None = None
        """How the producer ended: its Finish, or the exact exception."""
        self._wire = WireAccount(now)
        self._earlier_wires: list[WireAccount] = []

    # ---- the sink

    async def send_batch(self, chunks: Sequence[StreamChunk], *, received: int = 0) -> None:
        if self._finished:
            raise LlmError("a chunk was sent after the Finish", codes.INVALID_CHUNK_SEQUENCE)
        if self._causes.abort is not None:
            await trio.lowlevel.checkpoint()  # only an adapter that swallowed its Cancelled comes here
        now = trio.current_time()
        first = self._account(now, received)
        finish: Finish | None = None
        kinds = set(map(type, chunks))
        if Usage in kinds or Finish in kinds:
            finish = self._note_ending(chunks)
        if finish is not None:
            chunks = chunks[:-1]
            self._record_finish(now, finish)
        if first:
            self._watchdog.due_earlier(self)
        if chunks:
            try:
                self._send.send_nowait(chunks)
            except trio.WouldBlock:
                await self._send_slowly(chunks, now)
            except trio.BrokenResourceError:
                pass  # the taker has left: go on to the drain, or into the Cancelled that follows
        if finish is not None:
            self._send.close()
            self.scope.deadline = trio.current_time() + DRAIN_SECONDS

    def _note_ending(self, chunks: Sequence[StreamChunk]) -> Finish | None:
        """Note the usage that is among the chunks; the Finish, if it ends them."""
        last = chunks[-1]
        for chunk in chunks[:-1]:
            if isinstance(chunk, Usage):
                self._wire.usage = chunk.usage
            elif isinstance(chunk, Finish):
                raise LlmError("a chunk follows the Finish in one batch", codes.INVALID_CHUNK_SEQUENCE)
        if isinstance(last, Usage):
            self._wire.usage = last.usage
        return last if isinstance(last, Finish) else None

    async def _send_slowly(self, chunks: Sequence[StreamChunk], now: float) -> None:
        if not self._blocked:
            self.clock.pause(now)
        self._blocked += 1  # an adapter may have several tasks that send
        try:
            await self._send.send(chunks)
        except trio.Cancelled:
            self._stash.append(chunks)  # received data is never lost
            raise
        except trio.BrokenResourceError:
            pass  # as above
        finally:
            self._blocked -= 1
            if not self._blocked:  # also where a scope of the adapter's own cancelled it, as it goes on
                self.clock.resume(trio.current_time())
                self._watchdog.due_earlier(self)

    def _account(self, now: float, received: int) -> bool:
        """A model event came in; whether it was the first."""
        clock, wire = self.clock, self._wire
        first = clock.last_event is None
        clock.last_byte = clock.last_event = clock.provider_time(now)
        wire.bytes_received += received
        if wire.first_event is None:
            wire.first_event = now
            if wire.first_byte is None:
                wire.first_byte = now
        return first

    def _record_finish(self, now: float, finish: Finish) -> None:
        if self.selection.review is not None:
            finish = self.selection.review(finish, self._wire.usage)
        # A copy, as the stream tells attempts apart by their Finish, and adapters may share one.
        finish = Finish(finish.reason, finish.replay_state)
        self._finished = True
        if self._ended is None:
            self._end = outcome.Value(finish)
            self._ended = Cause(now, Rank.PROVIDER, "provider", finish)

    def alive(self, received: int = 0) -> None:
        now = trio.current_time()
        self.clock.last_byte = self.clock.provider_time(now)
        if received:
            wire = self._wire
            wire.bytes_received += received
            if wire.first_byte is None:
                wire.first_byte = now

    def note_usage(self, usage: TokenUsage) -> None:
        self._wire.early_usage = usage

    def note_degraded(self, message: MessageId, failure: LlmFailure) -> None:
        if self.selection.on_degraded is not None:
            self.selection.on_degraded(message, failure)

    def connecting(self) -> None:
        self.clock.connecting(trio.current_time())
        self._watchdog.due_earlier(self)

    def connected(self) -> None:
        self.clock.connected(trio.current_time())
        self._watchdog.due_earlier(self)

    def sent(self) -> None:
        now = trio.current_time()
        self.clock.sent(now)
        if self._wire.sent is None:
            self._wire.sent = now
        self._watchdog.due_earlier(self)

    def note_response(
        self,
        *,
        status: int | None = None,
        request_id: ProviderRequestId | None = None,
        served_model: str | None = None,
        response_id: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        self._wire.note_response(status, request_id, served_model, response_id, facts)

    def socket_closed(self) -> None:
        if self._wire.closed is None:
            self._wire.closed = trio.current_time()

    def next_wire_attempt(self, failure: LlmFailure) -> None:
        if self.clock.last_event is not None:
            raise LlmError(
                "a wire attempt that made a model event is not repeated", codes.INVALID_CHUNK_SEQUENCE
            )
        now = trio.current_time()
        self._wire.ended_by = Cause(now, Rank.PROVIDER, "provider", Finish(Error(failure)))
        self._earlier_wires.append(self._wire)
        self._wire = WireAccount(now)

    async def aclose(self) -> None:
        """The sink is closed by the engine; an adapter need not."""
        await trio.lowlevel.checkpoint()

    # ---- the task

    async def run(self) -> None:
        """Run ``produce`` to its end and record how it ended. Raises only what nobody may hold back."""
        try:
            with self.scope:
                if self._may_start():
                    if self.refusal is not None:
                        raise self.refusal
                    await self.selection.produce(self._options, self)
                    if not self._finished:
                        self._note_return()
        except Exception as error:
            self._note_raised(error)
        except BaseException as error:
            self._causes.note_ambient()  # before the nursery is cancelled by what leaves here
            if not isinstance(error, BaseExceptionGroup):
                raise
            # An adapter's own nursery wraps Cancelled: hand on one bare Cancelled, keep the rest.
            cancelled, rest = error.split(trio.Cancelled)
            if cancelled is None or (rest is not None and not isinstance(rest, Exception)):
                raise
            if rest is not None:
                self._note_raised(rest)
            raise first_leaf(cancelled) from None
        finally:
            if self._ended is None:
                self._causes.note_ambient()  # an adapter may have swallowed its Cancelled
            self._send.close()
            self._watchdog.forget(self)
            self.done.set()

    def _may_start(self) -> bool:
        """Whether nothing stopped the call before this task ran: else produce() is never called."""
        causes = self._causes
        return causes.abort is None and causes.left is None and trio.current_effective_deadline() != -math.inf

    def _note_return(self) -> None:
        failure = LlmFailure("the adapter returned without a Finish", codes.STREAM_CLOSED)
        self._note_end(outcome.Value(Finish(Error(failure))))

    def _note_raised(self, error: Exception) -> None:
        if not self._finished:
            is_the_end = self._note_end(outcome.Error(error))
            if is_the_end or is_failure(error) or not while_cancelled(error):
                return
        self._causes.cleanup_errors.append(error)

    def _note_end(self, end: outcome.Maybe[Finish]) -> bool:
        """Stamp the provider's end; what follows a cancel is not the provider's cause."""
        stopped = self.scope.cancel_called or trio.current_effective_deadline() == -math.inf
        if self._ended is not None or stopped:
            return False
        origin: Origin = "provider" if self.refusal is None else "runtime"
        finish = end.value if isinstance(end, outcome.Value) else Finish(Error(failure_of(end.error)))
        self._end = end
        self._ended = Cause(trio.current_time(), Rank.PROVIDER, origin, finish)
        return True

    # ---- stopping

    @property
    def may_expire(self) -> bool:
        return self._ended is None and not self.done.is_set() and not self.scope.cancel_called

    def expire(self, now: float, phase: Phase) -> None:
        self._expired = clock_cause(now, phase, self.clock.limit(phase))
        self.scope.cancel(f"{phase} timeout")

    def stop(self, reason: str) -> None:
        """Cancel it after a stamp that the whole call shares; an end on record may drain."""
        if self._ended is None:
            self.scope.cancel(reason)

    def drop(self) -> None:
        """A layer gives it up: stamp, then cancel. Where the consumer left before, that is the cause."""
        if self._ended is None:
            if self._dropped is None and self._causes.left is None:
                self._dropped = dropped_cause(trio.current_time())
            self.scope.cancel("dropped")

    def release(self) -> None:
        """Nobody will take another batch: what has been received is folded, the rest is refused."""
        while True:
            try:
                self.fold.add(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
                break
        self._receive.close()

    # ---- the taker's side

    async def take(self) -> Sequence[StreamChunk] | None:
        """The next batch, or None when the terminal has been taken and the verdict is frozen."""
        try:
            batch = await self._receive.receive()
        except trio.EndOfChannel:
            pass
        else:
            self.fold.add(batch)
            return batch
        if self._stash:
            batch = self._stash.popleft()
            self.fold.add(batch)
            return batch
        await trio.lowlevel.checkpoint()  # callers of this instant land before the freeze
        self.freeze()
        return None

    def freeze(self) -> Cause:
        """The verdict, from now on fixed."""
        while self._stash:  # the taker has left before it was offered
            self.fold.add(self._stash.popleft())
        if self.verdict is None:
            shared = self._causes
            self.verdict = first_cause(
                (shared.ambient, shared.abort, self._dropped, shared.left, self._ended, self._expired)
            ) or leaving_cause(trio.current_time())
        return self.verdict

    def terminal(self) -> tuple[StreamChunk, ...]:
        """The last chunks of the attempt: its Finish, after counts that only an early note gave."""
        self._taken = True
        finish = self.freeze().finish
        early = self._wire.early_usage
        if early is not None and self._wire.usage is None and finish.reason.kind in ("error", "aborted"):
            return (Usage(early), finish)
        return (finish,)

    @property
    def let_go(self) -> bool:
        """Whether the layers go on without it: they dropped it, or took its Finish."""
        cause = self.verdict or self._dropped
        return self._taken or (cause is not None and cause is self._dropped)

    @property
    def error(self) -> Exception | None:
        """The exact exception that ended it, where one did."""
        match self._end:
            case outcome.Error(error=Exception() as error) if self.verdict is self._ended:
                return error
        return None

    @property
    def usage(self) -> TokenUsage | None:
        """The reported counts, or those noted early."""
        return self._wire.usage or self._wire.early_usage

    def settlements(self) -> list[Settlement]:
        """One account per wire attempt that has ended."""
        ended = [(wire, wire.ended_by) for wire in self._earlier_wires]
        if self.done.is_set():
            ended.append((self._wire, self.verdict))
        provider, model = self.selection.provider, self.selection.model
        return [
            wire.settle(provider, model, self.number, cause) for wire, cause in ended if cause is not None
        ]
