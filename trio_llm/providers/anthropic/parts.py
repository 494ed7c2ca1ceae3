"""A content block of the wire while it is being streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...model.chunks import ReasoningDelta, StreamChunk, TextDelta, ToolCallDelta
from ...model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from ...model.identifiers import CallId
from ...protocol.json_text import SurrogateJoiner, compact, decode_lenient, is_complete_json
from .types import Delta

_BLOCKS: Final[dict[str, type[TextBlock] | type[ReasoningBlock] | type[ToolCallBlock]]] = {
    "text": TextBlock,
    "thinking": ReasoningBlock,
    "redacted_thinking": ReasoningBlock,
    "tool_use": ToolCallBlock,
}
# What an entry of replay state leaves out: the content says it.
_CONTENT: Final = frozenset({"text", "thinking", "id", "name", "input"})


class Part:
    """One content block: of the vocabulary, or an item on the provider's side that only replay needs.

    Attributes:
        index: of the chunks; -1 for a provider-side item.
        block: the class of the block it becomes; None for a provider-side item.
        stopped: the provider closed it. Until ``ended`` its block-end has not been sent.
    """

    __slots__ = ("_holding", "_joiner", "_raw", "_signature", "_texts", "block", "ended", "index", "stopped")

    def __init__(self, raw: Mapping[str, Any], index: int) -> None:
        self.block = _BLOCKS.get(str(raw.get("type")))
        self.index = index if self.block is not None else -1
        self.stopped = False
        self.ended = False
        self._raw = dict(raw)
        signature = self._raw.pop("signature", None)
        self._signature: list[str] = [signature] if signature else []
        self._texts: list[str] = []
        self._joiner = SurrogateJoiner()
        self._holding = False

    @property
    def is_call(self) -> bool:
        """Whether it is a tool call to be answered on this side."""
        return self.block is ToolCallBlock

    @property
    def call_id(self) -> CallId | None:
        """The id of a tool call, where it has one."""
        id = self._raw.get("id")
        return CallId(str(id)) if id else None

    @property
    def name(self) -> str:
        """The name of a tool call."""
        return str(self._raw.get("name") or "")

    @property
    def complete(self) -> bool:
        """Whether a call's arguments are whole: none at all, or a JSON text."""
        arguments = self._text
        return not arguments.strip() or is_complete_json(arguments)

    @property
    def _text(self) -> str:
        if len(self._texts) > 1:
            self._texts = ["".join(self._texts)]
        return self._texts[0] if self._texts else ""

    def begin(self, out: list[StreamChunk]) -> None:
        """Append what stands in the start itself."""
        if self.block is ToolCallBlock:
            out.append(ToolCallDelta(self.index, self.call_id, self.name, ""))
        elif self.block is not None:
            text = self._raw.get("text") or self._raw.get("thinking")
            if isinstance(text, str) and text:
                self.show(text, out)

    def take(self, delta: Delta, out: list[StreamChunk]) -> bool:
        """Append the chunk that a delta makes; whether the delta said anything at all."""
        text: str | None
        if self.block is TextBlock:
            text = delta.text
        elif self.block is ReasoningBlock:
            text = delta.thinking
        else:
            text = delta.partial_json
        if text:
            self.show(text, out)
            return True
        return self._take_aside(delta)

    def show(self, text: str, out: list[StreamChunk]) -> None:
        """More text, thinking or arguments."""
        if self._holding or not text.isascii():
            self._holding = "\ud800" <= text[-1] <= "\udbff"
            text = self._joiner.push(text)
            if not text:
                return
        self._emit(text, out)

    def _emit(self, text: str, out: list[StreamChunk]) -> None:
        self._texts.append(text)
        if self.block is TextBlock:
            out.append(TextDelta(self.index, text))
        elif self.block is ReasoningBlock:
            out.append(ReasoningDelta(self.index, text))
        elif self.block is ToolCallBlock:
            out.append(ToolCallDelta(self.index, self.call_id, None, text))

    def _take_aside(self, delta: Delta) -> bool:
        """Take what no chunk shows."""
        if delta.signature:
            self._signature.append(delta.signature)
        elif delta.citation is not None:
            self._raw["citations"] = [*(self._raw.get("citations") or ()), delta.citation]
        elif self.block is None and (delta.content is not None or delta.encrypted_content is not None):
            if delta.content is not None:
                self._raw["content"] = delta.content
            if delta.encrypted_content is not None:
                self._raw["encrypted_content"] = delta.encrypted_content
        else:
            return False
        return True

    def settle(self, out: list[StreamChunk]) -> ContentBlock:
        """The whole block of the vocabulary, after appending what was still held back."""
        half = self._joiner.flush()
        if half:
            self._emit(half, out)
        if self.block is TextBlock:
            return TextBlock(self._text)
        if self.block is ReasoningBlock:
            return ReasoningBlock(self._text)
        given = self._raw.get("input")
        if given and not self._texts:  # the object came with the start; deltas, where any come, say it anew
            self.show(compact(given), out)
        id = self.call_id
        return ToolCallBlock(CallId(f"call-{self.index}") if id is None else id, self.name, self._text)

    def entry(self) -> dict[str, Any]:
        """What replay needs of a block beside its content."""
        kept = {
            name: value
            for name, value in self._raw.items()
            if name not in _CONTENT and value is not None and value != []
        }
        return {**kept, "signature": "".join(self._signature)} if self._signature else kept

    def item(self) -> dict[str, Any] | None:
        """A provider-side item as it has to come back; None if it was cut."""
        if not self.stopped:
            return None
        text = self._text
        if not text:
            return self._raw
        if not is_complete_json(text):
            return None
        return {**self._raw, "input": decode_lenient(text)}
