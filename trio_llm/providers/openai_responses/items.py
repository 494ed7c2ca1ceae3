"""An output item of the wire while it is being streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...model.chunks import ReasoningDelta, StreamChunk, TextDelta, ToolCallDelta
from ...model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from ...model.identifiers import CallId
from ...protocol.json_text import SurrogateJoiner, compact, is_complete_json

BLANK_LINE: Final = "\n\n"
"""What stands between the parts of one reasoning item."""

_BLOCKS: Final[dict[str, type[TextBlock] | type[ReasoningBlock] | type[ToolCallBlock]]] = {
    "message": TextBlock,
    "reasoning": ReasoningBlock,
    "function_call": ToolCallBlock,
    "custom_tool_call": ToolCallBlock,
}
_SUMMARY: Final = 1_000_000
"""Added to the index of a summary part, so that it is none of a content part's."""


class OutputItem:
    """One item: a block of the vocabulary, or one on the provider's side that only replay needs.

    A message's parts (text and refusals) are one block, and so are a reasoning item's. Where a reasoning item
    has both a summary and its full text, the one that begins is shown.

    Attributes:
        raw: the item as the provider gives it, without nulls.
        type: its type on the wire.
        block: the class of the block it becomes; None for an item on the provider's side.
        index: of the chunks; -1 for an item on the provider's side.
        stopped: the provider closed it. Until ``ended`` its block-end has not been sent.
    """

    __slots__ = (
        "_holding",
        "_joiner",
        "_key",
        "_starts",
        "_texts",
        "block",
        "ended",
        "index",
        "raw",
        "stopped",
        "type",
    )

    def __init__(self, raw: Mapping[str, Any], index: int) -> None:
        self.raw = {name: value for name, value in raw.items() if value is not None}
        self.type = str(raw.get("type"))
        self.block = _BLOCKS.get(self.type)
        self.index = index if self.block is not None else -1
        self.stopped = False
        self.ended = False
        self._texts: list[str] = []
        self._starts: dict[int, int] = {}  # by part: which of the texts is its first
        self._key = -1
        self._joiner = SurrogateJoiner()
        self._holding = False

    @property
    def is_call(self) -> bool:
        """Whether it is a tool call to be answered on this side."""
        return self.block is ToolCallBlock

    @property
    def call_id(self) -> CallId | None:
        """The id of a tool call, where it has one."""
        id = self.raw.get("call_id") or (self.raw.get("id") if "name" in self.raw else None)
        return CallId(str(id)) if id else None

    @property
    def name(self) -> str:
        """The name of a tool call."""
        return str(self.raw.get("name") or "")

    @property
    def complete(self) -> bool:
        """Whether a call's arguments are whole: none, or a JSON text; a custom tool's may be any text."""
        if self.type == "custom_tool_call":
            return self.stopped
        arguments = self.text
        return not arguments.strip() or is_complete_json(arguments)

    @property
    def text(self) -> str:
        """Everything it has said so far."""
        return "".join(self._texts)

    def begin(self, out: list[StreamChunk]) -> None:
        """Append what a call says of itself at its start."""
        if self.block is ToolCallBlock:
            out.append(ToolCallDelta(self.index, self.call_id, self.name, ""))

    def show(self, part: int, text: str, out: list[StreamChunk], *, summary: bool = False) -> None:
        """More of a part.

        Args:
            part: its index among the item's contents, or with ``summary`` among its summaries.
        """
        key = part + _SUMMARY if summary else part
        if key != self._key and not self._turn_to(key, out):
            return
        if self._holding or not text.isascii():
            self._holding = "\ud800" <= text[-1] <= "\udbff"
            text = self._joiner.push(text)
            if not text:
                return
        self._emit(text, out)

    def restate(self, part: int, text: str, out: list[StreamChunk], *, summary: bool = False) -> None:
        """A part as it is in all: what of it no delta brought is appended."""
        key = part + _SUMMARY if summary else part
        if not text:
            return
        if key == self._key:
            said = "".join(self._texts[self._starts[key] :])
            if text.startswith(said) and len(text) > len(said):
                self._joiner.flush()
                self._holding = False
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

    def _flush(self, out: list[StreamChunk]) -> None:
        self._holding = False
        half = self._joiner.flush()
        if half:
            self._emit(half, out)

    def _emit(self, text: str, out: list[StreamChunk]) -> None:
        self._texts.append(text)
        if self.block is TextBlock:
            out.append(TextDelta(self.index, text))
        elif self.block is ReasoningBlock:
            out.append(ReasoningDelta(self.index, text))
        elif self.block is ToolCallBlock:
            out.append(ToolCallDelta(self.index, self.call_id, None, text))

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

    def settle(self, out: list[StreamChunk]) -> ContentBlock:
        """The whole block of the vocabulary, after appending what was still held back."""
        self._flush(out)
        if self.block is TextBlock:
            return TextBlock(self.text)
        if self.block is ReasoningBlock:
            return ReasoningBlock(self.text)
        id = self.call_id
        return ToolCallBlock(CallId(f"call-{self.index}") if id is None else id, self.name, self.text)

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
