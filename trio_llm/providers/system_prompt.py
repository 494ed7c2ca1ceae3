"""The system prompt, for wires whose roles are those of the user and the model alone."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

import attrs

from ..model.content import text_of
from ..model.messages import Message
from .images import refuse_images


def without_system(system: str | None, messages: Iterable[Message], who: str) -> tuple[str, list[Message]]:
    """The prompt with the system messages that come first, and the other messages.

    A later system message with text becomes the user's where it stands: with less weight than it had, but in
    its place. One without text stays as it is.

    Args:
        who: how an error calls the other side.

    Raises:
        LlmError: UNSUPPORTED_CONTENT, for an image in a system message.
    """
    history = list(messages)
    first = list(takewhile(lambda message: message.role == "system", history))
    prompts = [system or "", *(_text(message, who) for message in first)]
    rest = [
        attrs.evolve(message, role="user") if message.role == "system" and _text(message, who) else message
        for message in history[len(first) :]
    ]
    return "\n\n".join(filter(None, prompts)), rest


def _text(message: Message, who: str) -> str:
    refuse_images(message, who)
    return text_of(message.content)
