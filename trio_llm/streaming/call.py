"""What one call holds: its nursery, its attempts and the tasks that drive layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

import trio

from ..model import codes
from ..model.failures import LlmError
from ..model.policy import DEFAULT_TIMEOUTS, NormalRetry
from ..model.requests import GenerateOptions
from .attempt import Attempt
from .causes import CallCauses
from .contract import ChunkSink
from .selection import Middleware, Select, Selection
from .watchdog import Watchdog


class Waiter(Protocol):
    """A task that drives layers."""

    def forbid_waiting(self) -> None:
        """An abort came: from now on its layers may run, but not wait."""


class Call:
    """The state that the tasks of one call share."""

    def __init__(
        self,
        options: GenerateOptions,
        select: Select,
        middleware: Sequence[Middleware],
        watchdog: Watchdog,
        buffer: int,
    ) -> None:
        self.options = options
        self.middleware = tuple(middleware)
        self.buffer = buffer
        self.causes = CallCauses()
        self.attempts: list[Attempt] = []
        self.waiters: list[Waiter] = []
        self._select = select
        self._watchdog = watchdog

    @property
    def nursery(self) -> trio.Nursery:
        """The one nursery of the call.

        Raises:
            LlmError: INVALID_CHUNK_SEQUENCE, outside the stream's ``async with``.
        """
        if self.causes.nursery is None:
            raise LlmError("the stream is not open", codes.INVALID_CHUNK_SEQUENCE)
        return self.causes.nursery

    def begin(self, options: GenerateOptions) -> Attempt:
        """Start an attempt in a task of its own. A route that cannot be had is an attempt that failed."""
        refusal: Exception | None = None
        try:
            selection = self._select(options)
        except Exception as error:
            refusal = error
            selection = _no_route(options)
        attempt = Attempt(
            self.causes, self._watchdog, selection, options, len(self.attempts) + 1, self.buffer, refusal
        )
        self.attempts.append(attempt)
        self.nursery.start_soon(attempt.run)
        self._watchdog.watch(attempt)
        return attempt

    def abort(self, reason: str | None) -> None:
        """Stamp an abort and end everything that waits; synchronous, and only the first counts."""
        if not self.causes.note_abort(reason):
            return
        for attempt in self.attempts:
            attempt.stop("aborted")
        for waiter in self.waiters:
            waiter.forbid_waiting()


async def _never(options: GenerateOptions, sink: ChunkSink) -> NoReturn:
    raise AssertionError("an attempt without a route runs nothing")


def _no_route(options: GenerateOptions) -> Selection:
    return Selection(
        provider=options.provider,
        model=options.model,
        produce=_never,
        timeouts=DEFAULT_TIMEOUTS,
        retry_policy=NormalRetry(),
    )
