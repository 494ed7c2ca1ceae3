"""The pump: the one task that drives the layers, so that a cancelled receive() harms no generator."""

from __future__ import annotations

from collections import deque

import trio

from ..model import codes
from ..model.chunks import Error, Finish, StreamChunk
from ..model.failures import LlmError, LlmFailure
from .call import Call
from .lanes import Lane

_LARGEST_BATCH = 256


class Pump:
    """Drives the chain and hands its chunks on in batches.

    A batch that waits in the channel goes on growing, so that a chunk costs an append and not a
    hop. The Finish is a batch of its own.
    """

    def __init__(self, call: Call) -> None:
        self.done = trio.Event()
        self.finish: Finish | None = None
        """The Finish that the layers gave, once they have; it may still wait for the consumer."""
        self._call = call
        self._lane = Lane(call)
        self._send, self._receive = trio.open_memory_channel[list[StreamChunk]](call.buffer)
        self._growing: list[StreamChunk] | None = None
        self._overflow: deque[list[StreamChunk]] = deque()
        self._error: Exception | None = None

    async def run(self) -> None:
        """The task. Raises only what nobody may hold back."""
        call, lane = self._call, self._lane
        lane.begin()
        try:
            if call.causes.left is None:
                with lane.scope:
                    async for chunk in lane.build(0, call.options):
                        await self._put(chunk)
                call.causes.note_ambient()
                if self.finish is None and call.causes.left is None and call.causes.ambient is None:
                    await self._put(self._missing_finish())
        except Exception as error:
            self._error = error
        finally:
            try:
                await lane.end()
            except Exception as error:
                if self._error is None:
                    self._error = error
                else:
                    call.causes.cleanup_errors.append(error)
            finally:
                self._send.close()
                self.done.set()

    async def receive(self) -> list[StreamChunk]:
        """The next batch.

        Raises:
            trio.EndOfChannel: the layers are done.
            Exception: what a layer raised; once.
        """
        try:
            batch = await self._receive.receive()
        except trio.EndOfChannel:
            if self._overflow:
                return self._overflow.popleft()
            if self._error is None:
                raise
        else:
            if batch is self._growing:
                self._growing = None
            return batch
        error, self._error = self._error, None
        raise error

    def take_error(self) -> Exception | None:
        """What a layer raised, unless somebody has been shown it."""
        error, self._error = self._error, None
        return error

    def stop(self) -> None:
        """The consumer has left: cancel the layers, wherever they wait. Synchronous."""
        self._lane.scope.cancel("the consumer left")
        self._receive.close()

    async def _put(self, chunk: StreamChunk) -> None:
        if self.finish is not None:
            raise LlmError("a middleware yielded a chunk after the Finish", codes.INVALID_CHUNK_SEQUENCE)
        growing = self._growing
        if type(chunk) is Finish:
            self.finish = chunk
        elif growing is not None and len(growing) < _LARGEST_BATCH:
            growing.append(chunk)
            return
        batch = [chunk]
        self._growing = None if self.finish is not None else batch
        try:
            if self._overflow:
                raise trio.WouldBlock
            self._send.send_nowait(batch)
        except trio.BrokenResourceError:
            pass  # the consumer has left; the Cancelled follows
        except trio.WouldBlock:
            await self._put_slowly(batch)

    async def _put_slowly(self, batch: list[StreamChunk]) -> None:
        if self._call.causes.abort is not None:
            self._overflow.append(batch)  # after an abort nothing waits, and nothing is lost
            return
        self._growing = None
        try:
            await self._lane.park(self._send.send, batch)
        except trio.BrokenResourceError:
            pass  # as above
        except trio.Cancelled:
            self._overflow.append(batch)
            raise

    def _missing_finish(self) -> Finish:
        abort = self._call.causes.abort
        if abort is not None:
            return abort.finish
        return Finish(Error(LlmFailure("the middleware ended without a Finish", codes.STREAM_CLOSED)))
