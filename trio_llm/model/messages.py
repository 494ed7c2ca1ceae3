"""Messages and where they come from.

A message is immutable and keeps its identity (the object, and its ``id``) across every boundary.
Its source is an open sum; a plugin's context declares what it means (a *form*), never how it looks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import attrs

from .content import ContentBlock, ToolResultBlock, as_blocks
from .identifiers import CallId, MessageId
from .json_value import FrozenObject, JsonValue, freeze_json, freeze_object

Role: TypeAlias = Literal["system", "user", "assistant"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant")

NOTICE_SUMMARY_LENGTH = 120
"""The most characters a notice's summary has; a longer one is cut and ellipsised."""


class PluginForm(Protocol):
    """What a plugin's context means; ``kind`` is its kebab-case tag."""

    kind: ClassVar[str]


@attrs.frozen
class InstructionsForm:
    """Standing instructions."""

    kind: ClassVar[str] = "instructions"


@attrs.frozen
class CatalogForm:
    """A list of what is available, published again whenever it changes."""

    kind: ClassVar[str] = "catalog"


@attrs.frozen
class SnapshotSection:
    """One named part of a snapshot."""

    name: str = attrs.field(validator=attrs.validators.min_len(1))
    text: str


def _sections(value: Iterable[SnapshotSection]) -> tuple[SnapshotSection, ...]:
    return tuple(value)


@attrs.frozen
class SnapshotForm:
    """The state of something at one moment; a later snapshot supersedes it."""

    kind: ClassVar[str] = "snapshot"
    sections: tuple[SnapshotSection, ...] = attrs.field(
        converter=_sections, validator=attrs.validators.min_len(1)
    )


def _summary(text: str) -> str:
    text = text.strip()
    return (
        text if len(text) <= NOTICE_SUMMARY_LENGTH else text[: NOTICE_SUMMARY_LENGTH - 1].rstrip() + "\u2026"
    )


@attrs.frozen
class NoticeForm:
    """Something that happened; supersedes nothing. The summary is cut to 120 characters."""

    kind: ClassVar[str] = "notice"
    summary: str = attrs.field(converter=_summary, validator=attrs.validators.min_len(1))


@attrs.frozen
class RelayForm:
    """Words passed on from somebody else."""

    kind: ClassVar[str] = "relay"


@attrs.frozen
class RecallForm:
    """Something remembered from earlier."""

    kind: ClassVar[str] = "recall"


@attrs.frozen
class UnknownForm:
    """A form this process does not know, kept as it came."""

    kind: ClassVar[str] = "unknown"
    tag: str
    data: FrozenObject = attrs.field(converter=freeze_object)


FORMS: dict[str, type[Any]] = {
    form.kind: form
    for form in (InstructionsForm, CatalogForm, SnapshotForm, NoticeForm, RelayForm, RecallForm)
}


class Source(Protocol):
    """Where a message comes from; ``kind`` is its kebab-case tag."""

    kind: ClassVar[str]


@attrs.frozen
class UserSource:
    """The person, or whoever speaks for them."""

    kind: ClassVar[str] = "user"


@attrs.frozen
class PluginSource:
    """A part of the application.

    Attributes:
        form: what the context means, or None where it declares nothing.
    """

    kind: ClassVar[str] = "plugin"
    plugin: str = attrs.field(validator=attrs.validators.min_len(1))
    form: PluginForm | None = None


def _entries(value: Iterable[JsonValue] | None) -> tuple[JsonValue, ...] | None:
    return None if value is None else tuple(freeze_json(entry) for entry in value)


@attrs.frozen
class ReplayEnvelope:
    """The minimal lossless projection of a response that its adapter needs to replay it.

    Attributes:
        response: JSON for the response as a whole; only the adapter reads it.
        blocks: one JSON entry for each emitted block, or None where the adapter keeps none.
    """

    response: JsonValue = attrs.field(converter=freeze_json)
    blocks: tuple[JsonValue, ...] | None = attrs.field(default=None, converter=_entries)


@attrs.frozen
class ModelSource:
    """A model.

    Attributes:
        provider: the route's name when the message was made.
        model: the model id that was asked for.
        replay_state: opaque to everybody but the adapter instance that made it.
    """

    kind: ClassVar[str] = "model"
    provider: str
    model: str
    replay_state: ReplayEnvelope | None = None


@attrs.frozen
class ToolSource:
    """A tool that was called."""

    kind: ClassVar[str] = "tool"
    call_id: CallId


@attrs.frozen
class UnknownSource:
    """A source this process does not know, kept as it came."""

    kind: ClassVar[str] = "unknown"
    tag: str
    data: FrozenObject = attrs.field(converter=freeze_object)


SOURCES: dict[str, type[Any]] = {
    source.kind: source for source in (UserSource, PluginSource, ModelSource, ToolSource)
}


@attrs.frozen
class Message:
    """One message of a conversation. Build it with the ``create_*`` functions below."""

    id: MessageId = attrs.field(validator=attrs.validators.min_len(1))
    role: Role = attrs.field(validator=attrs.validators.in_(ROLES))
    content: tuple[ContentBlock, ...] = attrs.field(converter=as_blocks)
    source: Source


def create_message(
    role: Role, content: Iterable[ContentBlock] | str, source: Source, *, id: MessageId | None = None
) -> Message:
    """A message with a fresh id.

    Args:
        content: blocks, or a string for one text block.
        id: keeps this id instead.

    Raises:
        ValueError: an unknown role, or an empty id.
        TypeError: the content is neither text nor blocks.
    """
    return Message(MessageId(uuid.uuid4().hex) if id is None else id, role, content, source)


def create_user_message(content: Iterable[ContentBlock] | str, source: Source | None = None) -> Message:
    """A user message; its source is the user where none is given."""
    return create_message("user", content, UserSource() if source is None else source)


def create_assistant_message(content: Iterable[ContentBlock] | str, source: Source) -> Message:
    """An assistant message."""
    return create_message("assistant", content, source)


def create_tool_result_message(
    call_id: CallId, content: Iterable[ContentBlock] | str, *, is_error: bool = False
) -> Message:
    """A user message with the one result of a call; block and source name the same call."""
    return create_message("user", (ToolResultBlock(call_id, content, is_error),), ToolSource(call_id))
