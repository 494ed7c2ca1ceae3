"""The body of a response, and with it the ownership of the connection it comes over."""

from __future__ import annotations

from types import ModuleType
from typing import Self

import trio

from .body import BodyReader, FramingError
from .connection import READ_SIZE, Connection
from .pool import Pool
from .watcher import CallWatcher
from .wire_error import Kind, WireError


class ResponseBody:
    """Owns its connection until the body is complete, broken or closed; then the pool has it, or nobody.

    Attributes:
        complete: the body was read to its proper end.

    It is an async iterator and no generator, so that leaving an iteration leaves nothing suspended.
    """

    def __init__(
        self,
        pool: Pool,
        connection: Connection,
        reader: BodyReader,
        begun: bytes,
        *,
        reusable: bool,
        watcher: CallWatcher,
        library: ModuleType,
    ) -> None:
        self._pool = pool
        self._connection: Connection | None = connection
        self._receive_some = connection.receive_some
        self._reader = reader
        self._begun = begun
        self._reusable = reusable
        self._watcher = watcher
        self._library = library
        self.complete = False
        self._peer = str(connection.route)
        if reader.done:
            reader.rest = begun
            self._finish()

    async def receive(self) -> bytes:
        """The body bytes of one network read; ``b""`` once the body ended properly.

        Not a checkpoint where bytes came with the head.

        Raises:
            httpx.ReadError: the connection broke, or this body was closed before its end.
            httpx.RemoteProtocolError: the body is cut short or badly framed.
        """
        while self._connection is not None:
            data = self._begun
            if data:
                self._begun = b""
            else:
                try:
                    data = await self._receive_some(READ_SIZE)
                except trio.BrokenResourceError as error:
                    failure = self._failed("ReadError", "the connection broke within the response", error)
                    raise failure from failure.__cause__
                except BaseException:
                    self.close()
                    raise
                if not data:
                    self._receive_end()
                    return b""
                self._watcher.alive()
            try:
                body = self._reader.feed(data)
            except FramingError as error:
                failure = self._failed("RemoteProtocolError", f"the response is malformed: {error}", error)
                raise failure from failure.__cause__
            if self._reader.done:
                self._finish()
            if body:
                return body
        if self.complete:
            return b""
        raise self._failed("ReadError", "the response was closed before its end")

    def _receive_end(self) -> None:
        try:
            self._reader.end()
        except FramingError as error:
            failure = self._failed("RemoteProtocolError", f"the response is incomplete: {error}", error)
            raise failure from failure.__cause__
        self._finish()

    def _failed(self, kind: Kind, message: str, error: Exception | None = None) -> Exception:
        self.close()
        failure = WireError(kind, f"{self._peer}: {message}")
        failure.__cause__ = error
        raised: Exception = getattr(self._library, kind)(str(failure))
        raised.__cause__ = failure
        return raised

    def _finish(self) -> None:
        self.complete = True
        connection, self._connection = self._connection, None
        assert connection is not None
        if self._reusable and not self._reader.rest:
            self._pool.give_back(connection)
        else:
            self._pool.discard(connection)
        self._watcher.socket_closed()

    def close(self) -> None:
        """Let go of the connection, at once; it is closed if the body was not complete. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.discard(connection)
            self._watcher.socket_closed()

    async def aclose(self) -> None:
        """As :meth:`close`; not a checkpoint."""
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        data = await self.receive()
        if not data:
            raise StopAsyncIteration
        return data
