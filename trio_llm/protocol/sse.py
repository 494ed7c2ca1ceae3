"""Server-sent events from bytes, exactly as the WHATWG HTML standard reads them.

https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream and the
section after it. A line ends at CR, LF or CRLF and nowhere else; the stream is UTF-8, and what is
not becomes U+FFFD; one byte order mark at the start is skipped. How the bytes are cut into reads
changes nothing.

There is one addition. The standard discards an event that lacks its blank line, as a browser cannot
know whether it is whole; where the body is known to have ended properly and the payload is a JSON
text (or ``[DONE]``), it is, and counts.
"""

from __future__ import annotations

from itertools import repeat
from operator import contains
from typing import Final, TypeAlias

from ..model import codes
from ..model.failures import LlmError
from .json_text import decode_lenient

SseEvent: TypeAlias = tuple[str, bytes]
"""Name ("" where there is none) and data in UTF-8; a plain tuple, as this is the hottest path there is."""

MAX_EVENT_SIZE: Final = 16 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_CR: Final = 13  # `in` is ten times as fast for a number as for a string of one byte
_LF: Final = 10


class SseDecoder:
    """Bytes in, events out. Comments make no event; an empty ``data`` field makes one with empty data.

    Args:
        max_event_size: the most bytes that one event (or one line) may have.

    Attributes:
        last_event_id: what a reconnecting client would send.
        retry: the reconnection time the server asked for, in milliseconds.
    """

    __slots__ = (
        "_data",
        "_failure",
        "_head",
        "_id",
        "_in_event",
        "_limit",
        "_line",
        "_line_size",
        "_name",
        "_size",
        "_skip_lf",
        "last_event_id",
        "retry",
    )

    def __init__(self, max_event_size: int = MAX_EVENT_SIZE) -> None:
        self.last_event_id = ""
        self.retry: int | None = None
        self._limit = max_event_size
        self._failure: LlmError | None = None
        self._head: bytes | None = b""  # the start of the stream while it may still become a BOM
        self._skip_lf = False  # the last read ended in CR: an LF now belongs to it
        self._line: list[bytes] = []  # pieces of the line that has no end yet
        self._line_size = 0
        self._in_event = False  # a line was read that has no blank line after it yet
        self._data: list[bytes] = []  # the data lines of that event
        self._size = 0
        self._name = b""
        self._id = b""

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that ``data`` completes.

        Raises:
            LlmError: MALFORMED_RESPONSE, for an event beyond the size limit. Events completed
                before it in the same read are returned first; then the next call raises.
        """
        if self._failure is not None:
            raise self._failure
        events: list[SseEvent] = []
        if self._head == b"" and data and data[0] != _BOM[0]:
            self._head = None
        try:
            if self._head is None and not self._skip_lf and _CR not in data:
                self._common(data, events)
            else:
                self._lines(self._normalised(data), events)
        except LlmError as failure:
            self._failure = failure
            if not events:
                raise
        return events

    def close(self, clean: bool) -> list[SseEvent]:
        """The end of the body: an unterminated last event, if it counts.

        Args:
            clean: whether the body ended as its framing promised.

        Raises:
            LlmError: MALFORMED_RESPONSE, if an earlier event was beyond the size limit.
        """
        if self._failure is not None:
            raise self._failure
        events: list[SseEvent] = []
        if clean:
            self._lines(b"\n\n" if self._line else b"\n", events)
        return [event for event in events if _proves_itself(event[1])]

    def _common(self, data: bytes, events: list[SseEvent]) -> None:
        """A read without CR: whole events are cut out at once, and lines are read at its ends only."""
        begin = 0
        if self._in_event or self._line:
            begin = data.find(b"\n\n") + 2
            if begin == 1:
                self._lines(data, events)
                return
            self._lines(data[:begin], events)
        end = data.rfind(b"\n\n", begin) + 2
        if end > 1:
            whole = data[begin:end]
            if len(whole) <= self._limit and is_utf8(whole):
                events.extend(self._whole_events(whole))
            else:
                self._lines(whole, events)
            begin = end
        if begin < len(data):
            self._lines(data[begin:], events)

    def _whole_events(self, data: bytes) -> list[SseEvent]:
        """Whole events, the usual shapes (one data line each) with the work per event done in C."""
        if data.startswith(b"data: "):
            payload = data[6:-2]
            if _LF not in payload:
                return [("", payload)]
            payloads = payload.split(b"\n\ndata: ")
            if not any(map(contains, payloads, repeat(_LF))):  # one line each
                return list(zip(repeat(""), payloads))
        events: list[SseEvent] = []
        for block in data[:-2].split(b"\n\n"):
            name, found, payload = block.partition(b"\ndata: ")
            if found and name.startswith(b"event: ") and _LF not in name and _LF not in payload:
                events.append((name[7:].decode(), payload))
            else:
                self._lines(block + b"\n\n", events)
        return events

    def _normalised(self, data: bytes) -> bytes:
        """``data`` without a byte order mark and with LF for every line end."""
        if self._head is not None:
            data = self._head + data
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._head = data
                return b""
            self._head = None
            data = data.removeprefix(_BOM)
        if self._skip_lf and data:
            self._skip_lf = False
            data = data.removeprefix(b"\n")
        if _CR in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _lines(self, data: bytes, events: list[SseEvent]) -> None:
        first, *rest = data.split(b"\n")
        if not first and not rest:
            return
        self._line_size += len(first)
        if self._size + self._line_size > self._limit:
            raise self._too_large()
        self._line.append(first)
        for following in rest:
            line = b"".join(self._line)
            if line:
                self._field(line)
            else:
                self._dispatch(events)
            if self._size + len(following) > self._limit:
                raise self._too_large()
            self._line, self._line_size = [following], len(following)
        if not self._line_size:
            self._line.clear()

    def _field(self, line: bytes) -> None:
        self._in_event = True
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif field == b"event":
            self._name = value
        elif field == b"id" and b"\0" not in value:
            self._id = value
        elif field == b"retry" and value.isdigit() and len(value) < 19:  # no int() of megabytes
            self.retry = int(value)

    def _dispatch(self, events: list[SseEvent]) -> None:
        self.last_event_id = self._id.decode("utf-8", "replace")
        if self._data:
            data = b"\n".join(self._data)
            if not is_utf8(data):
                data = data.decode("utf-8", "replace").encode()
            events.append((self._name.decode("utf-8", "replace"), data))
            self._data, self._size = [], 0
        self._name, self._in_event = b"", False

    def _too_large(self) -> LlmError:
        return LlmError(f"an event of more than {self._limit} bytes", codes.MALFORMED_RESPONSE)


def is_utf8(data: bytes) -> bool:
    """Whether ``data`` is valid UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _proves_itself(payload: bytes) -> bool:
    """Whether an unterminated payload shows that it is whole."""
    if payload == b"[DONE]":
        return True
    try:
        decode_lenient(payload)
    except LlmError:
        return False
    return True
