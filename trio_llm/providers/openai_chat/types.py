"""What a chat-completions stream carries, as far as it is read here.

The shapes are those of OpenAI's API reference ("The chat completion chunk object") and of the servers
that claim to be compatible. Every field may be absent or null; what varies in type is ``Any`` and is
looked at where it is used. Unknown fields are skipped.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ..decode import UNDECODABLE, EventDecoder


class ContentPart(msgspec.Struct, gc=False):
    """A part of ``content`` where that is a list (Mistral: ``text``, ``thinking``, ``reference``)."""

    type: str | None = None
    text: str | None = None
    thinking: Any = None  # a list of text parts, or a string
    closed: Any = None
    signature: Any = None


class FunctionDelta(msgspec.Struct, gc=False):
    """A part of a function call."""

    name: str | None = None
    arguments: Any = None  # a string; some servers send the object itself


class ToolCallPart(msgspec.Struct, gc=False):
    """A part of a tool call; ``id`` and ``name`` come with the first, or again and again."""

    index: int | None = None
    id: str | int | None = None
    function: FunctionDelta | None = None
    extra_content: Any = None  # an object with a thought signature (Google)


class Delta(msgspec.Struct, gc=False):
    """What is new. ``reasoning_content`` is DeepSeek's name, ``reasoning`` vLLM's and OpenRouter's."""

    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: Any = None  # a list of parts (OpenRouter), often beside ``reasoning``
    refusal: str | None = None
    tool_calls: list[ToolCallPart] | None = None
    extra_content: Any = None  # an object that says whether this is a thought, and its signature (Google)


class Choice(msgspec.Struct, gc=False):
    """One of the answers; only the first is read.

    Attributes:
        message: the whole answer, where a server ignored ``stream``.
    """

    index: int | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    message: Delta | None = None
    usage: Any = None  # Moonshot puts it here
    error: Any = None  # what an upstream provider said (OpenRouter), with the finish reason "error"


class ChatChunk(msgspec.Struct, gc=False):
    """One event of the stream.

    Attributes:
        error: an error object, or a text, in whatever shape the server gives.
        message, detail: a bare error without a wrapper (vLLM, FastAPI).
        x_groq: Groq's own envelope; holds ``usage`` and sometimes ``error``.
    """

    id: str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None
    message: Any = None
    detail: Any = None
    code: Any = None
    type: Any = None
    x_groq: Any = None
    timings: Any = None  # llama.cpp: durations in milliseconds


DONE = ChatChunk()
"""Stands for the terminal marker ``data: [DONE]``; compare by identity."""

decode_body = EventDecoder(ChatChunk)
"""Decodes a whole JSON body: an answer that was not streamed, or an error."""

_fast = decode_body.fast


def decode_event(name: str, data: bytes) -> ChatChunk | None:
    """Decode one event; None for what carries nothing (a comment that a proxy put into a data field).

    Raises:
        LlmError: MALFORMED_RESPONSE, if it is neither JSON nor ``[DONE]``.
    """
    try:
        chunk = _fast(data)
    except UNDECODABLE:
        text = data.strip()
        if text == b"[DONE]":
            return DONE
        if not text or text.startswith(b":"):
            return None
        chunk = decode_body.lenient(data)
    if name == "error" and chunk.error is None:
        return ChatChunk(error=decode_any(data))
    return chunk


decode_any: EventDecoder[object] = EventDecoder(object)
"""Decodes an error of unknown shape."""


def parts_text(parts: Any) -> str:
    """The text of a thinking part: a string, or a list of text parts (Mistral, "Reasoning")."""
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, list):
        return ""
    return "".join(
        text for part in parts if isinstance(part, dict) and isinstance(text := part.get("text"), str)
    )


def details_text(details: Any) -> str:
    """The text of ``reasoning_details`` (OpenRouter, "Reasoning tokens"); encrypted parts have none."""
    if not isinstance(details, list):
        return ""
    return "".join(
        text
        for part in details
        if isinstance(part, dict) and isinstance(text := part.get("text") or part.get("summary"), str)
    )


class _PlainDelta(msgspec.Struct, gc=False):
    content: Annotated[str, msgspec.Meta(min_length=1)]
    reasoning_content: None = None
    reasoning: None = None
    reasoning_details: None = None
    refusal: None = None
    tool_calls: None = None
    extra_content: None = None


class _PlainChoice(msgspec.Struct, gc=False):
    delta: _PlainDelta
    index: Literal[0] | None = None
    finish_reason: None = None
    message: None = None
    usage: None = None
    error: None = None


class _PlainChunk(msgspec.Struct, gc=False):
    """A :class:`ChatChunk` that says a text alone: whatever else it could say is null or absent."""

    choices: tuple[_PlainChoice]
    usage: None = None
    error: None = None
    message: None = None
    detail: None = None
    x_groq: None = None
    timings: None = None


_decode_plain = msgspec.json.Decoder(_PlainChunk).decode


def plain_text(data: bytes) -> str:
    """The text of an event that says nothing else; raises one of ``UNDECODABLE`` for any other."""
    return _decode_plain(data).choices[0].delta.content
