"""The stamps that a whole call shares: ambient, abort, leaving."""

from __future__ import annotations

import math

import trio

from .verdict import Cause, abort_cause, ambient_cause, leaving_cause


class CallCauses:
    """One slot per party; the first stamp in a slot stays."""

    __slots__ = ("abort", "ambient", "cleanup_errors", "left", "nursery")

    def __init__(self) -> None:
        self.nursery: trio.Nursery | None = None
        self.ambient: Cause | None = None
        self.abort: Cause | None = None
        self.left: Cause | None = None
        self.cleanup_errors: list[Exception] = []
        """What adapters and layers raised while they were being closed; leaving raises it."""

    def note_ambient(self) -> None:
        """Stamp if an enclosing scope is cancelled: by level, outside the engine's own scopes.

        Never by catching Cancelled: it also comes in groups, and an adapter may swallow it.
        """
        if self.ambient is not None or trio.current_effective_deadline() != -math.inf:
            return
        if self.nursery is None or not self.nursery.cancel_scope.cancel_called:
            self.ambient = ambient_cause(trio.current_time())

    def note_abort(self, reason: str | None) -> bool:
        """Stamp an abort; False if there was one."""
        if self.abort is not None:
            return False
        self.abort = abort_cause(trio.current_time(), reason)
        return True

    def note_left(self) -> None:
        """Stamp that the consumer leaves."""
        if self.left is None:
            self.left = leaving_cause(trio.current_time())
