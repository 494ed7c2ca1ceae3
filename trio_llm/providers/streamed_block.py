"""A block while it is being streamed, on wires that mark where their blocks begin and end."""

from __future__ import annotations

import abc
from typing import Any, TypeAlias

from ..model.chunks import ReasoningDelta, StreamChunk, TextDelta, ToolCallDelta
from ..model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from ..model.identifiers import CallId
from ..protocol.json_text import SurrogateJoiner

BlockClass: TypeAlias = type[TextBlock] | type[ReasoningBlock] | type[ToolCallBlock]


class StreamedBlock(abc.ABC):
    """A block of the vocabulary, or an item on the provider's side that only replay needs.

    Attributes:
        raw: what the provider says of it.
        block: the class of the block it becomes; None for an item on the provider's side.
        index: of the chunks; -1 for an item on the provider's side.
        stopped: the provider closed it. Until ``ended`` its block-end has not been sent.
    """

    __slots__ = ("_joiner", "_texts", "block", "ended", "index", "raw", "stopped")

    def __init__(self, raw: dict[str, Any], block: BlockClass | None, index: int) -> None:
        self.raw = raw
        self.block = block
        self.index = index if block is not None else -1
        self.stopped = False
        self.ended = False
        self._texts: list[str] = []
        self._joiner = SurrogateJoiner()

    @property
    def is_call(self) -> bool:
        """Whether it is a tool call to be answered on this side."""
        return self.block is ToolCallBlock

    @property
    @abc.abstractmethod
    def call_id(self) -> CallId | None:
        """The id of a tool call, where it has one."""

    @property
    def name(self) -> str:
        """The name of a tool call."""
        return str(self.raw.get("name") or "")

    @property
    def text(self) -> str:
        """Everything it has said so far."""
        return "".join(self._texts)

    def begin(self, out: list[StreamChunk]) -> None:
        """Append what a call says of itself at its start."""
        if self.block is ToolCallBlock:
            out.append(ToolCallDelta(self.index, self.call_id, self.name, ""))

    def _say(self, text: str, out: list[StreamChunk]) -> None:
        """More text, thinking or arguments; half a character waits for the other half."""
        text = self._joiner.push(text)
        if text:
            self._emit(text, out)

    def _emit(self, text: str, out: list[StreamChunk]) -> None:
        self._texts.append(text)
        if self.block is TextBlock:
            out.append(TextDelta(self.index, text))
        elif self.block is ReasoningBlock:
            out.append(ReasoningDelta(self.index, text))
        elif self.block is ToolCallBlock:
            out.append(ToolCallDelta(self.index, self.call_id, None, text))

    def _flush(self, out: list[StreamChunk]) -> None:
        half = self._joiner.flush()
        if half:
            self._emit(half, out)

    def settle(self, out: list[StreamChunk]) -> ContentBlock:
        """The whole block of the vocabulary, after appending what was still held back."""
        self._flush(out)
        if self.block is TextBlock:
            return TextBlock(self.text)
        if self.block is ReasoningBlock:
            return ReasoningBlock(self.text)
        id = self.call_id
        return ToolCallBlock(CallId(f"call-{self.index}") if id is None else id, self.name, self.text)
