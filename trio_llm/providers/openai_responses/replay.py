"""What of a response must come back word for word with the next request.

Nothing is stored at the provider, so a request carries the items of the turns before it ("Conversation
state", "Reasoning models": keeping reasoning items in context). What stands in no block of the vocabulary
travels in the replay state:

* ``response``: ``version``; ``after``, the provider-side items behind the last block;
* one entry for each block: ``type``, the item's type on this wire; the fields it has beside those that the
  content shows, such as ``id``, ``phase`` and ``encrypted_content``; the parts of which the block's text is
  made, with their citations; ``before``, the provider-side items in front of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

from ...model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from ...model.messages import ReplayEnvelope
from ..replay_state import envelope_of
from .items import OutputItem, part_text

VERSION: Final = 1

_WIRE_TYPES: Final[dict[type[ContentBlock], tuple[str, ...]]] = {
    TextBlock: ("message",),
    ReasoningBlock: ("reasoning",),
    ToolCallBlock: ("function_call", "custom_tool_call"),
}
# What a request may carry of an item; the rest is for readers alone.
_KEPT: Final = {
    "message": ("id", "phase"),
    "reasoning": ("id", "summary", "content", "encrypted_content"),
    "function_call": ("id", "namespace", "caller"),
    "custom_tool_call": ("id", "namespace", "caller"),
}
_PART: Final = ("annotations",)


def write_replay(items: Iterable[OutputItem]) -> ReplayEnvelope:
    """The envelope of a response from its items, in order.

    An item on the provider's side that waits for an answer from here is left out: nobody gives one, and
    the API refuses it without.
    """
    listed = list(items)
    outputs = [
        item.raw.get("call_id") for item in listed if item.block is None and item.type.endswith("_output")
    ]
    kept = [
        (item.block is not None, item.raw if item.block is None else _entry(item))
        for item in listed
        if item.block is not None or item.raw.get("call_id") is None or item.raw["call_id"] in outputs
    ]
    return envelope_of(kept, VERSION)


def _entry(item: OutputItem) -> dict[str, Any]:
    entry = {"type": item.type} | {
        name: value for name in _KEPT[item.type] if (value := item.raw.get(name)) not in (None, [])
    }
    if item.type == "message":
        parts = _parts(item)
        if parts:
            entry["parts"] = parts
    return entry


def _parts(item: OutputItem) -> list[dict[str, Any]]:
    """How the text divides into parts; empty where it is one of plain text."""
    content = item.raw.get("content")
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return []
    parts: list[dict[str, Any]] = [
        {"type": str(part.get("type")), "length": len(part_text(part))}
        | {name: part[name] for name in _PART if part.get(name)}
        for part in content
    ]
    if sum(part["length"] for part in parts) != len(item.text):
        return []
    plain = {"type": "output_text", "length": len(item.text)}
    return [] if parts == [plain] else parts


def fault_of(content: tuple[ContentBlock, ...], state: ReplayEnvelope) -> str | None:
    """What is wrong with the replay state of a message with these blocks; None where it is sound."""
    response, entries = state.response, state.blocks
    if not isinstance(response, Mapping) or response.get("version") != VERSION:
        return "it is not of this version"
    if not _is_items(response.get("after", ())):
        return "its response half has another shape"
    if entries is None or len(entries) != len(content):
        return "it has not one entry for each block"
    for block, entry in zip(content, entries, strict=True):
        if not isinstance(entry, Mapping) or entry.get("type") not in _WIRE_TYPES.get(type(block), ()):
            return f"an entry does not fit its block of type {block.type}"
        if not _is_items(entry.get("before", ())):
            return "the items in front of a block are no objects"
        if not all(isinstance(entry.get(name, ""), str) for name in ("id", "phase", "encrypted_content")):
            return "a field that is text is none"
        if not all(_is_items(entry.get(name, ())) for name in ("summary", "content", "parts")):
            return "the parts of a block are no objects"
        parts = entry.get("parts", ())
        if isinstance(block, TextBlock) and parts and not (_is_items(parts) and _divides(parts, block.text)):
            return "the parts of a text are not those of its block"
    return None


def _divides(parts: Iterable[Mapping[str, Any]], text: str) -> bool:
    total = 0
    for part in parts:
        length = part.get("length")
        if type(length) is not int or length < 0:
            return False
        total += length
    return total == len(text)


def _is_items(value: object) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    return isinstance(value, (tuple, list)) and all(
        isinstance(item, Mapping) and isinstance(item.get("type"), str) for item in value
    )


def extras_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an item that its content does not show."""
    return {name: entry[name] for name in _KEPT[entry["type"]] if name in entry}
