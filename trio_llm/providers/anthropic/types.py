"""What a Messages stream carries, as far as it is read here (Claude API docs, "Streaming messages").

Every field may be absent or null; unknown fields are skipped. What is kept to be sent back as it came
(content blocks, citations) is plain JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...model.codes import MALFORMED_RESPONSE
from ...model.failures import LlmError
from ..decode import UNDECODABLE, EventDecoder


class Delta(msgspec.Struct, gc=False):
    """What is new in a block, or in the message as a whole (its last four fields)."""

    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: Any = None
    content: Any = None  # of a compaction block
    encrypted_content: Any = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None
    container: Any = None


class StartedMessage(msgspec.Struct, gc=False):
    """The message of ``message_start``, or a whole answer.

    Some responses are over when they start: they carry their content and stop reason here.
    """

    id: str | None = None
    model: str | None = None
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None
    container: Any = None
    usage: Any = None


class MessageEvent(msgspec.Struct, gc=False):
    """One event of the stream; ``type`` says which.

    Attributes:
        error: an error object, or a text, in whatever shape a server gives.
        request_id: stands beside an error.
    """

    type: str | None = None
    index: int | None = None
    delta: Delta | None = None
    content_block: dict[str, Any] | None = None
    message: StartedMessage | None = None
    usage: Any = None
    error: Any = None
    request_id: str | None = None
    context_management: Any = None


_decode = EventDecoder(MessageEvent)
_decode_answer = EventDecoder(StartedMessage)
_decode_any: EventDecoder[object] = EventDecoder(object)
_fast = _decode.fast


def decode_event(name: str, data: bytes) -> MessageEvent | None:
    """Decode one event; None for what carries nothing (pings, comments that a proxy put into a data field).

    Raises:
        LlmError: MALFORMED_RESPONSE, if it is no JSON.
    """
    try:
        event = _fast(data)
    except UNDECODABLE:
        text = data.strip()
        if not text or text.startswith(b":"):
            return None
        if text == b"[DONE]":  # gateways that speak several wires add it
            return MessageEvent(type="message_stop")
        if name == "error":
            return MessageEvent(type="error", error=_decode_any(data))
        event = _decode.lenient(data)
    if event.type is None:
        event.type = name
    if event.type == "ping":
        return None
    if event.error is None and "error" in (name, event.type):
        return MessageEvent(type="error", error=_decode_any(data))
    return event


def decode_answer(data: bytes) -> MessageEvent:
    """A whole answer, where a server ignored that it should stream.

    Raises:
        LlmError: MALFORMED_RESPONSE, if it is none.
    """
    message = _decode_answer(data)
    if message.content is None:
        raise LlmError("the provider sent no message", MALFORMED_RESPONSE)
    return MessageEvent(type="message_start", message=message)
