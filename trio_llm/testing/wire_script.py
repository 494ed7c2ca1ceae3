"""What a :class:`~trio_llm.testing.wire_server.WireServer` does with a connection, as plain data.

A script is a sequence of steps. ``bytes`` are written (framed, where they are part of a body); the
other steps wait, repeat, or end the connection in one of the ways real servers and networks do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Literal, TypeAlias

import attrs
import trio

LAST_CHUNK = b"0\r\n\r\n"
"""What ends a chunked body (RFC 9112 section 7.1)."""


def encode_chunk(data: bytes, extension: bytes = b"") -> bytes:
    """One HTTP chunk. ``extension`` stands between the size and its line's end, as in ``;a=b``."""
    return b"%x%b\r\n%b\r\n" % (len(data), extension, data)


@attrs.frozen
class Raw:
    """Write these bytes as they are, past the framing of the body. One write."""

    data: bytes


@attrs.frozen
class Pause:
    """Do nothing for some seconds on Trio's clock."""

    seconds: float


@attrs.frozen(eq=False)
class Gate:
    """Wait until the test opens it. It stays open.

    Attributes:
        reached: set when a script has come here.
    """

    reached: trio.Event = attrs.field(factory=trio.Event, init=False)
    _opened: trio.Event = attrs.field(factory=trio.Event, init=False)

    def open(self) -> None:
        """Let every script that waits here go on."""
        self._opened.set()

    async def pass_through(self) -> None:
        """Note that a script is here, and wait."""
        self.reached.set()
        await self._opened.wait()


@attrs.frozen
class Hold:
    """Keep the connection open without a further word until the client is gone."""


@attrs.frozen
class Cut:
    """Close the connection here, whatever the framing still owes (a FIN; no TLS close alert)."""


@attrs.frozen
class Reset:
    """Reset the connection here (a RST)."""


def _steps(value: Iterable[Step] | bytes) -> tuple[Step, ...]:
    return (value,) if isinstance(value, bytes) else tuple(value)


@attrs.frozen
class Repeat:
    """Run some steps again and again.

    Attributes:
        times: how often; None means until the client is gone.
    """

    steps: tuple[Step, ...] = attrs.field(converter=_steps, validator=attrs.validators.min_len(1))
    times: int | None = None


Step: TypeAlias = bytes | Raw | Pause | Gate | Hold | Cut | Reset | Repeat
"""One thing a script does. Each ``bytes`` and each :class:`Raw` is exactly one write."""

Framing: TypeAlias = Literal["chunked", "length", "close", "none"]
"""How a body is delimited.

``chunked`` makes one HTTP chunk of each ``bytes`` step; ``length`` announces the length; ``close``
closes the connection after the body; ``none`` adds nothing, neither a header nor framing.
"""

HeaderList: TypeAlias = tuple[tuple[str, str], ...]


def _headers(value: Mapping[str, str] | list[tuple[str, str]] | HeaderList) -> HeaderList:
    return tuple(value) if isinstance(value, (list, tuple)) else tuple(value.items())


def _length_of(steps: Iterable[Step]) -> int:
    total = 0
    for step in steps:
        if isinstance(step, bytes):
            total += len(step)
        elif isinstance(step, Repeat):
            if step.times is None:
                raise ValueError("an endless body has no length: set content_length, or another framing")
            total += step.times * _length_of(step.steps)
    return total


@attrs.frozen
class Response:
    """One scripted answer.

    Attributes:
        status: the status code; ``reason`` is its usual phrase where none is given.
        headers: written in this order, before the framing's own header.
        body: the steps of the body; ``bytes`` alone are one step.
        content_length: a promise that may be a lie (framing ``length`` only).
        before: steps before the head, such as a pause or a :class:`Raw` interim response.
        head: exactly these bytes in place of status line and headers.
        settle: after each write, wait until every other task of this Trio run is blocked, so that a
            client in the same run reads each write by itself. Switch it off where other tasks
            never block, or where writes shall pile up.
    """

    status: int = 200
    headers: HeaderList = attrs.field(default=(), converter=_headers)
    body: tuple[Step, ...] = attrs.field(default=(), converter=_steps)
    framing: Framing = attrs.field(default="chunked", kw_only=True)
    content_length: int | None = attrs.field(default=None, kw_only=True)
    reason: str | None = attrs.field(default=None, kw_only=True)
    before: tuple[Step, ...] = attrs.field(default=(), converter=_steps, kw_only=True)
    head: bytes | None = attrs.field(default=None, kw_only=True)
    settle: bool = attrs.field(default=True, kw_only=True)

    def encode_head(self) -> bytes:
        """Status line and headers as they go over the wire.

        Raises:
            ValueError: the body is endless and framed by a length that nobody gave.
        """
        if self.head is not None:
            return self.head
        reason = self.reason
        if reason is None:
            reason = HTTPStatus(self.status).phrase if self.status in set(HTTPStatus) else "Unknown"
        lines = [f"HTTP/1.1 {self.status} {reason}", *(f"{name}: {value}" for name, value in self.headers)]
        if self.framing == "chunked":
            lines.append("transfer-encoding: chunked")
        elif self.framing == "close":
            lines.append("connection: close")
        elif self.framing == "length":
            length = _length_of(self.body) if self.content_length is None else self.content_length
            lines.append(f"content-length: {length}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    @property
    def closes(self) -> bool:
        """Whether the connection ends with this response."""
        return self.framing == "close" or any(
            name.lower() == "connection" and value.lower() == "close" for name, value in self.headers
        )


def event_stream(
    *body: Step, status: int = 200, headers: HeaderList = (), framing: Framing = "chunked"
) -> Response:
    """A response of server-sent events; one write per ``bytes`` step."""
    return Response(status, (("content-type", "text/event-stream"), *headers), body, framing=framing)


def json_response(value: Any, status: int = 200, headers: HeaderList = ()) -> Response:
    """A whole JSON document with its length, as error responses and catalogues have."""
    body = json.dumps(value).encode()
    return Response(status, (("content-type", "application/json"), *headers), body, framing="length")
