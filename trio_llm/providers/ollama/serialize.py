"""Requests to the bodies of ``/api/chat`` (Ollama API, "Generate a chat message").

Field order is stable, so that equal prefixes of requests are equal bytes; an optional field is left
out, never null. Whatever cannot be said is refused before any I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...model.codes import UNSUPPORTED_CONTENT
from ...model.content import (
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
from ...model.requests import GenerateOptions, NamedTool
from ...protocol.history import HistoryRules, repair
from ...protocol.json_text import arguments_object
from ..images import refuse_images
from ..request_checks import check_effort, check_provider_options, check_strict, refused
from .models import THINK, OllamaModel

NO_OUTPUT: Final = "(no output)"
"""What stands for a tool result without text: many templates leave out a message that says nothing."""

HISTORY: Final = HistoryRules(
    # The server names most calls nothing, so that ids are this library's and come again in every turn.
    call_ids=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
)

_TOP_LEVEL: Final = ("keep_alive", "shift", "truncate")
_MODEL_OPTIONS: Final = (
    "frequency_penalty",
    "main_gpu",
    "min_p",
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
    "num_batch",
    "num_ctx",
    "num_gpu",
    "num_keep",
    "num_thread",
    "presence_penalty",
    "repeat_last_n",
    "repeat_penalty",
    "seed",
    "tfs_z",
    "top_k",
    "typical_p",
    "use_mmap",
)
OPTIONS: Final = frozenset({*_TOP_LEVEL, *_MODEL_OPTIONS})
"""The keys of ``provider_options``, as the wire spells them.

``keep_alive`` (how long the model stays in memory), ``truncate`` and ``shift`` (what becomes of a history
that is too long) stand in the body itself, all others in its ``options``.
"""


def check_options(options: GenerateOptions, model: OllamaModel) -> None:
    """Refuse what the wire or the model cannot honour.

    Raises:
        LlmError: UNSUPPORTED_OPTION, UNSUPPORTED_REASONING_EFFORT.
    """
    check_provider_options(options, OPTIONS, "Ollama")
    if options.tool_choice == "required" or isinstance(options.tool_choice, NamedTool):
        raise refused("Ollama cannot make a model call a tool")
    check_strict(options, "Ollama")
    check_effort(options.reasoning_effort, model.efforts, model.id)


def chat_body(options: GenerateOptions, model: OllamaModel, images: Mapping[str, str]) -> dict[str, Any]:
    """The body of a streaming request.

    Args:
        images: image bytes in base64, by attachment id.

    Raises:
        LlmError: as :func:`check_options`; UNSUPPORTED_CONTENT as :func:`chat_messages`.
    """
    check_options(options, model)
    extra: Mapping[str, Any] = options.provider_options or {}
    body: dict[str, Any] = {
        "model": options.model,
        "messages": chat_messages(options, images),
        "stream": True,
    }
    if options.tools and options.tool_choice != "none":  # a model without tools calls none
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
    if options.reasoning_effort is not None:
        body["think"] = THINK[options.reasoning_effort]
    if options.response_format is not None:
        body["format"] = options.response_format.schema
    settings = {
        "num_predict": options.max_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "stop": list(options.stop) if options.stop else None,
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    settings.update((key, extra[key]) for key in _MODEL_OPTIONS if key in extra)
    if settings:
        body["options"] = settings
    body.update((key, extra[key]) for key in _TOP_LEVEL if key in extra)
    return body


def chat_messages(options: GenerateOptions, images: Mapping[str, str]) -> list[dict[str, Any]]:
    """The system prompt and the repaired history.

    Raises:
        LlmError: UNSUPPORTED_CONTENT, for an image outside a user message, or behind a URL.
    """
    out: list[dict[str, Any]] = []
    if options.system:
        out.append({"role": "system", "content": options.system})
    names: dict[CallId, str] = {}
    for message in repair(options.messages, HISTORY):
        if message.role == "user":
            _add_user(message, names, images, out)
            continue
        refuse_images(message, "Ollama")
        if message.role == "assistant":
            names.update(
                (block.id, block.name) for block in message.content if isinstance(block, ToolCallBlock)
            )
            _add_assistant(message, out)
        else:
            out.append({"role": "system", "content": text_of(message.content)})
    return out


def _add_user(
    message: Message, names: Mapping[CallId, str], images: Mapping[str, str], out: list[dict[str, Any]]
) -> None:
    # Results come first: they must follow the calls at once.
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            text = text_of(block.content) or NO_OUTPUT
            out.append(
                {
                    "role": "tool",
                    "content": f"Error: {text}" if block.is_error else text,
                    **_images(block.content, images),
                    "tool_name": names[block.tool_call_id],
                    "tool_call_id": block.tool_call_id,
                }
            )
    shown = _images(message.content, images)
    if shown or any(isinstance(block, TextBlock) for block in message.content):
        out.append({"role": "user", "content": text_of(message.content), **shown})


def _images(content: Iterable[ContentBlock], images: Mapping[str, str]) -> dict[str, list[str]]:
    listed = []
    for block in content:
        if isinstance(block, ImageBlock):
            if block.attachment.url is not None:
                raise LlmError("Ollama fetches no images: give their bytes", UNSUPPORTED_CONTENT)
            listed.append(images[block.attachment.id])
    return {"images": listed} if listed else {}


def _add_assistant(message: Message, out: list[dict[str, Any]]) -> None:
    turn: dict[str, Any] = {"role": "assistant", "content": text_of(message.content)}
    thinking = "".join(block.text for block in message.content if isinstance(block, ReasoningBlock))
    if thinking:
        turn["thinking"] = thinking
    calls = [
        {"id": block.id, "function": {"name": block.name, "arguments": arguments_object(block.arguments)}}
        for block in message.content
        if isinstance(block, ToolCallBlock)
    ]
    if calls:
        turn["tool_calls"] = calls
    if len(turn) > 2 or turn["content"]:
        out.append(turn)
