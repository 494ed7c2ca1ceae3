"""What a server must have back of a response beside what its blocks show, word for word.

* ``reasoning_details``: the thinking as typed objects, signed or encrypted (OpenRouter, "Reasoning tokens":
  the sequence must match what the model gave).
* ``extra_content``: the thought signature of a call, or of the message (Google, "Thought signatures" of its
  OpenAI-compatible endpoint).
* ``thinking``: thinking as parts of the content (Mistral, "Reasoning").

A profile names those that its server wants (``returned``); nothing is kept for others. The replay state has:

* ``response``: ``version``; ``profile``, the id of the one it is for; ``reasoning_details``, put together
  from the pieces they came in; ``extra_content``;
* for each block None, or an entry: ``type``; for calls the ``id`` that the details name, and
  ``extra_content``; for thinking ``part``, the fields of its content part beside the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...model.content import ContentBlock, ReasoningBlock, ToolCallBlock
from ...model.messages import Message, ReplayEnvelope
from ..replay_state import state_of
from .profile import ChatProfile
from .tool_calls import OpenCall
from .types import ContentPart

VERSION: Final = 1

_PIECES: Final = ("text", "summary")
_BLOCKS: Final[Mapping[str, type[ContentBlock]]] = {"call": ToolCallBlock, "thinking": ReasoningBlock}


class _Detail:
    """One of ``reasoning_details``; its text comes in pieces, its signature with any of them."""

    __slots__ = ("_fields", "_pieces")

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._pieces: dict[str, list[str]] = {}

    def takes(self, piece: Mapping[str, Any]) -> bool:
        """Whether a piece of the same type and index goes on with this one; what is encrypted is whole."""
        same = self._fields.get("id") in (None, piece.get("id")) or piece.get("id") is None
        return same and "data" not in piece and "data" not in self._fields

    def add(self, piece: Mapping[str, Any]) -> None:
        for name, value in piece.items():
            if name in _PIECES and isinstance(value, str):
                self._pieces.setdefault(name, []).append(value)
            elif value in (None, ""):
                self._fields.setdefault(name, value)
            else:
                self._fields[name] = value

    def whole(self) -> dict[str, Any]:
        return self._fields | {name: "".join(pieces) for name, pieces in self._pieces.items()}


class Kept:
    """Collects what of one response must come back. No I/O.

    Args:
        profile: the server's dialect.
    """

    __slots__ = ("_details", "_entries", "_extra", "_known", "_profile", "_returned")

    def __init__(self, profile: ChatProfile) -> None:
        self._profile = profile.id
        self._returned = profile.returned
        self._details: list[_Detail] = []
        self._known: dict[tuple[str, str], _Detail] = {}
        self._extra: dict[str, Any] = {}
        self._entries: dict[int, dict[str, Any]] = {}

    def add_details(self, details: object) -> None:
        """Some of ``reasoning_details``, or pieces of them."""
        if "reasoning_details" not in self._returned or not isinstance(details, list):
            return
        for piece in details:
            if not isinstance(piece, dict):
                continue
            index = piece.get("index")
            key = str(piece.get("type")), str(index)
            detail = self._known.get(key)
            if (
                detail is None
                or not detail.takes(piece)
                or (index is None and detail is not self._details[-1])
            ):
                detail = self._known[key] = _Detail()
                self._details.append(detail)
            detail.add(piece)

    def add_extra(self, extra: object, call: int | None = None) -> None:
        """The ``extra_content`` of the message, or of the call whose block has that index."""
        if "extra_content" not in self._returned or not isinstance(extra, dict):
            return
        if call is None:
            self._extra.update(extra)
        else:
            self._entries.setdefault(call, {"type": "call"})["extra_content"] = extra

    def add_part(self, index: int, part: ContentPart) -> None:
        """A part of the content that is thinking, shown by the block with that index."""
        if "thinking" in self._returned:
            fields = self._entries.setdefault(index, {"type": "thinking", "part": {}})["part"]
            given = {"closed": part.closed, "signature": part.signature}
            fields.update((name, value) for name, value in given.items() if value is not None)

    def envelope(self, blocks: int, calls: Sequence[OpenCall], *, cut: bool) -> ReplayEnvelope | None:
        """The replay state; None where nothing must come back.

        Args:
            blocks: how many there are.
            calls: all calls, closed if they came whole.
            cut: the limit ended the response: signatures may be missing, and such thinking is refused.
        """
        details = [detail.whole() for detail in self._details]
        if cut:
            lost = [call.id for call in calls if call.id is not None and not call.closed]
            details = [
                detail for detail in details if detail.get("id") not in lost and not _lacks_signature(detail)
            ]
        named = [detail.get("id") for detail in details]
        for call in calls:
            if call.id is not None and call.id in named:
                self._entries.setdefault(call.index, {"type": "call"})["id"] = call.id
        response: dict[str, Any] = {"version": VERSION, "profile": self._profile}
        if details:
            response["reasoning_details"] = details
        if self._extra:
            response["extra_content"] = self._extra
        if len(response) == 2 and not self._entries:
            return None
        return ReplayEnvelope(response, [self._entries.get(index) for index in range(blocks)])


def _lacks_signature(detail: Mapping[str, Any]) -> bool:
    """Whether this is thinking that is sent back signed or not at all."""
    signed = str(detail.get("format")).startswith("anthropic") and detail.get("type") == "reasoning.text"
    return signed and not detail.get("signature")


def fault_of(content: tuple[ContentBlock, ...], state: ReplayEnvelope) -> str | None:
    """What is wrong with the replay state of a message with these blocks; None where it is sound."""
    response, entries = state.response, state.blocks
    if not isinstance(response, Mapping) or response.get("version") != VERSION:
        return "it is not of this version"
    details = response.get("reasoning_details", ())
    if not isinstance(details, tuple) or not all(isinstance(detail, Mapping) for detail in details):
        return "its details are no objects"
    if not isinstance(response.get("extra_content", {}), Mapping):
        return "its extra content is no object"
    if entries is None or len(entries) != len(content):
        return "it has not one entry for each block"
    for block, entry in zip(content, entries, strict=True):
        if entry is None:
            continue
        shown = _BLOCKS.get(str(entry.get("type"))) if isinstance(entry, Mapping) else None
        if shown is None or not isinstance(block, shown):
            return f"an entry does not fit its block of type {block.type}"
        assert isinstance(entry, Mapping)
        if not all(isinstance(entry.get(name, {}), Mapping) for name in ("extra_content", "part")):
            return "a field of an entry is no object"
        if not isinstance(entry.get("id", ""), str):
            return "the id of a call is no text"
    return None


class Returned:
    """What goes back of a message that :func:`fault_of` found sound; nothing where it is for another profile.

    Attributes:
        response: the fields of the message as a whole.
        entries: one for each block; empty where there is none.
    """

    __slots__ = ("entries", "own", "response")

    def __init__(self, message: Message, profile: ChatProfile) -> None:
        state = state_of(message)
        response: Any = {} if state is None else state.response
        self.own = state is not None and response.get("profile") == profile.id
        entries: tuple[Any, ...] = (state.blocks or ()) if state is not None and self.own else ()
        self.entries: list[Mapping[str, Any]] = [entry or {} for entry in entries] or [{}] * len(
            message.content
        )
        self.response: dict[str, Any] = {
            name: response[name]
            for name in ("reasoning_details", "extra_content")
            if self.own and name in profile.returned and name in response
        }
        ids = {
            entry["id"]: block.id
            for block, entry in zip(message.content, self.entries, strict=True)
            if isinstance(block, ToolCallBlock) and "id" in entry
        }
        if ids and "reasoning_details" in self.response:
            self.response["reasoning_details"] = [
                {**detail, "id": ids[id]} if isinstance(id := detail.get("id"), str) and id in ids else detail
                for detail in self.response["reasoning_details"]
            ]
