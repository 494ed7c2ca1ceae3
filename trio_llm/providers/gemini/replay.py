"""What of a response must come back word for word with the next request.

Signatures may stand on any part, and a part with one must come back as that part, in its place, merged with
no other; what the provider's own tools did comes back too ("Thought signatures", "Tool combination"). So the
replay state holds:

* ``response``: ``version``; ``after``, the parts behind the last block that no block shows;
* one entry for each block: ``type``; ``before``, the parts in front of it that no block shows; for text and
  thoughts ``signed``, lists of start, end and signature; for calls ``signature``, and the ``id`` if the
  provider gave one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from ...model.messages import ReplayEnvelope

VERSION: Final = 1

_ENTRY_TYPES: Final[dict[type[ContentBlock], str]] = {
    TextBlock: "text",
    ReasoningBlock: "thought",
    ToolCallBlock: "call",
}


def fault_of(content: tuple[ContentBlock, ...], state: ReplayEnvelope) -> str | None:
    """What is wrong with the replay state of a message with these blocks; None where it is sound."""
    response, entries = state.response, state.blocks
    if not isinstance(response, Mapping) or response.get("version") != VERSION:
        return "it is not of this version"
    if not _is_parts(response.get("after", ())):
        return "the parts behind the last block are no objects"
    if entries is None or len(entries) != len(content):
        return "it has not one entry for each block"
    for block, entry in zip(content, entries, strict=True):
        if not isinstance(entry, Mapping) or entry.get("type") != _ENTRY_TYPES.get(type(block)):
            return f"an entry does not fit its block of type {block.type}"
        if not _is_parts(entry.get("before", ())):
            return "the parts in front of a block are no objects"
        if isinstance(block, (TextBlock, ReasoningBlock)):
            if not _is_signed(entry.get("signed", ()), len(block.text)):
                return "the signatures of a text do not fit it"
        elif not all(isinstance(entry.get(name, ""), str) for name in ("signature", "id")):
            return "the signature or the id of a call is no text"
    return None


def _is_parts(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(part, Mapping) for part in value)


def _is_signed(value: object, length: int) -> bool:
    place = 0
    for item in value if isinstance(value, tuple) else (None,):
        if not isinstance(item, tuple) or len(item) != 3:
            return False
        start, end, signature = item
        if type(start) is not int or type(end) is not int or not isinstance(signature, str):
            return False
        if not place <= start <= end <= length:
            return False
        place = end
    return True
