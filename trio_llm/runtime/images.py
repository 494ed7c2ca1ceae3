"""Images in messages: finding them, and putting text in the place of some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..model.content import ContentBlock, ImageBlock, TextBlock, ToolResultBlock
from ..model.messages import Message
from .blocks import replace_blocks

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

    def replace(block: ContentBlock) -> tuple[TextBlock] | None:
        text = substitute(block) if isinstance(block, ImageBlock) else None
        return None if text is None else (text,)

    return replace_blocks(messages, replace)
