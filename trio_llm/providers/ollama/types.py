"""What a stream of ``/api/chat`` carries, as far as it is read here (Ollama API, "Generate a chat message").

Every field may be absent or null; unknown fields are skipped.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..decode import UNDECODABLE, EventDecoder


class CalledFunction(msgspec.Struct, gc=False):
    """Which tool is called; the arguments are an object, from some servers a text."""

    name: str | None = None
    arguments: Any = None


class Call(msgspec.Struct, gc=False):
    """A whole tool call; newer servers give it an id."""

    id: str | None = None
    function: CalledFunction | None = None


class ChatMessage(msgspec.Struct, gc=False):
    """What is new in the message."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[Call] | None = None


class ChatLine(msgspec.Struct, gc=False):
    """One line of the stream; the last one says ``done`` and counts.

    Attributes:
        error: a text, or whatever a gateway makes of it; it comes in a stream that had begun well.
        response, thinking: what ``/api/generate`` says instead of ``message``.
    """

    model: str | None = None
    message: ChatMessage | None = None
    done: bool | None = None
    done_reason: str | None = None
    error: Any = None
    response: str | None = None
    thinking: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_duration: int | None = None
    eval_duration: int | None = None


_decode = EventDecoder(ChatLine)
decode_fast = _decode.fast
"""Decodes a line in one call, for the common case; raises one of ``UNDECODABLE``."""


def decode_line(name: str, data: bytes) -> ChatLine:
    """Decode one line.

    Raises:
        LlmError: MALFORMED_RESPONSE, if it is no JSON object.
    """
    try:
        return decode_fast(data)
    except UNDECODABLE:
        return _decode.lenient(data)
