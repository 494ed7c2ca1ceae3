"""The event that tells of changes in what is registered."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Self

import attrs
import trio

from ..model.catalogue import ConfigurableProvider, ProviderInfo

logger = logging.getLogger("trio_llm.runtime")


@attrs.frozen
class AdaptersUpdated:
    """What is registered after a change."""

    providers: tuple[ProviderInfo, ...]
    configurable_providers: tuple[ConfigurableProvider, ...]


Listener = Callable[[AdaptersUpdated], None]


class Handle:
    """Something that was put in place and can be taken out again; a context manager.

    Args:
        undo: takes it out; called once.
    """

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo: Callable[[], object] | None = undo

    def close(self) -> None:
        """Take it out. Again does nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Topology:
    """Tells listeners and readers of each change, after it was made, in order.

    A change that a listener makes is told when the present round is over, so that everybody sees
    the changes in the order in which they were made.
    """

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}
        self._readers: dict[object, _Latest] = {}
        self._pending: deque[AdaptersUpdated] = deque()
        self._telling = False
        self._closed = False

    def listen(self, listener: Listener) -> Handle:
        """Call ``listener`` after each change. What it raises is logged, and stops nobody."""
        key = object()
        self._listeners[key] = listener
        return Handle(lambda: self._listeners.pop(key))

    @contextlib.contextmanager
    def updates(self) -> Generator[trio.MemoryReceiveChannel[AdaptersUpdated]]:
        """A channel with the latest change its reader has not seen; ends when the runtime is left."""
        key, latest = object(), _Latest()
        with latest.receive, latest.replace:
            self._readers[key] = latest
            if self._closed:
                latest.send.close()
            try:
                yield latest.receive
            finally:
                del self._readers[key]
                latest.send.close()

    def tell(self, event: AdaptersUpdated) -> None:
        """Deliver an event; never raises, never waits."""
        self._pending.append(event)
        if self._telling:
            return
        self._telling = True
        try:
            while self._pending:
                self._deliver(self._pending.popleft())
        finally:
            self._telling = False

    def _deliver(self, event: AdaptersUpdated) -> None:
        if not self._closed:
            for latest in self._readers.values():
                latest.put(event)
        for key, listener in list(self._listeners.items()):
            if key not in self._listeners:
                continue  # an earlier listener of this round closed it
            try:
                listener(event)
            except Exception:
                logger.exception("a listener of adapter updates failed")

    def close(self) -> None:
        """End every reader's channel, and those that are opened later."""
        self._closed = True
        for latest in self._readers.values():
            latest.send.close()


class _Latest:
    """A channel of one place, whose content a newer value replaces."""

    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[AdaptersUpdated](1)
        self.replace = self.receive.clone()

    def put(self, event: AdaptersUpdated) -> None:
        try:
            self.send.send_nowait(event)
        except trio.WouldBlock:
            self.replace.receive_nowait()
            self.send.send_nowait(event)
