"""The phase clocks of one attempt: what is due, and when.

Everything counts on the provider's clock: trio's clock, standing still while a send into the
channel is blocked. Data only pushes due times back, which costs an assignment; whoever makes one
EARLIER (the first event, the end of a phase, a resumed clock) must wake the watchdog.

Before the adapter marks ``sent`` (where it marks ``connecting`` at all) no first_event counts;
before ``connected`` only connect and total do.
"""

from __future__ import annotations

import math

from ..model.policy import Timeouts
from .verdict import Phase


class PhaseClock:
    """Five due times over four instants. Times are in seconds; ``now`` is trio's clock."""

    __slots__ = (
        "_connect",
        "_connecting_since",
        "_first_event",
        "_idle",
        "_paused_at",
        "_progress",
        "_total",
        "_waiting_since",
        "last_byte",
        "last_event",
        "offset",
        "started",
    )

    def __init__(self, timeouts: Timeouts, now: float) -> None:
        self._connect = _limit(timeouts.connect)
        self._first_event = _limit(timeouts.first_event)
        self._idle = _limit(timeouts.idle)
        self._progress = _limit(timeouts.progress)
        self._total = _limit(timeouts.total)
        self.started = now
        self.offset = 0.0
        """How long the clock has stood still; provider time is trio's time minus this."""
        self.last_byte = now
        self.last_event: float | None = None
        self._connecting_since: float | None = None
        self._waiting_since: float | None = now
        self._paused_at: float | None = None

    def limit(self, phase: Phase) -> float:
        """How long the phase may take."""
        limits: dict[Phase, float] = {
            "connect": self._connect,
            "first_event": self._first_event,
            "idle": self._idle,
            "progress": self._progress,
            "total": self._total,
        }
        return limits[phase]

    def provider_time(self, now: float) -> float:
        """``now`` on the provider's clock."""
        return (now if self._paused_at is None else self._paused_at) - self.offset

    def connecting(self, now: float) -> None:
        """The wait for a connection begins."""
        self._connecting_since = self.provider_time(now)
        self._waiting_since = None

    def connected(self, now: float) -> None:
        """The wait for a connection is over; the upload begins."""
        self._connecting_since = None
        self.last_byte = self.provider_time(now)

    def sent(self, now: float) -> None:
        """The upload is over; the wait for the first model event begins."""
        self._connecting_since = None
        self.last_byte = self._waiting_since = self.provider_time(now)

    def pause(self, now: float) -> None:
        """A send is blocked: the clock stands still."""
        self._paused_at = now

    def resume(self, now: float) -> None:
        """The send went through."""
        if self._paused_at is not None:
            self.offset += now - self._paused_at
            self._paused_at = None

    def due(self) -> tuple[float, Phase]:
        """The earliest due time on trio's clock, and whose; infinity where nothing is due."""
        if self._paused_at is not None:
            return math.inf, "idle"
        soonest, phase = self.started + self._total, "total"
        if self._connecting_since is not None:
            candidate, name = self._connecting_since + self._connect, "connect"
        else:
            candidate, name = self.last_byte + self._idle, "idle"
        if candidate < soonest:
            soonest, phase = candidate, name
        if self.last_event is not None:
            candidate, name = self.last_event + self._progress, "progress"
        elif self._waiting_since is None:
            candidate = math.inf
        elif self._first_event < math.inf:
            candidate, name = self._waiting_since + self._first_event, "first_event"
        else:
            candidate, name = self._waiting_since + self._progress, "progress"
        if candidate < soonest:
            soonest, phase = candidate, name
        return soonest + self.offset, phase  # type: ignore[return-value]  # only the names above


def _limit(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds
