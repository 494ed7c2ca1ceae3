"""An output item of the wire while it is being streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...model.chunks import StreamChunk
from ...model.content import ReasoningBlock, TextBlock, ToolCallBlock
from ...model.identifiers import CallId
from ...protocol.json_text import compact, is_complete_json
from ..streamed_block import BlockClass, StreamedBlock

BLANK_LINE: Final = "\n\n"
"""What stands between the parts of one reasoning item."""

_BLOCKS: Final[dict[str, BlockClass]] = {
    "message": TextBlock,
    "reasoning": ReasoningBlock,
    "function_call": ToolCallBlock,
    "custom_tool_call": ToolCallBlock,
}
_SUMMARY: Final = 1_000_000
"""Added to the index of a summary part, so that it is none of a content part's."""


class OutputItem(StreamedBlock):
    """One item: a block of the vocabulary, or one on the provider's side that only replay needs.

    A message's parts (text and refusals) are one block, and so are a reasoning item's. Where a reasoning item
    has both a summary and its full text, the one that begins is shown.

    Attributes:
        raw: as the provider gives it, without nulls.
        type: its type on the wire.
    """

    __slots__ = ("_key", "_starts", "type")

    def __init__(self, raw: Mapping[str, Any], index: int) -> None:
        self.type = str(raw.get("type"))
        known = {name: value for name, value in raw.items() if value is not None}
        super().__init__(known, _BLOCKS.get(self.type), index)
        self._starts: dict[int, int] = {}  # by part: which of the texts is its first
        self._key = -1

    @property
    def call_id(self) -> CallId | None:
        """The id of a tool call, where it has one."""
        id = self.raw.get("call_id") or (self.raw.get("id") if "name" in self.raw else None)
        return CallId(str(id)) if id else None

    @property
    def complete(self) -> bool:
        """Whether a call's arguments are whole: none, or a JSON text; a custom tool's may be any text."""
        if self.type == "custom_tool_call":
            return self.stopped
        arguments = self.text
        return not arguments.strip() or is_complete_json(arguments)

    def show(self, part: int, text: str, out: list[StreamChunk], *, summary: bool = False) -> None:
        """More of a part.

        Args:
            part: its index among the item's contents, or with ``summary`` among its summaries.
        """
        key = part + _SUMMARY if summary else part
        if key != self._key and not self._turn_to(key, out):
            return
        self._say(text, out)

    def restate(self, part: int, text: str, out: list[StreamChunk], *, summary: bool = False) -> None:
        """A part as it is in all: what of it no delta brought is appended."""
        key = part + _SUMMARY if summary else part
        if not text:
            return
        if key == self._key:
            said = "".join(self._texts[self._starts[key] :])
            if text.startswith(said) and len(text) > len(said):
                self._joiner.flush()
                self.show(part, text[len(said) :], out, summary=summary)
        elif key not in self._starts:
            self.show(part, text, out, summary=summary)

    def _turn_to(self, key: int, out: list[StreamChunk]) -> bool:
        """Whether a part's text is shown: it is the first, or it follows in the same list of parts."""
        if self.block is ReasoningBlock and self._starts:
            if (key >= _SUMMARY) != (self._key >= _SUMMARY):
                return False
            self._flush(out)
            if key not in self._starts:
                self._emit(BLANK_LINE, out)
        self._key = key
        self._starts.setdefault(key, len(self._texts))
        return True

    def update(self, raw: Mapping[str, Any], out: list[StreamChunk]) -> None:
        """The item as the provider gives it anew: append what no delta brought, take what it tells.

        Once the provider has closed the item, only what is missing is taken.
        """
        news = {name: value for name, value in raw.items() if value is not None}
        self.raw = {**news, **self.raw} if self.stopped else {**self.raw, **news}
        self._say_all(self.raw, out)

    def _say_all(self, raw: Mapping[str, Any], out: list[StreamChunk]) -> None:
        if self.block is ToolCallBlock:
            said = raw.get("input" if self.type == "custom_tool_call" else "arguments")
            self.restate(0, said if isinstance(said, str) else compact(said) if said else "", out)
        elif self.block is TextBlock:
            for place, text in enumerate(part_texts(raw.get("content"))):
                self.restate(place, text, out)
        elif self.block is ReasoningBlock:
            for place, text in enumerate(part_texts(raw.get("summary"))):
                self.restate(place, text, out, summary=True)
            for place, text in enumerate(part_texts(raw.get("content"))):
                self.restate(place, text, out)

    def shown_by(self, raw: Mapping[str, Any]) -> bool:
        """Whether an item as a whole has text to show."""
        names = {TextBlock: ("content",), ReasoningBlock: ("summary", "content")}
        return any(
            text for name in names.get(self.block or ToolCallBlock, ()) for text in part_texts(raw.get(name))
        )

    def may_be(self, raw: Mapping[str, Any]) -> bool:
        """Whether nothing says that this is another item than ``raw``."""
        ids = {self.raw.get("id"), raw.get("id")} - {None}
        return str(raw.get("type")) == self.type and len(ids) < 2

    def announce(self, raw: Mapping[str, Any], out: list[StreamChunk]) -> None:
        """Take the beginning of an item that has begun already."""
        named = "name" in self.raw
        self.update(raw, out)
        if self.is_call and not named and self.name:
            self.begin(out)

    def is_same(self, raw: Mapping[str, Any]) -> bool:
        """Whether this is surely the item that ``raw`` is: by its id, or by the call's."""
        if str(raw.get("type")) != self.type:
            return False
        return any(raw.get(name) and raw[name] == self.raw.get(name) for name in ("id", "call_id"))


def part_texts(parts: Any) -> list[str]:
    """The texts of the parts of a message, a summary or a reasoning's content; "" for a part without any."""
    if isinstance(parts, str):
        return [parts]
    if not isinstance(parts, list):
        return []
    return [part_text(part) for part in parts]


def part_text(part: Any) -> str:
    """The text of one part: text, or a refusal."""
    said = (part.get("text") or part.get("refusal")) if isinstance(part, Mapping) else None
    return said if isinstance(said, str) else ""
