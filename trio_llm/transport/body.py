"""Readers of HTTP/1.1 message bodies: bytes of the network in, bytes of the body out.

RFC 9112 sections 6.3 and 7.1. They agree with h11 on what is a body and what is not, but are stricter in
trailers (CRLF alone ends a line, no line is folded) and bounded; and they cost a tenth of it, which is what
a stream of small chunks pays for every event.
"""

from __future__ import annotations

import re
from typing import Protocol

MAX_LINE = 4096
"""How long a chunk's size line, extensions included, or a trailer may be, in bytes."""

MAX_TRAILERS = 16384
"""How long all trailers together may be, in bytes."""

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,20})(?:;[^\n]*)?[ \t]*")
_TRAILER = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\x00\n\r\f\v]*")

# Sizes of chunks below 4 KiB are few and come again and again; a look-up costs a fifth of parsing one.
_known_sizes: dict[bytes, int] = {}


class FramingError(Exception):
    """The body breaks the rules of its framing. The text never quotes what was received."""


class BodyReader(Protocol):
    """Takes a body apart from what the network gives.

    Attributes:
        done: the body is complete.
        rest: what came after the end of the body and belongs to nobody.
    """

    done: bool
    rest: bytes

    def feed(self, data: bytes) -> bytes:
        """Take the bytes of one read; returns what of the body they hold, which may be nothing.

        Raises:
            FramingError: they are not a body of this framing.
        """
        ...

    def end(self) -> None:
        """The peer closed the connection.

        Raises:
            FramingError: the body is not complete.
        """


class SizedBody:
    """A body whose length is known (Content-Length, or none at all)."""

    __slots__ = ("_left", "done", "rest")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """See :meth:`BodyReader.feed`."""
        if len(data) > self._left:
            data, self.rest = data[: self._left], data[self._left :]
        self._left -= len(data)
        self.done = self._left == 0
        return data

    def end(self) -> None:
        """See :meth:`BodyReader.end`."""
        if self._left:
            raise FramingError(f"the body ended {self._left} bytes short of its length")


class EndlessBody:
    """A body that ends with the connection."""

    __slots__ = ("done", "rest")

    def __init__(self) -> None:
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """See :meth:`BodyReader.feed`."""
        return data

    def end(self) -> None:
        """See :meth:`BodyReader.end`."""
        self.done = True


class ChunkedBody:
    """A body in chunks; it is complete after the CRLF that ends the trailers."""

    __slots__ = ("_held", "_left", "_trailers", "done", "rest")

    def __init__(self) -> None:
        self._held = b""  # the beginning of a line that is not complete
        self._left = 0  # of the present chunk: its data and the CRLF after it
        self._trailers = -1  # how many bytes of trailers came; -1 before the last chunk
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """See :meth:`BodyReader.feed`."""
        if self._trailers >= 0:
            self._read_trailers(self._held + data, 0)
            return b""
        if self._held:
            data = self._held + data
            self._held = b""
        pieces: list[bytes] = []
        position = self._continue_chunk(data, 0, pieces) if self._left else 0
        while True:
            end = data.find(b"\r\n", position)
            if end < 0:
                self._hold(data[position:])
                break
            line = data[position:end]
            size = _known_sizes.get(line)
            if size is None:
                size = _parse_size(line)
            position = end + 2
            if size == 0:
                self._trailers = 0
                self._read_trailers(data, position)
                break
            end = position + size
            if data[end : end + 2] == b"\r\n":
                pieces.append(data[position:end])
                position = end + 2
            else:
                self._left = size + 2
                position = self._continue_chunk(data, position, pieces)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _continue_chunk(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        """Take what there is of a chunk that began earlier or ends later; returns where it stops."""
        end = position + self._left
        if self._left > 2:
            pieces.append(data[position : end - 2])
        # The two bytes after the data are checked as they come.
        tail = data[max(end - 2, position) : end]
        if not b"\r\n"[-self._left :].startswith(tail):
            raise FramingError("a chunk is longer than its size")
        stop = min(end, len(data))
        self._left -= stop - position
        return stop

    def _hold(self, beginning: bytes) -> None:
        if len(beginning) > MAX_LINE + 1:  # one more may be the CR of a line that is just short enough
            raise FramingError("a line of the chunked framing is too long")
        self._held = beginning

    def _read_trailers(self, data: bytes, position: int) -> None:
        while True:
            end = data.find(b"\r\n", position)
            if end < 0:
                self._hold(data[position:])
                return
            self._trailers += end + 2 - position
            if self._trailers > MAX_TRAILERS:
                raise FramingError("the trailers are too long")
            line = data[position:end]
            position = end + 2
            if not line:
                self._held = b""
                self.done = True
                self.rest = data[position:]
                return
            if len(line) > MAX_LINE or _TRAILER.fullmatch(line) is None:
                raise FramingError("a trailer is malformed or too long")

    def end(self) -> None:
        """See :meth:`BodyReader.end`."""
        if not self.done:
            raise FramingError("the connection closed before the last chunk")


def _parse_size(line: bytes) -> int:
    if len(line) > MAX_LINE:
        raise FramingError("a line of the chunked framing is too long")
    match = _SIZE.fullmatch(line)
    if match is None:
        raise FramingError("the size of a chunk is malformed")
    size = int(match[1], 16)
    if len(line) <= 3:
        _known_sizes[line] = size
    return size
