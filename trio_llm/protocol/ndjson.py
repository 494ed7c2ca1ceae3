"""Newline-delimited JSON from bytes: one event for each line that is not blank.

A line ends at LF alone (a CR before it is JSON white space); the last line needs no line end if the
body ended properly and the line is a whole JSON text.
"""

from __future__ import annotations

from ..model import codes
from ..model.failures import LlmError
from .json_text import is_complete_json
from .sse import MAX_EVENT_SIZE, SseEvent, is_utf8


class NdjsonDecoder:
    """Bytes in, events out; the same interface as :class:`~trio_llm.protocol.sse.SseDecoder`.

    Args:
        max_event_size: the most bytes that one line may have.
    """

    __slots__ = ("_failure", "_limit", "_line", "_line_size")

    def __init__(self, max_event_size: int = MAX_EVENT_SIZE) -> None:
        self._limit = max_event_size
        self._failure: LlmError | None = None
        self._line: list[bytes] = []  # pieces of the line that has no end yet
        self._line_size = 0

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that ``data`` completes; their names are empty.

        Raises:
            LlmError: MALFORMED_RESPONSE, for a line beyond the size limit. Lines completed before
                it in the same read are returned first; then the next call raises.
        """
        if self._failure is not None:
            raise self._failure
        events: list[SseEvent] = []
        first, *rest = data.split(b"\n")
        self._line.append(first)
        self._line_size += len(first)
        for following in rest:
            if self._line_size > self._limit:
                break
            line = b"".join(self._line).strip()
            if line:
                events.append(("", line if is_utf8(line) else line.decode("utf-8", "replace").encode()))
            self._line, self._line_size = [following], len(following)
        if self._line_size > self._limit:
            self._failure = LlmError(f"a line of more than {self._limit} bytes", codes.MALFORMED_RESPONSE)
            if not events:
                raise self._failure
        return events

    def close(self, clean: bool) -> list[SseEvent]:
        """The end of the body: an unterminated last line, if the body ended properly and it parses.

        Raises:
            LlmError: MALFORMED_RESPONSE, if an earlier line was beyond the size limit.
        """
        if not clean:
            self._line, self._line_size = [], 0
        return [event for event in self.feed(b"\n") if is_complete_json(event[1].decode())]
