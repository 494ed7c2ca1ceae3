"""What of a response must come back word for word with the next request.

Signatures of thinking, redacted thinking, citations, callers of tools, and everything the provider's own
tools did stand in no block of the vocabulary. The API wants an assistant turn back as it gave it
("Thinking in tool and multi-turn workflows", "Server tools"), so they travel in the replay state:

* ``response``: ``version``; ``after``, the provider-side items behind the last block; ``container``, the
  id of the code-execution container;
* one entry for each block: ``type``, the block's type on this wire; the fields it has beside those the
  content shows; ``before``, the provider-side items in front of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from ...model.messages import ReplayEnvelope
from ..replay_state import envelope_of

VERSION: Final = 1

_WIRE_TYPES: Final[dict[type[ContentBlock], tuple[str, ...]]] = {
    TextBlock: ("text",),
    ReasoningBlock: ("thinking", "redacted_thinking"),
    ToolCallBlock: ("tool_use",),
}
# Written from the content itself, whatever an entry says.
_SHOWN: Final = frozenset({"type", "before", "text", "thinking", "id", "name", "input"})


def write_replay(
    parts: Iterable[tuple[bool, Mapping[str, Any] | None]], container: str | None, *, pending: bool
) -> ReplayEnvelope:
    """The envelope of a response.

    Args:
        parts: in order of appearance: whether it is a block of the vocabulary, and its entry, or the
            provider-side item; None for an item that is not whole.
        pending: whether a use of a server tool without a result is kept: the provider goes on with it
            in a turn it suspended, but refuses it behind a cut.
    """
    listed = list(parts)
    answered = {item.get("tool_use_id") for shown, item in listed if not shown and item is not None}
    kept = [
        (shown, item)
        for shown, item in listed
        if item is not None
        and (
            shown
            or pending
            or item.get("type") not in ("server_tool_use", "mcp_tool_use")
            or item.get("id") in answered
        )
    ]
    return envelope_of(kept, VERSION, {} if container is None else {"container": container})


def fault_of(content: tuple[ContentBlock, ...], state: ReplayEnvelope) -> str | None:
    """What is wrong with the replay state of a message with these blocks; None where it is sound."""
    response, entries = state.response, state.blocks
    if not isinstance(response, Mapping) or response.get("version") != VERSION:
        return "it is not of this version"
    if not _is_items(response.get("after", ())) or not isinstance(response.get("container", ""), str):
        return "its response half has another shape"
    if entries is None or len(entries) != len(content):
        return "it has not one entry for each block"
    for block, entry in zip(content, entries, strict=True):
        if not isinstance(entry, Mapping) or entry.get("type") not in _WIRE_TYPES.get(type(block), ()):
            return f"an entry does not fit its block of type {block.type}"
        if not _is_items(entry.get("before", ())):
            return "the items in front of a block are no objects"
        needed = {"thinking": "signature", "redacted_thinking": "data"}.get(str(entry["type"]))
        if needed is not None and not isinstance(entry.get(needed, ""), str):
            return f"a {needed} is no text"
    return None


def _is_items(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(item, Mapping) and isinstance(item.get("type"), str) for item in value
    )


def extras_of(entry: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of a block that its content does not show."""
    return {} if entry is None else {name: value for name, value in entry.items() if name not in _SHOWN}
