"""The history as the Messages API has it.

Roles are user and assistant alone: system messages that come first join the system prompt, later ones
are user text where they stand. What a response left in replay state goes back as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ...model.codes import UNSUPPORTED_CONTENT
from ...model.content import (
    Attachment,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from ...model.failures import LlmError
from ...model.messages import Message
from ...protocol.history import HistoryRules, repair
from ...protocol.json_text import arguments_object
from ..images import refuse_images
from ..replay_state import OnDegraded, entries_of, readable, response_of, state_of
from ..system_prompt import without_system
from .replay import extras_of, fault_of

NO_OUTPUT: Final = "(no output)"
"""What stands for a tool result without content: the API refuses an empty one that is an error."""

OPENING: Final = "(The conversation began earlier.)"
"""What stands in front of a history that begins with the assistant: the first message is the user's."""

HISTORY: Final = HistoryRules(
    # "Tool use": ids match this pattern; thinking without its signature is refused.
    call_ids=re.compile("[a-zA-Z0-9_-]{1,64}"),
    foreign_reasoning="drop",
)
_IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")


@attrs.frozen
class Conversation:
    """What a body says of the history.

    Attributes:
        system: the system prompt, and the system messages that stand in front of everything.
        container: the id of the container in which a tool call is waited for.
    """

    system: str
    messages: list[dict[str, Any]]
    container: str | None = None


def converse(
    system: str | None, messages: Iterable[Message], images: Mapping[str, str], on_degraded: OnDegraded
) -> Conversation:
    """The system prompt and the repaired history.

    Args:
        images: image bytes in base64, by attachment id.
        on_degraded: told of each message whose replay state makes no sense; it is sent without.

    Raises:
        LlmError: UNSUPPORTED_CONTENT, for an image outside a user message, or of another type than JPEG,
            PNG, GIF and WebP.
    """
    prompt, rest = without_system(system, messages, "Anthropic")  # not every model has the role
    out: list[dict[str, Any]] = []
    container = None
    for message in repair(readable(rest, fault_of, on_degraded), HISTORY):
        if message.role == "assistant":
            content = _assistant(message)
            container = _awaited_container(message)
        else:
            content = _user(message.content, images)
        _add(message.role, content, out)
    if out and out[0]["role"] == "assistant":
        out.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    return Conversation(prompt, out, container)


def _add(role: str, content: list[dict[str, Any]], out: list[dict[str, Any]]) -> None:
    if out and out[-1]["role"] == role:
        out[-1]["content"].extend(content)
    elif content:
        out.append({"role": role, "content": content})


def _user(content: Iterable[ContentBlock], images: Mapping[str, str]) -> list[dict[str, Any]]:
    # Results come first, as the API wants them: the repaired history has them right behind their calls.
    return [part for block in content for part in _user_block(block, images)]


def _user_block(block: ContentBlock, images: Mapping[str, str]) -> list[dict[str, Any]]:
    if isinstance(block, TextBlock) and block.text.strip():  # blank text is refused
        return [{"type": "text", "text": block.text}]
    if isinstance(block, ImageBlock):
        return [{"type": "image", "source": _source(block.attachment, images)}]
    if isinstance(block, ToolResultBlock):
        content = _user([part for part in block.content if not isinstance(part, ToolResultBlock)], images)
        result: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": block.tool_call_id,
            "content": content or [{"type": "text", "text": NO_OUTPUT}],
        }
        return [{**result, "is_error": True} if block.is_error else result]
    return []


def _source(attachment: Attachment, images: Mapping[str, str]) -> dict[str, Any]:
    if attachment.url is not None:
        return {"type": "url", "url": attachment.url}
    if attachment.media_type not in _IMAGE_TYPES:
        raise LlmError(
            f"Anthropic takes no image of type {attachment.media_type or 'unknown'}", UNSUPPORTED_CONTENT
        )
    return {"type": "base64", "media_type": attachment.media_type, "data": images[attachment.id]}


def _assistant(message: Message) -> list[dict[str, Any]]:
    refuse_images(message, "Anthropic")
    own = state_of(message) is not None
    out: list[dict[str, Any]] = []
    for block, entry in zip(message.content, entries_of(message), strict=True):
        if entry is not None:
            out.extend(entry.get("before", ()))
        extras = extras_of(entry)
        if isinstance(block, TextBlock):
            # Blank text of its own is part of the turn that must come back, but none at all is refused.
            if block.text if own else block.text.strip():
                out.append({"type": "text", "text": block.text, **extras})
        elif isinstance(block, ReasoningBlock):
            if "signature" in extras:
                out.append({"type": "thinking", "thinking": block.text, **extras})
            elif "data" in extras:
                out.append({"type": "redacted_thinking", **extras})
        elif isinstance(block, ToolCallBlock):
            out.append(
                {
                    "type": "tool_use",
                    "id": block.id,
                    "name": block.name,
                    "input": arguments_object(block.arguments),
                    **extras,
                }
            )
    out.extend(response_of(message).get("after", ()))
    return out


def _awaited_container(message: Message) -> str | None:
    """The container to be named when the result of a call out of running code comes back.

    Code in it goes on then ("Programmatic tool calling"); at other times it may be gone, and naming it
    would be an error.
    """
    callers = (entry.get("caller") for entry in entries_of(message) if entry is not None)
    if any(isinstance(caller, Mapping) and caller.get("type") != "direct" for caller in callers):
        container = response_of(message).get("container")
        return container if isinstance(container, str) else None
    return None
