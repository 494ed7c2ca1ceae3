"""What the replay states of all wires have in common: who has one, and what becomes of a malformed one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs

from ..model.codes import INVALID_REPLAY_STATE
from ..model.content import ContentBlock
from ..model.failures import LlmFailure
from ..model.identifiers import MessageId
from ..model.messages import Message, ModelSource, ReplayEnvelope

OnDegraded: TypeAlias = Callable[[MessageId, LlmFailure], None]
"""Told of each message whose replay state was dropped because it is malformed (INVALID_REPLAY_STATE)."""

Fault: TypeAlias = Callable[[tuple[ContentBlock, ...], ReplayEnvelope], str | None]
"""Says what is wrong with the replay state of a message with these blocks; None where it is sound."""


def state_of(message: Message) -> ReplayEnvelope | None:
    """A message's replay state, if it has any."""
    return message.source.replay_state if isinstance(message.source, ModelSource) else None


def entries_of(message: Message) -> tuple[Mapping[str, Any] | None, ...]:
    """One entry for each block of a message whose state was found sound; None where there is none."""
    state = state_of(message)
    if state is None or state.blocks is None:
        return (None,) * len(message.content)
    return state.blocks  # type: ignore[return-value]  # checked by the wire's `Fault`


def response_of(message: Message) -> Mapping[str, Any]:
    """The response half of a message whose state was found sound; empty where there is none."""
    state = state_of(message)
    return {} if state is None else state.response  # type: ignore[return-value]  # checked by the wire's `Fault`


def envelope_of(
    items: Iterable[tuple[bool, Mapping[str, Any]]], version: int, facts: Mapping[str, Any] = {}
) -> ReplayEnvelope:
    """The envelope of a response in which items that no block shows stand between the blocks.

    Those are kept as ``before`` of the next block's entry, and behind the last as ``after`` of the response.

    Args:
        items: in order of appearance: whether it is a block, and its entry, or the item as it came.
        facts: whatever else the response half says.
    """
    entries: list[Mapping[str, Any]] = []
    aside: list[Mapping[str, Any]] = []
    for shown, item in items:
        if shown:
            entries.append({**item, "before": aside} if aside else item)
            aside = []
        else:
            aside.append(item)
    behind = {"after": aside} if aside else {}
    return ReplayEnvelope({"version": version, **behind, **facts}, entries)


def readable(messages: Iterable[Message], fault: Fault, on_degraded: OnDegraded) -> Iterator[Message]:
    """The messages, without replay state that makes no sense; those others are the same objects."""
    for message in messages:
        source = message.source
        if isinstance(source, ModelSource) and source.replay_state is not None:
            wrong = fault(message.content, source.replay_state)
            if wrong is not None:
                on_degraded(message.id, LlmFailure(f"replay state dropped: {wrong}", INVALID_REPLAY_STATE))
                message = attrs.evolve(message, source=attrs.evolve(source, replay_state=None))
        yield message
