"""What a transport tells the attempt it works for: the phases of a call and every sign of life."""

from __future__ import annotations

from typing import Protocol


class CallWatcher(Protocol):
    """Told by the transport how one request fares. Every method is synchronous, cheap and never raises.

    ``ChunkSink`` satisfies it; so does :data:`UNWATCHED` where nobody wants to know.
    """

    def connecting(self) -> None:
        """The wait for a connection begins (for a free one, for the network, for TLS, for a proxy)."""

    def connected(self) -> None:
        """There is a connection; the request is being sent."""

    def sent(self) -> None:
        """The whole request is sent, or as much of it as the server would take."""

    def alive(self) -> None:
        """Bytes passed, either way."""

    def socket_closed(self) -> None:
        """The connection was closed or given back."""


class _Unwatched:
    def connecting(self) -> None:
        return None

    connected = sent = alive = socket_closed = connecting


UNWATCHED: CallWatcher = _Unwatched()
"""Looks away."""

WATCHER_EXTENSION = "trio_llm.watcher"
"""The key of ``request.extensions`` under which a request carries its watcher."""
