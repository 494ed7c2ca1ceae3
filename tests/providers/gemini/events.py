"""Bodies of Gemini streams, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from trio_llm.model.chunks import Stop, StreamChunk
from trio_llm.model.messages import Message, ModelSource
from trio_llm.protocol.json_text import encode_body
from trio_llm.providers.gemini import GEMINI_MODELS, GeminiAdapter, GeminiConfig, GeminiModel
from trio_llm.providers.gemini.adapter import WIRE
from trio_llm.providers.gemini.conversation import converse
from trio_llm.providers.gemini.models import find_model
from trio_llm.providers.gemini.serialize import generate_body
from trio_llm.providers.gemini.translate import GeminiTranslator
from trio_llm.providers.images import load_images
from trio_llm.providers.replay_state import OnDegraded
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ..bench import Bench
from ..streams import fold, not_degraded
from ..streams import message_of as stored
from ..wire import ask

SOURCE = ModelSource("gemini", "gemini-3-flash-preview")


def frame(value: Any) -> bytes:
    """One event, with the line ends that the provider sends."""
    return b"data: %b\r\n\r\n" % json.dumps(value).encode()


def event(*parts: dict[str, Any], word: str | None = None, **fields: Any) -> bytes:
    """An event with parts of the answer."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if word is not None:
        candidate["finishReason"] = word
    return frame({"candidates": [candidate], "modelVersion": "served", "responseId": "r-1"} | fields)


def text(said: str, signature: str | None = None, **fields: Any) -> dict[str, Any]:
    """A part with text."""
    signed = {} if signature is None else {"thoughtSignature": signature}
    return {"text": said, **fields, **signed}


def thought(said: str, signature: str | None = None) -> dict[str, Any]:
    """A part with a thought."""
    return text(said, signature, thought=True)


def call(name: str | None, args: Any = None, signature: str | None = None, **fields: Any) -> dict[str, Any]:
    """A part with a call."""
    named = {} if name is None else {"name": name}
    given = {} if args is None else {"args": args}
    signed = {} if signature is None else {"thoughtSignature": signature}
    return {"functionCall": {**named, **given, **fields}, **signed}


def piece(path: str, value: Any, *, more: bool = False) -> dict[str, Any]:
    """A piece of a call's arguments."""
    name = {str: "stringValue", bool: "boolValue", type(None): "nullValue"}.get(type(value), "numberValue")
    return {"jsonPath": path, name: value} | ({"willContinue": True} if more else {})


USAGE = {"promptTokenCount": 4, "candidatesTokenCount": 3, "totalTokenCount": 7}


def end(*parts: dict[str, Any], word: str = "STOP", **usage: Any) -> bytes:
    """The last event."""
    return event(*parts, word=word, usageMetadata=USAGE | usage)


def translate(reads: Iterable[bytes], *, clean: bool = True) -> tuple[list[StreamChunk], GeminiTranslator]:
    """The chunks of a stream; as :func:`~..streams.fold`."""
    translator = GeminiTranslator()
    return fold(WIRE, translator, reads, clean=clean), translator


def chunks_of(*frames: bytes) -> list[StreamChunk]:
    """The chunks of a stream."""
    return translate([b"".join(frames)])[0]


def message_of(chunks: Iterable[StreamChunk], source: ModelSource = SOURCE) -> Message:
    """The assistant message of a response, as the runtime stores it."""
    return stored(chunks, source)


async def body_of(
    model: GeminiModel | str = "gemini-3-flash-preview",
    *,
    on_degraded: OnDegraded = not_degraded,
    include_thoughts: bool = True,
    **fields: Any,
) -> dict[str, Any]:
    """The body as it goes over the wire."""
    known = model if isinstance(model, GeminiModel) else find_model(GEMINI_MODELS, model)
    options = ask(**{"model": known.id} | fields)
    images = await load_images(options.messages)
    conversation = converse(
        options.system, options.messages, images, on_degraded, signed=known.wants_signatures
    )
    body = generate_body(options, known, conversation, include_thoughts=include_thoughts)
    decoded = json.loads(encode_body(body))
    assert isinstance(decoded, dict)
    return decoded


async def sent_contents(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    """The contents of a body."""
    sent = (await body_of(messages=messages, **fields))["contents"]
    assert isinstance(sent, list)
    return sent


def config(server: WireServer, **changes: Any) -> GeminiConfig:
    """A configuration for a server, with a key."""
    return GeminiConfig(**{"api_key": "AIza-123", "base_url": server.base_url} | changes)


ANSWER = event(text("h")) + end(text("i"))

BENCH = Bench(
    lambda server, **changes: GeminiAdapter(config(server, **changes)), event_stream(ANSWER), Stop(raw="STOP")
)
