"""What the replay states of all wires have in common: who has one, and what becomes of a malformed one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

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
