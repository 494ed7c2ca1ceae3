"""The watchdog: one task for all calls of a runtime that notices when a phase of an attempt has run out.

Data and liveness only store a timestamp; nothing is scheduled per read, and a call costs no task. The
watchdog sleeps to the earliest due time and looks again. Before it stamps, it lets three scheduler passes
go by, so that data and callers of the very same instant (also behind one relay channel or two) land first.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

from .phases import PhaseClock
from .verdict import Phase

SETTLE_CHECKPOINTS = 3


class Watched(Protocol):
    """What the watchdog needs to know of an attempt."""

    clock: PhaseClock

    @property
    def may_expire(self) -> bool:
        """Whether a clock can still end it."""
        ...

    def expire(self, now: float, phase: Phase) -> None:
        """A clock ran out: stamp, then cancel."""


class Watchdog:
    """Watches attempts for as long as :meth:`run` runs. Everything else is synchronous."""

    __slots__ = ("_over", "_sleep", "_wake", "_watched")

    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self._wake = math.inf
        self._sleep = trio.CancelScope()
        self._over = False

    def watch(self, attempt: Watched) -> None:
        """Watch one more attempt."""
        self._watched.add(attempt)
        self.due_earlier(attempt)

    def forget(self, attempt: Watched) -> None:
        """The attempt is over; again does nothing.

        The task still wakes when it would have been due: moving a deadline costs more than one idle look.
        """
        self._watched.discard(attempt)

    def due_earlier(self, attempt: Watched) -> None:
        """Must be called whenever a due time may have become earlier; cheap if it has not."""
        due = attempt.clock.due()[0]
        if due < self._wake:
            self._wake = self._sleep.deadline = due

    def stop(self) -> None:
        """End the task."""
        self._over = True
        self._sleep.cancel("the watchdog is not needed any more")

    def _stopped(self) -> bool:
        return self._over

    async def run(self) -> None:
        """The task. Ends after :meth:`stop` and by nothing else, as it also watches calls in a shield."""
        while not self._stopped():
            running = (attempt for attempt in self._watched if attempt.may_expire)
            self._wake = min((attempt.clock.due()[0] for attempt in running), default=math.inf)
            with trio.CancelScope(deadline=self._wake, shield=True) as self._sleep:
                await trio.sleep_forever()
            if self._stopped():
                return
            for _ in range(SETTLE_CHECKPOINTS):
                await trio.lowlevel.cancel_shielded_checkpoint()
            now = trio.current_time()
            for attempt in list(self._watched):
                due, phase = attempt.clock.due()
                if due <= now and attempt.may_expire:
                    attempt.expire(now, phase)
