"""Image budgets: the oldest images give way when a request holds too many, or too much of them."""

from __future__ import annotations

from typing import Any

import attrs

from ..model.content import ImageBlock, TextBlock
from ..model.messages import Message
from .images import images_of, substitute_images

OFFLOADED = TextBlock("[an earlier image was removed: the conversation holds more images than fit]")
"""What stands in the place of an image that gave way."""


def _positive(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{attribute.name} is a positive whole number, not {value!r}")


@attrs.frozen(kw_only=True)
class ImageBudget:
    """How many images one request may hold, and how many bytes of them.

    Images are removed in whole quanta, so that the removed part of a growing history stays the same
    until the next quantum is due, and a provider's prompt cache stays warm.

    Attributes:
        max_images, image_quantum: counts of images.
        max_bytes, byte_quantum: bytes of image data; a URL's image counts none.

    Raises:
        ValueError: one of them is no positive whole number.
    """

    max_images: int = attrs.field(validator=_positive)
    max_bytes: int = attrs.field(validator=_positive)
    image_quantum: int = attrs.field(default=1, validator=_positive)
    byte_quantum: int = attrs.field(default=1, validator=_positive)


def within_budget(messages: tuple[Message, ...], budget: ImageBudget) -> tuple[Message, ...]:
    """The messages with text for the oldest images, as many as the budget demands.

    The excess over each bound, rounded up to whole quanta, is gone afterwards; the bytes of the text
    that replaces an image count against what its removal gains. Messages are the same objects where
    nothing changes.
    """
    gone = _how_many([image.attachment.size or 0 for image in images_of(messages)], budget)
    if not gone:
        return messages
    left = iter(range(gone))

    def substitute(image: ImageBlock) -> TextBlock | None:
        return OFFLOADED if next(left, None) is not None else None

    return substitute_images(messages, substitute)


def _how_many(sizes: list[int], budget: ImageBudget) -> int:
    """How many images give way, given the sizes of all, oldest first."""
    gone = min(len(sizes), _whole_quanta(len(sizes) - budget.max_images, budget.image_quantum))
    wanted = _whole_quanta(sum(sizes) - budget.max_bytes, budget.byte_quantum)
    gained = count = 0
    while gained < wanted and count < len(sizes):
        gained += max(0, sizes[count] - len(OFFLOADED.text))
        count += 1
    return max(gone, count)


def _whole_quanta(excess: int, quantum: int) -> int:
    return -(-max(0, excess) // quantum) * quantum
