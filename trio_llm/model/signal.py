"""AbortSignal: one switch that may stop many calls.

It knows no event loop: the engine subscribes. Use it from the loop's own thread (from another,
through ``trio.from_thread.run_sync``).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable


class AbortSignal:
    """Stops every call it was handed to, at once and for good.

    ``abort`` is synchronous: when it returns, each call has recorded the abort. A signal that was
    aborted before a call starts prevents the call.
    """

    __slots__ = ("__weakref__", "_aborted", "_children", "_parent", "_reason", "_subscribers")

    def __init__(self) -> None:
        self._aborted = False
        self._reason: str | None = None
        self._subscribers: dict[object, Callable[[str | None], None]] = {}
        self._children: weakref.WeakSet[AbortSignal] = weakref.WeakSet()
        self._parent: AbortSignal | None = None

    @property
    def aborted(self) -> bool:
        """Whether :meth:`abort` was called here or on a parent."""
        return self._aborted

    @property
    def reason(self) -> str | None:
        """What the first abort said."""
        return self._reason

    def abort(self, reason: str | None = None) -> None:
        """Abort every call that uses this signal or a child of it. The first abort counts."""
        if self._aborted:
            return
        self._aborted, self._reason = True, reason
        subscribers, self._subscribers = list(self._subscribers.values()), {}
        for notify in subscribers:
            notify(reason)
        for child in list(self._children):
            child.abort(reason)

    def child(self) -> AbortSignal:
        """A signal that this one aborts too, and that can be aborted alone."""
        child = AbortSignal()
        child._parent = self  # keeps the chain alive while only the child is held
        if self._aborted:
            child.abort(self._reason)
        else:
            self._children.add(child)
        return child

    def subscribe(self, notify: Callable[[str | None], None]) -> Callable[[], None]:
        """Call ``notify(reason)`` synchronously on abort (at once, if that was before).

        Args:
            notify: must not raise.

        Returns:
            A function that ends the subscription; calling it again does nothing.
        """
        if self._aborted:
            notify(self._reason)
            return lambda: None
        key = object()
        self._subscribers[key] = notify

        def unsubscribe() -> None:
            self._subscribers.pop(key, None)

        return unsubscribe
