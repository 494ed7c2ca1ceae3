"""A call's stream as the runtime hands it out."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ..model.requests import GenerateOptions
from ..streaming.selection import Middleware
from ..streaming.stream import ChunkStream
from ..streaming.watchdog import Watchdog
from .boundary import CallRoutes


class RuntimeStream(ChunkStream):
    """A :class:`ChunkStream` that keeps its adapters open until it has been left.

    Args:
        open_streams: holds the stream while it is open, so that a runtime that is left can abort it.
    """

    def __init__(
        self,
        options: GenerateOptions,
        routes: CallRoutes,
        middleware: Sequence[Middleware],
        watchdog: Watchdog,
        open_streams: set[RuntimeStream],
    ) -> None:
        super().__init__(options, routes.select, middleware, watchdog=watchdog)
        self._routes = routes
        self._open_streams = open_streams

    async def __aenter__(self) -> Self:
        stream = await super().__aenter__()
        self._open_streams.add(self)
        return stream

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await super().__aexit__(exc_type, exc, traceback)
        finally:
            self._open_streams.discard(self)
            self._routes.release()
