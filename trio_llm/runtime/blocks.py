"""Putting other blocks in the place of some, and what blocks of an application's own types are sent as."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TypeVar

import attrs

from ..model.content import SENT_AS, ContentBlock, ToolResultBlock
from ..model.messages import Message, ModelSource

T = TypeVar("T")

Replace = Callable[[ContentBlock], Iterable[ContentBlock] | None]
"""The blocks that stand for one, or None to keep it. Called once for each, oldest first."""


def replace_blocks(messages: tuple[Message, ...], replace: Replace) -> tuple[Message, ...]:
    """The messages with other blocks for some, nested tool results included.

    Messages, and the tuple, are the same objects where nothing changes; ids stay.
    """
    return _same_or(messages, tuple(_message(message, replace) for message in messages))


def own_blocks_sent(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages with what ``register_block_type`` says that blocks of one's own types are sent as.

    A message with replay state stays as it is: it goes back to the adapter that made its blocks.
    """
    if not SENT_AS:
        return messages
    return _same_or(
        messages,
        tuple(message if _is_replayed(message) else _message(message, _sent) for message in messages),
    )


def _sent(block: ContentBlock) -> Iterable[ContentBlock] | None:
    sent_as = SENT_AS.get(type(block))
    return None if sent_as is None else sent_as(block)


def _is_replayed(message: Message) -> bool:
    return isinstance(message.source, ModelSource) and message.source.replay_state is not None


def _message(message: Message, replace: Replace) -> Message:
    content = _content(message.content, replace)
    return message if content is message.content else attrs.evolve(message, content=content)


def _content(content: tuple[ContentBlock, ...], replace: Replace) -> tuple[ContentBlock, ...]:
    return _same_or(content, tuple(chain.from_iterable(_block(block, replace) for block in content)))


def _block(block: ContentBlock, replace: Replace) -> Iterable[ContentBlock]:
    replaced = replace(block)
    if replaced is not None:
        return replaced
    if isinstance(block, ToolResultBlock):
        content = _content(block.content, replace)
        return (block if content is block.content else attrs.evolve(block, content=content),)
    return (block,)


def _same_or(old: tuple[T, ...], new: tuple[T, ...]) -> tuple[T, ...]:
    same = len(old) == len(new) and all(map(operator.is_, old, new))
    return old if same else new
