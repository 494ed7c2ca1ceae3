"""The one failure of the own transport, before it takes the shape a caller expects."""

from __future__ import annotations

from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "ConnectError", "ReadError", "WriteError", "ProxyError", "LocalProtocolError", "RemoteProtocolError"
]
"""The name of the httpx exception that says the same."""


class WireError(Exception):
    """What went wrong on a connection, in words that hold no header value and no credential.

    It is the cause of the httpx exception that leaves the transport, so that whoever catches that can tell
    such words from those of a transport that may quote what it received.
    """

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind: Kind = kind
