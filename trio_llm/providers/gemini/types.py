"""What a stream of ``streamGenerateContent`` carries, as far as it is read here (Gemini API reference,
"Generating content").

Every field may be absent or null; unknown fields are skipped. Parts are plain JSON, as those that are not
shown go back as they came.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...model.codes import MALFORMED_RESPONSE
from ...model.failures import LlmError
from ..decode import UNDECODABLE, EventDecoder


class Content(msgspec.Struct, gc=False):
    """The parts of a candidate; none at all where the limit came first."""

    parts: list[dict[str, Any]] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    """One answer; only the first is asked for."""

    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None
    grounding_metadata: Any = None
    url_context_metadata: Any = None
    citation_metadata: Any = None


class GenerateEvent(msgspec.Struct, gc=False, rename="camel"):
    """One event of the stream.

    Attributes:
        prompt_feedback: why there is no answer, where the prompt was blocked.
        error: an error object, in a stream that had begun well.
    """

    candidates: list[Candidate] | None = None
    prompt_feedback: Any = None
    usage_metadata: Any = None
    model_version: str | None = None
    response_id: str | None = None
    error: Any = None


_decode = EventDecoder(GenerateEvent)
decode_fast = _decode.fast
"""Decodes an event in one call, for the common case; raises one of ``UNDECODABLE``."""


def decode_event(name: str, data: bytes) -> GenerateEvent | None:
    """Decode one event; None for what carries nothing, as gateways put it in.

    Raises:
        LlmError: MALFORMED_RESPONSE, if it is no JSON object.
    """
    try:
        return decode_fast(data)
    except UNDECODABLE:
        text = data.strip()
        if not text or text.startswith(b":") or text == b"[DONE]":
            return None
        return _decode.lenient(data)


def decode_answer(data: bytes) -> GenerateEvent:
    """A whole answer, where a server ignored that it should stream.

    Raises:
        LlmError: MALFORMED_RESPONSE, if it is none.
    """
    answer = _decode(data)
    if answer.candidates is None and answer.prompt_feedback is None:
        raise LlmError("the provider sent no answer", MALFORMED_RESPONSE)
    return answer
