"""The history as the Responses API has it: a flat list of items ("Conversation state").

What a response left in replay state goes back as the items it was. A message without such state is plain
text and calls: its thinking is another model's and stays behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...model.content import (
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    text_of,
)
from ...model.messages import Message, ModelSource
from ...protocol.history import HistoryRules, repair
from ...protocol.json_text import is_complete_json, outgoing_arguments
from ..images import data_url, refuse_images
from ..replay_state import OnDegraded, entries_of, readable, response_of, state_of
from .models import ResponsesModel
from .replay import extras_of, fault_of

NO_OUTPUT: Final = "(no output)"
"""What stands for a tool result without content."""

_ID: Final = re.compile("[a-zA-Z0-9_-]{1,64}")
"""Ids of calls and items: others are refused ("string too long", "Expected an ID that contains letters")."""

HISTORY: Final = HistoryRules(
    call_ids=_ID,
    foreign_reasoning="drop",
    # The input of a custom tool is any text, so what is broken is decided where the call is written.
    broken_calls="keep",
)
_CUSTOM: Final = "custom_tool_call"


def input_items(
    messages: Iterable[Message],
    model: ResponsesModel,
    images: Mapping[str, str],
    on_degraded: OnDegraded,
) -> list[dict[str, Any]]:
    """The repaired history as input items.

    Args:
        model: the one that is asked now; only one that reasons is given reasoning back.
        images: image bytes in base64, by attachment id.
        on_degraded: told of each message whose replay state makes no sense; it is sent without.

    Raises:
        LlmError: UNSUPPORTED_CONTENT, for an image outside a user message.
    """
    out: list[dict[str, Any]] = []
    custom: set[str] = set()
    for message in repair(readable(messages, fault_of, on_degraded), HISTORY):
        if message.role == "user":
            _add_user(message.content, images, custom, out)
            continue
        refuse_images(message, "OpenAI")
        if message.role == "assistant":
            turn = assistant_items(message, model)
            custom.update(item["call_id"] for item in turn if item["type"] == _CUSTOM)
            out.extend(turn)
        elif text := text_of(message.content):
            out.append({"type": "message", "role": "system", "content": text})
    return out


def _add_user(
    content: Iterable[ContentBlock], images: Mapping[str, str], custom: set[str], out: list[dict[str, Any]]
) -> None:
    # Results come first: the repaired history has them right behind their calls.
    parts = []
    for block in content:
        if isinstance(block, ToolResultBlock):
            type = "custom_tool_call_output" if block.tool_call_id in custom else "function_call_output"
            out.append({"type": type, "call_id": block.tool_call_id, "output": _output(block, images)})
        else:
            parts.extend(_part(block, images))
    if parts:
        out.append({"type": "message", "role": "user", "content": parts})


def _part(block: ContentBlock, images: Mapping[str, str]) -> list[dict[str, Any]]:
    if isinstance(block, TextBlock) and block.text:
        return [{"type": "input_text", "text": block.text}]
    if isinstance(block, ImageBlock):
        url = data_url(block.attachment, dict(images))
        return [{"type": "input_image", "image_url": url, "detail": "auto"}]
    return []


def _output(result: ToolResultBlock, images: Mapping[str, str]) -> Any:
    text = text_of(result.content)
    if result.is_error:
        text = f"Error: {text or NO_OUTPUT}"
    pictures = [
        part for block in result.content if isinstance(block, ImageBlock) for part in _part(block, images)
    ]
    if not pictures:
        return text or NO_OUTPUT
    return [*([{"type": "input_text", "text": text}] if text else []), *pictures]


def assistant_items(message: Message, model: ResponsesModel) -> list[dict[str, Any]]:
    """The items of one assistant message."""
    entries = entries_of(message)
    if state_of(message) is None or not _goes_back_whole(message, entries, model):
        return [
            item
            for block, entry in zip(message.content, entries, strict=True)
            if (item := _plain(block, entry)) is not None
        ]
    out: list[dict[str, Any]] = []
    for block, entry in zip(message.content, entries, strict=True):
        assert entry is not None
        out.extend(map(dict, entry.get("before", ())))
        if (item := _own(block, entry)) is not None:
            out.append(item)
    out.extend(map(dict, response_of(message).get("after", ())))
    while out and out[-1]["type"] == "reasoning":
        # "provided without its required following item": thinking that led to nothing is refused.
        out.pop()
    return out


def _goes_back_whole(
    message: Message, entries: Iterable[Mapping[str, Any] | None], model: ResponsesModel
) -> bool:
    """Whether the items may go back as they were.

    The API refuses reasoning that it did not store and that is not encrypted, reasoning for a model that does
    not reason, and items that are named by id without the reasoning in front of them.
    """
    source = message.source
    assert isinstance(source, ModelSource)
    thoughts = [entry for entry in entries if entry is not None and entry["type"] == "reasoning"]
    last = bool(message.content) and isinstance(message.content[-1], ReasoningBlock)
    if last and not response_of(message).get("after"):
        thoughts.pop()
    if not thoughts:
        return True
    if source.model != model.id and not model.reasons:
        return False
    return all(entry.get("encrypted_content") or entry.get("content") for entry in thoughts)


def _own(block: ContentBlock, entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """The item that a block was."""
    extras = extras_of(entry)
    id = extras.pop("id", None)
    named = {"id": id} if id is not None and _ID.fullmatch(id) else {}
    if isinstance(block, ReasoningBlock):
        return {"type": "reasoning", **named, "summary": [], **extras}
    if isinstance(block, TextBlock) and named:
        parts = entry.get("parts") or ({"type": "output_text", "length": len(block.text)},)
        return {
            "type": "message",
            **named,
            "role": "assistant",
            "status": "completed",
            **extras,
            "content": _parts(block.text, parts),
        }
    item = _plain(block, entry)
    return None if item is None else {**item, **named, **extras}


def _parts(text: str, parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    content, start = [], 0
    for part in parts:
        said = text[start : start + part["length"]]
        start += part["length"]
        if part["type"] == "refusal":
            content.append({"type": "refusal", "refusal": said})
        else:
            content.append({"type": "output_text", "text": said, "annotations": part.get("annotations", ())})
    return content


def _plain(block: ContentBlock, entry: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A block as an item that names nothing at the provider."""
    if isinstance(block, TextBlock) and block.text:
        return {"type": "message", "role": "assistant", "content": block.text}
    if isinstance(block, ToolCallBlock):
        call = {"call_id": block.id, "name": block.name}
        if entry is not None and entry["type"] == _CUSTOM:
            return {"type": _CUSTOM, **call, "input": block.arguments}
        whole = not block.arguments.strip() or is_complete_json(block.arguments)
        arguments = outgoing_arguments(block.arguments) if whole else "{}"
        return {"type": "function_call", **call, "arguments": arguments}
    return None
