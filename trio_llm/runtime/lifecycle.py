"""How long an adapter lives: from its registration until nothing names it and no call is pinned to it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator

import trio

from ..model import codes
from ..model.failures import LlmError
from ..streaming.contract import LlmAdapter
from .topology import Handle

logger = logging.getLogger("trio_llm.runtime")

CLOSE_SECONDS = 5.0
"""How long an adapter may take to close; then its ``__aexit__`` is cancelled."""


class Tenancy:
    """One life of one adapter: entered once, whatever the number of its routes, and left once.

    Routes and calls hold it with :meth:`hold`; when the last hold is closed, it retires for good.
    """

    def __init__(self, adapter: LlmAdapter, predecessor: Tenancy | None) -> None:
        self.adapter = adapter
        self._predecessor = predecessor
        self._holds = 0
        self._running = 0
        self._started = False
        self._failure: Exception | None = None
        self._settled = trio.Event()  # entered, or never to be
        self._retired = trio.Event()
        self._idle = trio.Event()
        self._over = trio.Event()
        self._scope = trio.CancelScope(shield=True)

    @property
    def retired(self) -> bool:
        """Whether it takes no more holds."""
        return self._retired.is_set()

    def hold(self) -> Handle:
        """Keep the adapter open until the handle is closed."""
        self._holds += 1
        return Handle(self._release)

    def _release(self) -> None:
        self._holds -= 1
        if not self._holds:
            self.retire()

    def retire(self) -> None:
        """Close the adapter as soon as no attempt runs on it; at the latest after CLOSE_SECONDS."""
        if self._retired.is_set():
            return
        self._retired.set()
        if not self._running:
            self._idle.set()
        if self._started and not self._settled.is_set():
            self._limit()  # it is still opening

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        """An attempt runs on the adapter for as long as this is open."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running and self._retired.is_set():
                self._idle.set()

    async def ready(self) -> None:
        """Wait until the adapter is open.

        Raises:
            LlmError: it could not be opened or has broken down since, with the facts of an LlmError it
                raised, else UNKNOWN; REGISTRATION_DISPOSED, it is closed or about to be.
        """
        if not self._settled.is_set():
            await self._settled.wait()
        if self._failure is not None:
            if isinstance(self._failure, LlmError):
                raise LlmError.of(self._failure.failure) from self._failure
            raise LlmError(f"the adapter is not open: {self._failure}", codes.UNKNOWN) from self._failure
        if self.retired or self._over.is_set():
            raise LlmError("the adapter is closed", codes.REGISTRATION_DISPOSED)

    def _limit(self) -> None:
        self._scope.deadline = trio.current_time() + CLOSE_SECONDS

    async def live(self) -> None:
        """Open the adapter, wait until it retires, close it. The body of the adapter's own task.

        One scope lies around the whole life, since an adapter may hold a nursery open from its
        ``__aenter__`` on. Cancelling the task's surroundings does not reach it; :meth:`retire` does.

        Raises:
            Exception: what closing raised. A failure to open, or of a task of the adapter's own, is
                logged and told to every call.
        """
        self._started = True
        try:
            with self._scope:
                if self._predecessor is not None:
                    await self._predecessor._over.wait()
                    self._predecessor = None
                if not self.retired:
                    await self._open_and_close()
        finally:
            self._over.set()
            self._settled.set()
        if self._scope.cancelled_caught:
            logger.warning("an adapter did not close within %g s: %r", CLOSE_SECONDS, self.adapter)

    async def _open_and_close(self) -> None:
        try:
            async with self.adapter:
                self._settled.set()
                await self._retired.wait()
                self._limit()
                await self._idle.wait()
        except Exception as error:
            self._failure = error
            if self._retired.is_set():
                raise
            logger.exception("an adapter could not be opened, or broke down: %r", self.adapter)


class Tenancies:
    """The adapters that are alive, by identity.

    Attributes:
        close_errors: what closing adapters has raised.
    """

    def __init__(self) -> None:
        self._by_adapter: dict[int, Tenancy] = {}
        self._nursery: trio.Nursery | None = None
        self._waiting: list[Tenancy] = []
        self._closed = False
        self.close_errors: list[Exception] = []

    def of(self, adapter: LlmAdapter) -> Tenancy:
        """The adapter's present life; a new one begins if it has none, or if the last one retired.

        Raises:
            RuntimeError: a new one is needed, and the runtime was left.
        """
        known = self._by_adapter.get(id(adapter))
        if known is not None and not known.retired:
            return known
        if self._closed:
            raise RuntimeError("the runtime was left")
        tenancy = Tenancy(adapter, known)
        self._by_adapter[id(adapter)] = tenancy
        if self._nursery is None:
            self._waiting.append(tenancy)
        else:
            self._nursery.start_soon(self._live, tenancy, name=f"adapter {type(adapter).__name__}")
        return tenancy

    def start(self, nursery: trio.Nursery) -> None:
        """Open what was registered so far, and from now on what is registered, in tasks of ``nursery``."""
        self._nursery = nursery
        waiting, self._waiting = self._waiting, []
        for tenancy in waiting:
            nursery.start_soon(self._live, tenancy, name=f"adapter {type(tenancy.adapter).__name__}")

    async def _live(self, tenancy: Tenancy) -> None:
        try:
            await tenancy.live()
        except Exception as error:
            self.close_errors.append(error)
        finally:
            if self._by_adapter.get(id(tenancy.adapter)) is tenancy:
                del self._by_adapter[id(tenancy.adapter)]

    def retire_all(self) -> None:
        """Close every adapter, whoever holds it, and open no other."""
        self._closed = True
        for tenancy in list(self._by_adapter.values()):
            tenancy.retire()
