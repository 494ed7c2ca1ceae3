"""Writes the blocks of a response on wires that do not delimit them and send tool calls as objects."""

from __future__ import annotations

from ..model.chunks import BlockEnd, BlockStart, ReasoningDelta, StreamChunk, TextDelta, ToolCallDelta
from ..model.content import ReasoningBlock, TextBlock, ToolCallBlock
from ..model.identifiers import CallId
from ..protocol.json_text import SurrogateJoiner, is_complete_json


class BlockWriter:
    """Numbers the blocks and appends their chunks; one block is open at a time.

    A block ends when another begins, and the last one at the end of the response: only then is it clear
    whether the token limit cut it. A call whose arguments never came, or came in part, is not ended at all.

    Attributes:
        count: how many blocks there are.
        kind: of the block that is open; None where none is.
        length: how many characters of text the open block shows.
        calls: how many of the blocks are calls.
        cut: a call was left without its whole arguments.
    """

    __slots__ = (
        "_arguments",
        "_id",
        "_joiner",
        "_name",
        "_parts",
        "calls",
        "count",
        "cut",
        "kind",
        "length",
    )

    def __init__(self) -> None:
        self.count = 0
        self.calls = 0
        self.kind: type[TextBlock] | type[ReasoningBlock] | type[ToolCallBlock] | None = None
        self.cut = False
        self.length = 0
        self._parts: list[str] = []
        self._joiner = SurrogateJoiner()
        self._id = CallId("")
        self._name = ""
        self._arguments: str | None = None

    def add(self, kind: type[TextBlock] | type[ReasoningBlock], text: str, out: list[StreamChunk]) -> None:
        """More text or thinking, which is not empty; half a character waits for its other half."""
        if self.kind is not kind:
            self._begin(kind, out)
        text = self._joiner.push(text)
        if text:
            self._emit(kind, text, out)

    def begin_call(self, id: str | None, name: str, out: list[StreamChunk]) -> None:
        """A call begins whose arguments are still to come.

        Args:
            id: as the provider gave it; without one it is ``call-<index>``.
        """
        self._begin(ToolCallBlock, out)
        self.calls += 1
        self._id, self._name, self._arguments = CallId(id or f"call-{self.count - 1}"), name, None
        out.append(ToolCallDelta(self.count - 1, self._id, name, ""))

    def end_arguments(self, arguments: str, out: list[StreamChunk]) -> None:
        """All there is of the open call's arguments; JSON text that is not whole leaves it without."""
        if not arguments.strip() or is_complete_json(arguments):
            self._arguments = arguments
        if arguments:
            out.append(ToolCallDelta(self.count - 1, self._id, None, arguments))

    def end(self, out: list[StreamChunk]) -> None:
        """End the block that is open, if there is one."""
        kind, self.kind = self.kind, None
        if kind is None:
            return
        if kind is not TextBlock and kind is not ReasoningBlock:
            if self._arguments is None:
                self.cut = True
            else:
                out.append(BlockEnd(self.count - 1, ToolCallBlock(self._id, self._name, self._arguments)))
            return
        if half := self._joiner.flush():
            self._emit(kind, half, out)
        text = "".join(self._parts)
        block = TextBlock(text) if kind is TextBlock else ReasoningBlock(text)
        out.append(BlockEnd(self.count - 1, block))

    def _begin(
        self, kind: type[TextBlock] | type[ReasoningBlock] | type[ToolCallBlock], out: list[StreamChunk]
    ) -> None:
        self.end(out)
        self.kind, self._parts, self.length = kind, [], 0
        out.append(BlockStart(self.count, kind.type))
        self.count += 1

    def _emit(self, kind: type[TextBlock] | type[ReasoningBlock], text: str, out: list[StreamChunk]) -> None:
        self._parts.append(text)
        self.length += len(text)
        index = self.count - 1
        out.append(TextDelta(index, text) if kind is TextBlock else ReasoningDelta(index, text))
