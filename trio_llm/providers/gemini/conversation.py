"""The history as the Gemini API has it.

Roles are user and model alone: system messages that come first join the system instruction, later ones are
user text where they stand. What a response left in replay state goes back as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeGuard

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
    text_of,
)
from ...model.failures import LlmError
from ...model.identifiers import CallId
from ...model.messages import Message
from ...protocol.history import HistoryRules, repair
from ...protocol.json_text import arguments_object
from ..images import refuse_images
from ..replay_state import OnDegraded, entries_of, readable, response_of, state_of
from ..system_prompt import without_system
from .replay import fault_of

OPENING: Final = "(The conversation began earlier.)"
"""What stands in front of a history that begins with the model: a turn with calls must follow a user's."""

UNSIGNED: Final = "skip_thought_signature_validator"
"""The signature of a call that another model made ("Thought signatures", "FAQs")."""

# Ids are not what pairs a result with its call here: the name and the place do. Results come in messages of
# their own; merged, they all stand in front of what they show.
HISTORY: Final = HistoryRules(foreign_reasoning="drop", merge_roles=True)


@attrs.frozen
class Conversation:
    """What a body says of the history.

    Attributes:
        system: the system prompt, and the system messages that stand in front of everything.
    """

    system: str
    contents: list[dict[str, Any]]


def converse(
    system: str | None,
    messages: Iterable[Message],
    images: Mapping[str, str],
    on_degraded: OnDegraded,
    *,
    signed: bool,
) -> Conversation:
    """The system prompt and the repaired history.

    Args:
        images: image bytes in base64, by attachment id.
        on_degraded: told of each message whose replay state makes no sense; it is sent without.
        signed: whether the model refuses calls without a signature.

    Raises:
        LlmError: UNSUPPORTED_CONTENT, for an image outside a user message, or one of an unknown type.
    """
    prompt, rest = without_system(system, messages, "Gemini")
    contents: list[dict[str, Any]] = []
    calls: dict[CallId, dict[str, Any]] = {}
    for message in repair(readable(rest, fault_of, on_degraded), HISTORY):
        if message.role == "assistant":
            _add("model", list(_model_parts(message, calls, signed=signed)), contents)
        else:
            _add("user", _user_parts(message.content, calls, images), contents)
    if contents and contents[0]["role"] == "model":
        contents.insert(0, {"role": "user", "parts": [{"text": OPENING}]})
    return Conversation(prompt, contents)


def _add(role: str, parts: list[dict[str, Any]], contents: list[dict[str, Any]]) -> None:
    if contents and contents[-1]["role"] == role:
        contents[-1]["parts"].extend(parts)
    elif parts:
        contents.append({"role": role, "parts": parts})


def _user_parts(
    content: Iterable[ContentBlock], calls: Mapping[CallId, dict[str, Any]], images: Mapping[str, str]
) -> list[dict[str, Any]]:
    # Results come first, as many as there were calls; what they show besides follows the last of them.
    results: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for block in content:
        if isinstance(block, ToolResultBlock):
            text = text_of(block.content)
            response = {"error": text} if block.is_error else {"output": text}
            results.append({"functionResponse": {**calls[block.tool_call_id], "response": response}})
            shown.extend(_image(part.attachment, images) for part in block.content if _is_image(part))
        elif isinstance(block, TextBlock) and block.text:
            others.append({"text": block.text})
        elif isinstance(block, ImageBlock):
            others.append(_image(block.attachment, images))
    if shown:
        shown.insert(0, {"text": "Images from the tool results above:"})
    return [*results, *shown, *others]


def _is_image(block: ContentBlock) -> TypeGuard[ImageBlock]:
    return isinstance(block, ImageBlock)


def _image(attachment: Attachment, images: Mapping[str, str]) -> dict[str, Any]:
    type = {} if attachment.media_type is None else {"mimeType": attachment.media_type}
    if attachment.url is not None:
        return {"fileData": {**type, "fileUri": attachment.url}}
    if not type:
        raise LlmError("an image without a media type cannot be sent", UNSUPPORTED_CONTENT)
    return {"inlineData": {**type, "data": images[attachment.id]}}


def _model_parts(
    message: Message, calls: dict[CallId, dict[str, Any]], *, signed: bool
) -> Iterator[dict[str, Any]]:
    """The parts of a model's turn; ``calls`` learns how the results of its calls are addressed."""
    refuse_images(message, "Gemini")
    unsigned = signed and state_of(message) is None
    for block, stored in zip(message.content, entries_of(message), strict=True):
        entry = stored or {}
        yield from entry.get("before", ())
        if isinstance(block, TextBlock):
            yield from _text_parts(block.text, entry, {})
        elif isinstance(block, ReasoningBlock):
            yield from _text_parts(block.text, entry, {"thought": True})
        elif isinstance(block, ToolCallBlock):
            given = {"id": entry["id"]} if "id" in entry else {}
            calls[block.id] = {**given, "name": block.name}
            part: dict[str, Any] = {
                "functionCall": {**given, "name": block.name, "args": arguments_object(block.arguments)}
            }
            if "signature" in entry:
                part["thoughtSignature"] = entry["signature"]
            elif unsigned:
                part["thoughtSignature"] = UNSIGNED
                unsigned = False  # of calls side by side, only the first has one
            yield part
    yield from response_of(message).get("after", ())


def _text_parts(text: str, entry: Mapping[str, Any], marks: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts that a text came in, as far as signatures keep them apart."""
    place = 0
    for start, end, signature in entry.get("signed", ()):
        if start > place:
            yield {"text": text[place:start], **marks}
        yield {"text": text[start:end], **marks, "thoughtSignature": signature}
        place = end
    if place < len(text):
        yield {"text": text[place:], **marks}
