"""Requests to the bodies of chat completions (OpenAI API reference, "Create chat completion").

Field order is stable, so that equal prefixes of requests are equal bytes; an optional field is left
out, never null. Whatever cannot be said is refused before any I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from ...model.messages import Message
from ...model.requests import GenerateOptions, NamedTool, ToolChoice
from ...protocol.history import repair
from ...protocol.json_text import outgoing_arguments
from ..images import data_url, refuse_images
from ..replay_state import OnDegraded, readable
from ..request_checks import check_effort, check_provider_options, refused
from .profile import ChatProfile
from .replay import Returned, fault_of

NO_OUTPUT: Final = "(no output)"
"""What stands for a tool result without text: several servers refuse an empty one."""


def check_options(options: GenerateOptions, profile: ChatProfile) -> None:
    """Refuse what the server cannot honour.

    Raises:
        LlmError: UNSUPPORTED_OPTION, for a field or a key of ``provider_options`` this profile has not.
    """
    for field in profile.unsupported:
        if getattr(options, field) not in (None, ()):
            raise refused(f"{profile.name} has no {field}")
    choice = "named" if isinstance(options.tool_choice, NamedTool) else options.tool_choice
    if choice is not None and choice not in profile.tool_choices:
        known = ", ".join(sorted(profile.tool_choices)) or "none at all"
        raise refused(f"{profile.name} has no tool_choice {choice!r} (known: {known})")
    if profile.max_stops is not None and len(options.stop or ()) > profile.max_stops:
        raise refused(f"{profile.name} takes at most {profile.max_stops} of stop")
    if options.response_format is not None and not profile.json_schema:
        raise refused(f"{profile.name} takes no JSON schema as response_format")
    check_provider_options(options, profile.options, profile.name)


def chat_body(
    options: GenerateOptions,
    profile: ChatProfile,
    images: dict[str, str],
    on_degraded: OnDegraded,
    *,
    thinking: bool = True,
) -> dict[str, Any]:
    """The body of a streaming request.

    Args:
        images: image bytes in base64, by attachment id.
        on_degraded: told of each message whose replay state makes no sense; it is sent without.
        thinking: False for a deployment without thinking.

    Raises:
        LlmError: UNSUPPORTED_REASONING_EFFORT, UNSUPPORTED_CONTENT, and UNSUPPORTED_OPTION as
            :func:`check_options`.
    """
    check_options(options, profile)
    body: dict[str, Any] = {
        "model": options.model,
        "messages": chat_messages(options, profile, images, on_degraded),
        "stream": True,
    }
    if profile.include_usage:
        body["stream_options"] = {"include_usage": True}
    if options.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in options.tools
        ]
    if options.tool_choice is not None:
        body["tool_choice"] = _tool_choice(options.tool_choice, profile)
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.top_p is not None:
        body["top_p"] = options.top_p
    if options.max_tokens is not None:
        body[profile.max_tokens_field] = options.max_tokens
    if options.stop:
        body["stop"] = list(options.stop)
    if options.response_format is not None:
        wanted = options.response_format
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict},
        }
    body.update(effort_fields(options, profile, thinking=thinking))
    if profile.session_field is not None and options.session_id is not None:
        body[profile.session_field] = options.session_id
    body.update(options.provider_options or {})
    return body


def effort_fields(options: GenerateOptions, profile: ChatProfile, *, thinking: bool) -> dict[str, Any]:
    """The body fields that ask for an effort; none where none is asked for.

    Raises:
        LlmError: UNSUPPORTED_REASONING_EFFORT, for an effort that is not on offer.
    """
    effort: str | None = options.reasoning_effort
    off = profile.off_effort
    offered = list(profile.efforts) if thinking else [off] if off is not None else []
    check_effort(effort, offered, profile.name)
    if not thinking or (profile.title_without_thinking and options.purpose == "session-title"):
        effort = off
    return {} if effort is None else dict(profile.efforts[effort])


def _tool_choice(choice: ToolChoice, profile: ChatProfile) -> Any:
    if isinstance(choice, NamedTool):
        return {"type": "function", "function": {"name": choice.name}}
    return profile.required_choice if choice == "required" else choice


def chat_messages(
    options: GenerateOptions, profile: ChatProfile, images: dict[str, str], on_degraded: OnDegraded
) -> list[dict[str, Any]]:
    """The system prompt and the repaired history; arguments are those of :func:`chat_body`.

    Raises:
        LlmError: UNSUPPORTED_CONTENT, for an image outside a user message.
    """
    out: list[dict[str, Any]] = []
    if options.system:
        out.append({"role": profile.system_role, "content": options.system})
    shown: list[dict[str, Any]] = []  # images of tool results; they follow the last of those results
    for message in repair(readable(options.messages, fault_of, on_degraded), profile.history):
        if message.role == "user":
            _add_user(message, profile, images, out, shown)
            continue
        _show(shown, profile, out)
        refuse_images(message, "the chat wire")
        if message.role == "assistant":
            _add_assistant(message, profile, out)
        else:
            out.append({"role": profile.system_role, "content": text_of(message.content)})
    _show(shown, profile, out)
    return out


def _add_user(
    message: Message,
    profile: ChatProfile,
    images: dict[str, str],
    out: list[dict[str, Any]],
    shown: list[dict[str, Any]],
) -> None:
    # Results come first: they must follow the calls at once.
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            out.append({"role": "tool", "tool_call_id": block.tool_call_id, "content": _result_text(block)})
            shown.extend(_image_parts(block.content, images))
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    parts = _image_parts(message.content, images)
    if not texts and not parts:
        return
    _show(shown, profile, out)
    if parts:
        out.append({"role": "user", "content": [*({"type": "text", "text": text} for text in texts), *parts]})
    else:
        out.append({"role": "user", "content": "".join(texts)})


def _show(shown: list[dict[str, Any]], profile: ChatProfile, out: list[dict[str, Any]]) -> None:
    """Tool messages carry text alone, so their images come in a user message behind them."""
    if shown:
        if profile.history.after_results is not None:
            out.append({"role": "assistant", "content": profile.history.after_results})
        out.append(
            {
                "role": "user",
                "content": [{"type": "text", "text": "Images from the tool results above:"}, *shown],
            }
        )
        shown.clear()


def _result_text(result: ToolResultBlock) -> str:
    text = text_of(result.content) or NO_OUTPUT
    return f"Error: {text}" if result.is_error else text


def _image_parts(content: Iterable[ContentBlock], images: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"type": "image_url", "image_url": {"url": data_url(block.attachment, images)}}
        for block in content
        if isinstance(block, ImageBlock)
    ]


def _add_assistant(message: Message, profile: ChatProfile, out: list[dict[str, Any]]) -> None:
    returned = Returned(message, profile)
    turn: dict[str, Any] = {"role": "assistant", "content": _content(message, returned), **returned.response}
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": outgoing_arguments(block.arguments)},
            **({"extra_content": entry["extra_content"]} if "extra_content" in entry else {}),
        }
        for block, entry in zip(message.content, returned.entries, strict=True)
        if isinstance(block, ToolCallBlock)
    ]
    if profile.reasoning_field is not None and "reasoning_details" not in turn:
        reasoning = "".join(block.text for block in message.content if isinstance(block, ReasoningBlock))
        if reasoning or (calls and profile.unthought_calls is not None):
            turn[profile.reasoning_field] = reasoning or profile.unthought_calls
    if calls:
        if not returned.own:
            calls[0].update(profile.foreign_call)
        turn["tool_calls"] = calls
    if turn["content"] or len(turn) > 2:
        out.append(turn)


def _content(message: Message, returned: Returned) -> str | list[dict[str, Any]]:
    """The text; where thinking goes back as a part of the content, both as parts."""
    if not any("part" in entry for entry in returned.entries):
        return text_of(message.content)
    parts: list[dict[str, Any]] = []
    for block, entry in zip(message.content, returned.entries, strict=True):
        if isinstance(block, TextBlock):
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, ReasoningBlock) and "part" in entry:
            thought = [{"type": "text", "text": block.text}]
            parts.append({"type": "thinking", "thinking": thought, **entry["part"]})
    return parts
