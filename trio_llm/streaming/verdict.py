"""Why an attempt ended: the rules, and the one function that applies them.

1. Every party that can end an attempt stamps its own slot, once, synchronously. Nobody compares.
2. Nothing is cancelled without a stamp.
3. The first cause wins, in the order the event loop observed it. Of causes of one instant the
   lowest rank wins: ambient, abort, leaving, provider, clock.
4. The verdict is frozen when the attempt's terminal is taken, or when the stream is left.
5. A clock stamps only after the watchdog has let the data and callers of its instant land first.

No I/O and no trio here: times come in as numbers.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Literal, TypeAlias

import attrs

from ..model import codes
from ..model.chunks import Aborted, Error, Finish
from ..model.failures import LlmFailure

Phase: TypeAlias = Literal["connect", "first_event", "idle", "progress", "total"]
Origin: TypeAlias = Literal["ambient", "signal", "consumer", "middleware", "provider", "runtime"] | Phase
"""Who ended an attempt: an enclosing cancel scope, abort(), the body of the ``async with``, a layer,
the provider, the runtime before any adapter was reached, or the clock of a phase."""


class Rank(enum.IntEnum):
    """Which of several causes of one instant wins; the lowest does."""

    AMBIENT = 0
    ABORT = 1
    LEAVING = 2
    PROVIDER = 3
    CLOCK = 4


@attrs.frozen
class Cause:
    """One stamp.

    Attributes:
        time: when the event loop observed it, on trio's clock, in seconds.
    """

    time: float
    rank: Rank
    origin: Origin
    finish: Finish


def first_cause(causes: Iterable[Cause | None]) -> Cause | None:
    """The cause that counts, or None if nobody stamped. A full tie goes to the one listed first."""
    stamped = [cause for cause in causes if cause is not None]
    return min(stamped, key=lambda cause: (cause.time, cause.rank)) if stamped else None


def aborted(message: str) -> Finish:
    """The finish of an attempt that was stopped on this side."""
    return Finish(Aborted(LlmFailure(message, codes.ABORTED)))


def ambient_cause(now: float) -> Cause:
    """An enclosing cancel scope was cancelled, or its deadline passed."""
    return Cause(now, Rank.AMBIENT, "ambient", aborted("an enclosing cancel scope was cancelled"))


def abort_cause(now: float, reason: str | None) -> Cause:
    """abort() was called, on the stream or on a signal."""
    return Cause(now, Rank.ABORT, "signal", aborted(reason or "the call was aborted"))


def leaving_cause(now: float) -> Cause:
    """The body of the ``async with`` ended before the stream did."""
    return Cause(now, Rank.LEAVING, "consumer", aborted("the consumer left the stream before its end"))


def dropped_cause(now: float) -> Cause:
    """A layer gave the attempt up: it tried again, or another entrant won."""
    return Cause(now, Rank.LEAVING, "middleware", aborted("a middleware layer dropped the attempt"))


_PHASE_TEXT: dict[Phase, str] = {
    "connect": "no connection",
    "first_event": "no model event after the request was sent",
    "idle": "no byte either way",
    "progress": "no model event although the connection was open",
    "total": "the attempt was not over",
}


def clock_cause(now: float, phase: Phase, seconds: float) -> Cause:
    """The clock of a phase ran out."""
    message = f"{phase} timeout: {_PHASE_TEXT[phase]} within {seconds:g} s"
    return Cause(now, Rank.CLOCK, phase, Finish(Error(LlmFailure(message, codes.TIMEOUT))))
