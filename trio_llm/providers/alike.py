"""Events that are the one before with another text.

Many servers repeat a few hundred bytes around every piece of an answer: ids, model, time. An event that
begins and ends with the very bytes of an earlier one, and has between them nothing that JSON would have to
escape and nothing that ends a string, says the same with another text, and need not be decoded to know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C

PATIENCE: Final = 8
"""How many events may be learnt in vain, one after another: then this server varies what is around them."""


class Alike:
    """Looks for such events in one stream.

    Args:
        key: the name of the text's field and what is between it and the text, ``"content":"`` say. In a JSON
            text it can be nothing else, as a quote in a string is escaped.
    """

    __slots__ = ("_after", "_before", "_key", "_vain")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._before = self._after = b""
        self._vain = 0

    def texts_of(self, events: Sequence[tuple[str, bytes]]) -> list[str] | None:
        """The texts of events without names that are all like the one learnt last; ASCII, none empty."""
        before, after = self._before, self._after
        begin, end = len(before), -len(after)
        if not begin or not events or not events[0][1].startswith(before):
            return None
        pieces = [
            payload[begin:end]
            for name, payload in events
            if not name and payload[:begin] == before and payload[end:] == after
        ]
        said = b"".join(pieces)
        if len(pieces) != len(events) or _QUOTE in said or _BACKSLASH in said or not said.isascii():
            return None
        if not said.decode("ascii").isprintable() or not all(pieces):
            return None  # control characters, which JSON forbids, or no text
        self._vain = 0
        return b"\n".join(pieces).decode("ascii").split("\n")

    @property
    def useless(self) -> bool:
        """Whether too much was learnt in vain."""
        return self._vain > PATIENCE

    def learn(self, payload: bytes, text: str) -> None:
        """``payload`` was decoded, and says nothing but ``text``."""
        self._vain += 1
        before, found, rest = payload.partition(self._key)
        raw = text.encode("utf-8", "surrogatepass")
        if found and rest.startswith(raw + b'"') and self._key not in rest:
            self._before, self._after = before + found, rest[len(raw) :]
