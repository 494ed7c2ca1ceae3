"""Tells to which call a part of a tool call belongs."""

from __future__ import annotations

from ...model.identifiers import CallId
from ...protocol.json_text import SurrogateJoiner, is_complete_json


class OpenCall:
    """A tool call that goes on accumulating.

    Attributes:
        index: of its block.
        id, name: None and empty as long as the server has not told.
        parts: of the arguments, as they were shown.
        joiner: holds back half a character.
        length: of the arguments so far, in characters.
        closed: it came whole, and its block has been ended.
    """

    __slots__ = ("closed", "id", "index", "joiner", "length", "name", "parts")

    def __init__(self, index: int, id: CallId | None, name: str) -> None:
        self.index = index
        self.id = id
        self.name = name
        self.parts: list[str] = []
        self.joiner = SurrogateJoiner()
        self.length = 0
        self.closed = False

    @property
    def arguments(self) -> str:
        """The raw text so far."""
        return "".join(self.parts)

    @property
    def complete(self) -> bool:
        """Whether the text is whole: none at all (which means no arguments), or a JSON text."""
        arguments = self.arguments
        return not arguments.strip() or is_complete_json(arguments)

    @property
    def over(self) -> bool:
        """Whether there are arguments and nothing can follow them."""
        return bool(self.parts) and self.parts[-1].rstrip().endswith("}") and self.complete

    def repeats(self, arguments: str) -> bool:
        """Whether this says all of the arguments once more, as some servers do at the end of a call."""
        return len(arguments) == self.length and arguments == self.arguments and self.over


class OpenCalls:
    """The calls of one response, known by id, then by wire index, then by being the latest.

    Attributes:
        listed: in order of first appearance.
        latest: the one that was last added to.
    """

    __slots__ = ("_by_id", "_by_index", "latest", "listed")

    def __init__(self) -> None:
        self.listed: list[OpenCall] = []
        self.latest: OpenCall | None = None
        self._by_id: dict[str, OpenCall] = {}
        self._by_index: dict[int, OpenCall] = {}

    def find(self, id: CallId | None, index: int | None, name: str, arguments: str) -> OpenCall | None:
        """The call that a part with these marks goes on with; None if it begins one."""
        if id is not None and id in self._by_id:
            known = self._by_id[id]
            return None if name and known.name not in ("", name) and known.over else known
        call = self.latest if index is None else self._by_index.get(index)
        if call is None:
            return None
        if id is not None:
            # A call that began without an id may learn it now; a known one does not change it, but some
            # servers give every part an id of its own.
            return call if call.id is None or (not name and call.name and not call.over) else None
        # Servers that give no ids send whole calls, one after the other, all at one index or at none.
        return None if name and arguments.startswith("{") and call.over else call

    def begin(self, block: int, id: CallId | None, index: int | None, name: str) -> OpenCall:
        """Note a new call, whose block has the index ``block``."""
        call = OpenCall(block, None, name)
        self.listed.append(call)
        if index is not None:
            self._by_index[index] = call
        if id is not None:
            self.name_it(call, id)
        return call

    def name_it(self, call: OpenCall, id: CallId) -> None:
        """The server told a call's id."""
        call.id = id
        self._by_id[id] = call
