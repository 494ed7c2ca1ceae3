"""What a model that takes no images is shown in their place."""

from __future__ import annotations

from ..model.catalogue import ResolvedModelInfo
from ..model.content import ImageBlock, TextBlock
from ..model.messages import Message
from .images import substitute_images


def takes_images(info: ResolvedModelInfo) -> bool:
    """Whether a model takes images as far as is known; unknown modalities forbid nothing."""
    return info.input_modalities is None or "image" in info.input_modalities


def placeholder(image: ImageBlock) -> TextBlock:
    """The text for an image; the same image always has the same text."""
    attachment = image.attachment
    kind = f", {attachment.media_type}" if attachment.media_type else ""
    return TextBlock(f"[image {attachment.id[:8]}{kind}: not shown, this model takes text only]")


def without_images(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages with a placeholder for each image, nested tool results included.

    Messages, and the tuple, are the same objects where nothing changes; ids stay.
    """
    return substitute_images(messages, placeholder)
