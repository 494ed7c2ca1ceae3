"""Working with a client or transport that is not the library's own: phases, signs of life, orderly stops."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping
from types import ModuleType
from typing import Any, cast

import trio

from .connection import UPLOAD_SLICE
from .watcher import CallWatcher

_CLOSE_DEADLINE = 1.0  # how long a foreign response may take to close, in seconds


class PhaseTrace:
    """An httpx ``trace`` extension that tells a watcher when there is a connection and the request is sent.

    A transport that does not know the extension counts as connecting until its response's head is there.
    """

    def __init__(self, watcher: CallWatcher) -> None:
        self._watcher = watcher
        self._connected = False
        self._sent = False

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by httpcore; the names of its events are in its documentation ("Request extensions")."""
        if event.endswith(".send_request_headers.started"):
            self._note_connected()
        elif event.endswith(".send_request_body.complete"):
            self.head_arrived()
        else:
            return
        self._watcher.alive()

    def _note_connected(self) -> None:
        if not self._connected:
            self._connected = True
            self._watcher.connected()

    def head_arrived(self) -> None:
        """Whatever was not told before is over now."""
        self._note_connected()
        if not self._sent:
            self._sent = True
            self._watcher.sent()


class _Slices:
    """The body of a request, each slice a sign of life once it is sent.

    No generator, as those that httpx makes of a body are left suspended where sending it is cut short.
    """

    def __init__(self, content: bytes, watcher: CallWatcher) -> None:
        self._content = content
        self._watcher = watcher
        self._place = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return cast(AsyncIterator[bytes], type(self)(self._content, self._watcher))

    async def __anext__(self) -> bytes:
        if self._place:
            self._watcher.alive()
        piece = self._content[self._place : self._place + UPLOAD_SLICE]
        if not piece:
            raise StopAsyncIteration
        self._place += len(piece)
        return piece


@functools.cache
def upload_class(library: ModuleType) -> type[_Slices]:
    """What sends a whole body in slices, as the stream that this library's requests insist on."""
    return cast(type[_Slices], type("Upload", (_Slices, library.AsyncByteStream), {}))


class StockBody:
    """The body of a foreign response."""

    def __init__(self, response: Any, watcher: CallWatcher) -> None:
        self._response = response
        self._watcher = watcher
        self._pieces: AsyncIterator[bytes] = response.aiter_bytes()
        self._closed = False

    async def receive(self) -> bytes:
        """The next piece of the body; ``b""`` at its end.

        Raises:
            httpx.HTTPError: whatever the foreign transport makes of its failures.
        """
        async for piece in self._pieces:
            if piece:
                self._watcher.alive()
                return piece
        return b""

    async def aclose(self) -> None:
        """Stop the response, wherever its generators are suspended, and close it. Idempotent.

        Closing a response of httpx leaves the generators of its body suspended, for the garbage collector to
        warn of. Pulled under a cancelled scope they unwind by themselves.
        """
        if self._closed:
            return
        self._closed = True
        with trio.CancelScope(deadline=trio.current_time() + _CLOSE_DEADLINE, shield=True):
            try:
                with trio.CancelScope() as stopped:
                    stopped.cancel()
                    async for _ in self._pieces:
                        pass
            except Exception:  # how a response that nobody wants ends is of no interest
                pass
            finally:
                await self._response.aclose()
                self._watcher.socket_closed()
