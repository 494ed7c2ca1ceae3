"""What a Responses stream carries, as far as it is read here (OpenAI API reference, "Streaming events").

Over a WebSocket each message is one of the same events ("WebSocket mode"). Every field may be absent or
null; unknown fields are skipped. Items are plain JSON, as some are kept to be sent back as they came.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...model.codes import MALFORMED_RESPONSE
from ...model.failures import LlmError
from ..decode import UNDECODABLE, EventDecoder

_SILENT = frozenset({"ping", "keepalive", "heartbeat"})


class ResponseObject(msgspec.Struct, gc=False):
    """The response as a whole: as it begins, as it ends, or an answer that was not streamed."""

    id: str | None = None
    model: str | None = None
    status: str | None = None
    output: list[dict[str, Any]] | None = None
    usage: Any = None
    error: Any = None
    incomplete_details: Any = None
    service_tier: Any = None


class ResponseEvent(msgspec.Struct, gc=False):
    """One event; ``type`` says which.

    Attributes:
        delta, text, arguments, input, refusal: what is new, and what was said in all.
        error: an error object, or a text, in whatever shape a server gives.
    """

    type: str | None = None
    delta: Any = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item_id: str | None = None
    item: dict[str, Any] | None = None
    part: Any = None
    text: str | None = None
    arguments: Any = None
    input: str | None = None
    refusal: str | None = None
    response: ResponseObject | None = None
    error: Any = None


_decode = EventDecoder(ResponseEvent)
_decode_answer = EventDecoder(ResponseObject)
_decode_any: EventDecoder[object] = EventDecoder(object)
_fast = _decode.fast


def decode_event(name: str, data: bytes) -> ResponseEvent | None:
    """Decode one event; None for what carries nothing (pings, comments that a proxy put into a data field).

    What an event is, its own ``type`` says; ``name``, the stream's word for it, only where it has none.

    Raises:
        LlmError: MALFORMED_RESPONSE, if it is no JSON.
    """
    try:
        event = _fast(data)
    except UNDECODABLE:
        text = data.strip()
        if not text or text.startswith(b":") or text == b"[DONE]":
            return None
        if name == "error":
            return ResponseEvent(type="error", error=_decode_any(data))
        event = _decode.lenient(data)
    if event.type is None:
        event.type = "error" if event.error is not None else name
    if event.type in _SILENT:
        return None
    if event.type == "error":
        # OpenAI spells its error at the top, others below ``error``.
        return ResponseEvent(type="error", error=_decode_any(data))
    return event


def decode_answer(data: bytes) -> ResponseEvent:
    """A whole answer, where a server ignored that it should stream.

    Raises:
        LlmError: MALFORMED_RESPONSE, if it is none.
    """
    response = _decode_answer(data)
    if response.output is None or response.status is None:
        raise LlmError("the provider sent no response", MALFORMED_RESPONSE)
    return ResponseEvent(type=f"response.{response.status}", response=response)
