"""What of a response the library must have again, word for word.

Signatures, provider ids and details, and everything a provider's own tools did stand in no block of the
vocabulary. The library has a lossless form of its messages, and its model classes know what of it to send
back to whom. So the replay state is that form, without what the content shows:

* ``response``: ``version``; ``message``, the library's response without its parts; ``after``, the parts
  behind the last block that no block shows;
* one entry for each block: ``part``, the library's part without its text or arguments (None for a block
  that shares its part with an earlier one); ``before``, the parts in front of it that no block shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...model.codes import INVALID_REPLAY_STATE
from ...model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from ...model.failures import LlmError, LlmFailure
from ...model.messages import Message, ModelSource, ReplayEnvelope
from ...protocol.json_text import decode_lenient, encode_body, outgoing_arguments
from ..replay_state import OnDegraded

VERSION: Final = 1

_KINDS: Final[Mapping[str, tuple[type[ContentBlock], tuple[str, ...]]]] = {
    "text": (TextBlock, ("content",)),
    "thinking": (ReasoningBlock, ("content",)),
    "tool-call": (ToolCallBlock, ("tool_name", "args", "tool_call_id")),
}
"""Kind of part to the block that shows it, and the fields that the block holds."""

# Facts of the moment: they are nobody's to send back, and make the same response two states.
_NOT_KEPT: Final = ("parts", "usage", "timestamp", "metadata", "failed_attempts", "history_digest")


def write_replay(messages: Any, response: Any, parts: Sequence[int]) -> ReplayEnvelope:
    """The envelope of a response.

    Args:
        messages: the library's module.
        response: the library's ModelResponse.
        parts: for each block in order, the index of the part it shows.
    """
    dumped = messages.ModelMessagesTypeAdapter.dump_python([response], mode="json")[0]
    rows = dumped["parts"]
    shown = set(parts)
    aside = [index for index in range(len(rows)) if index not in shown]
    entries = []
    seen: set[int] = set()
    for index in parts:
        before = [rows[other] for other in aside if other < index and other not in seen]
        seen.update(other for other in aside if other < index)
        part = None
        if index not in seen:
            seen.add(index)
            held = _KINDS[rows[index]["part_kind"]][1]
            part = {
                name: value for name, value in rows[index].items() if name not in held and value is not None
            }
        entries.append({"part": part, "before": before} if before else {"part": part})
    return ReplayEnvelope(
        {
            "version": VERSION,
            "message": {
                name: value for name, value in dumped.items() if name not in _NOT_KEPT and value is not None
            },
            "after": [rows[other] for other in aside if other not in seen],
        },
        entries,
    )


def restore_response(messages: Any, message: Message, on_degraded: OnDegraded) -> Any | None:
    """The library's ModelResponse of a message with replay state; None if it has none, or none that fits."""
    source = message.source
    if not isinstance(source, ModelSource) or source.replay_state is None:
        return None
    try:
        return _restored(messages, message.content, source.replay_state)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        # The text of the library's own error repeats what it was given.
        on_degraded(
            message.id,
            LlmFailure(
                f"the replay state does not fit its message ({type(error).__name__})", INVALID_REPLAY_STATE
            ),
        )
        return None


def _restored(messages: Any, content: Sequence[ContentBlock], state: ReplayEnvelope) -> Any:
    response: Any = state.response
    if response["version"] != VERSION:
        raise ValueError("another version")
    if state.blocks is None:
        raise ValueError("no entries")
    rows: list[dict[str, Any]] = []
    entries: tuple[Any, ...] = state.blocks
    for block, entry in zip(content, entries, strict=True):
        if not isinstance(entry, Mapping):
            raise TypeError("an entry is no object")
        rows.extend(entry.get("before", ()))
        rows.append(_part_of(block, entry["part"]))
    rows.extend(response["after"])
    value = {**response["message"], "parts": rows}
    # fit for UTF-8, which the library's own encoders insist on
    value = decode_lenient(encode_body(value))
    (restored,) = messages.ModelMessagesTypeAdapter.validate_python([value])
    if not isinstance(restored, messages.ModelResponse):
        raise TypeError("not a response")
    return restored


def _part_of(block: ContentBlock, entry: Any) -> dict[str, Any]:
    kind = next((kind for kind, (shown, _) in _KINDS.items() if isinstance(block, shown)), None)
    if kind is None:
        raise TypeError("a block that no response has")
    if entry is not None and entry["part_kind"] != kind:
        raise ValueError("an entry of another kind than its block")
    held: dict[str, Any]
    if isinstance(block, ToolCallBlock):
        arguments = _arguments(block.arguments)
        held = {"tool_name": block.name, "args": arguments, "tool_call_id": block.id}
    else:
        assert isinstance(block, (TextBlock, ReasoningBlock))
        held = {"content": block.text}
    return {**(entry or {}), **held, "part_kind": kind}


def _arguments(text: str) -> Any:
    """The arguments as they were written where they are an object, else {}."""
    try:
        value = decode_lenient(text)
    except LlmError:
        return {}
    return outgoing_arguments(text) if isinstance(value, dict) else {}
