"""A content block of the wire while it is being streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...model.chunks import StreamChunk
from ...model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from ...model.identifiers import CallId
from ...protocol.json_text import compact, decode_lenient, is_complete_json
from ..streamed_block import BlockClass, StreamedBlock
from .types import Delta

_BLOCKS: Final[dict[str, BlockClass]] = {
    "text": TextBlock,
    "thinking": ReasoningBlock,
    "redacted_thinking": ReasoningBlock,
    "tool_use": ToolCallBlock,
}
# What an entry of replay state leaves out: the content says it.
_CONTENT: Final = frozenset({"text", "thinking", "id", "name", "input"})


class Part(StreamedBlock):
    """One content block."""

    __slots__ = ("_signature",)

    def __init__(self, raw: Mapping[str, Any], index: int) -> None:
        super().__init__(dict(raw), _BLOCKS.get(str(raw.get("type"))), index)
        signature = self.raw.pop("signature", None)
        self._signature: list[str] = [signature] if signature else []

    @property
    def call_id(self) -> CallId | None:
        """The id of a tool call, where it has one."""
        id = self.raw.get("id")
        return CallId(str(id)) if id else None

    @property
    def complete(self) -> bool:
        """Whether a call's arguments are whole: none at all, or a JSON text."""
        arguments = self.text
        return not arguments.strip() or is_complete_json(arguments)

    def begin(self, out: list[StreamChunk]) -> None:
        """Append what stands in the start itself."""
        super().begin(out)
        if self.block is not None and not self.is_call:
            text = self.raw.get("text") or self.raw.get("thinking")
            if isinstance(text, str) and text:
                self._say(text, out)

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
            self._say(text, out)
            return True
        return self._take_aside(delta)

    def _take_aside(self, delta: Delta) -> bool:
        """Take what no chunk shows."""
        if delta.signature:
            self._signature.append(delta.signature)
        elif delta.citation is not None:
            self.raw["citations"] = [*(self.raw.get("citations") or ()), delta.citation]
        elif self.block is None and (delta.content is not None or delta.encrypted_content is not None):
            if delta.content is not None:
                self.raw["content"] = delta.content
            if delta.encrypted_content is not None:
                self.raw["encrypted_content"] = delta.encrypted_content
        else:
            return False
        return True

    def settle(self, out: list[StreamChunk]) -> ContentBlock:
        """The whole block of the vocabulary, after appending what was still held back."""
        self._flush(out)
        given = self.raw.get("input")
        if self.is_call and given and not self._texts:  # the object came with the start; deltas say it anew
            self._say(compact(given), out)
        return super().settle(out)

    def entry(self) -> dict[str, Any]:
        """What replay needs of a block beside its content."""
        kept = {
            name: value
            for name, value in self.raw.items()
            if name not in _CONTENT and value is not None and value != []
        }
        return {**kept, "signature": "".join(self._signature)} if self._signature else kept

    def item(self) -> dict[str, Any] | None:
        """A provider-side item as it has to come back; None if it was cut."""
        if not self.stopped:
            return None
        text = self.text
        if not text:
            return self.raw
        if not is_complete_json(text):
            return None
        return {**self.raw, "input": decode_lenient(text)}
