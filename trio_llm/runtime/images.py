"""Images in messages: finding them, and putting text in the place of some."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence

import attrs

from ..model.content import ContentBlock, ImageBlock, TextBlock, ToolResultBlock
from ..model.messages import Message

Substitute = Callable[[ImageBlock], TextBlock | None]
"""The text for an image, or None to keep it. Called once for each image, oldest first."""


def images_of(messages: Sequence[Message]) -> Iterator[ImageBlock]:
    """Every image, oldest first, those inside tool results included."""
    for message in messages:
        yield from _images(message.content)


def _images(content: Sequence[ContentBlock]) -> Iterator[ImageBlock]:
    for block in content:
        if isinstance(block, ImageBlock):
            yield block
        elif isinstance(block, ToolResultBlock):
            yield from _images(block.content)


def substitute_images(messages: tuple[Message, ...], substitute: Substitute) -> tuple[Message, ...]:
    """The messages with text for images. What holds nothing to replace stays the same object."""
    changed = tuple(_message(message, substitute) for message in messages)
    return messages if all(map(operator.is_, changed, messages)) else changed


def _message(message: Message, substitute: Substitute) -> Message:
    content = _content(message.content, substitute)
    return message if content is message.content else attrs.evolve(message, content=content)


def _content(content: tuple[ContentBlock, ...], substitute: Substitute) -> tuple[ContentBlock, ...]:
    changed = tuple(_block(block, substitute) for block in content)
    return content if all(map(operator.is_, changed, content)) else changed


def _block(block: ContentBlock, substitute: Substitute) -> ContentBlock:
    if isinstance(block, ImageBlock):
        return substitute(block) or block
    if isinstance(block, ToolResultBlock):
        content = _content(block.content, substitute)
        return block if content is block.content else attrs.evolve(block, content=content)
    return block
