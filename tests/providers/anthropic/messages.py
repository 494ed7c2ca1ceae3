"""Bodies of Messages streams, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from trio_llm.model.chunks import Stop, StreamChunk
from trio_llm.model.messages import Message, ModelSource
from trio_llm.protocol.json_text import encode_body
from trio_llm.providers.anthropic import AnthropicAdapter, AnthropicConfig, AnthropicModel
from trio_llm.providers.anthropic.adapter import WIRE
from trio_llm.providers.anthropic.conversation import converse
from trio_llm.providers.anthropic.models import CLAUDE_MODELS, find_model
from trio_llm.providers.anthropic.serialize import messages_body
from trio_llm.providers.anthropic.translate import MessagesTranslator
from trio_llm.providers.images import load_images
from trio_llm.providers.replay_state import OnDegraded
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ..bench import Bench
from ..streams import fold, not_degraded
from ..streams import message_of as stored
from ..wire import ask

SOURCE = ModelSource("anthropic", "claude-opus-5")


def frame(value: dict[str, Any]) -> bytes:
    """One event."""
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), json.dumps(value).encode())


def start(usage: Any = None, **fields: Any) -> bytes:
    """A ``message_start``."""
    message = {"id": "msg_1", "model": "served", "content": [], "stop_reason": None, "usage": usage}
    return frame({"type": "message_start", "message": message | fields})


def begin(index: int, **block: Any) -> bytes:
    """A ``content_block_start``."""
    return frame({"type": "content_block_start", "index": index, "content_block": block})


def delta(index: int, type: str, **fields: Any) -> bytes:
    """A ``content_block_delta``."""
    return frame({"type": "content_block_delta", "index": index, "delta": {"type": type, **fields}})


def stop(index: int) -> bytes:
    """A ``content_block_stop``."""
    return frame({"type": "content_block_stop", "index": index})


def text(index: int, *parts: str) -> bytes:
    """A text block."""
    deltas = b"".join(delta(index, "text_delta", text=part) for part in parts)
    return begin(index, type="text", text="") + deltas + stop(index)


def call(index: int, *parts: str, id: str = "toolu_1", name: str = "ls", **fields: Any) -> bytes:
    """A tool call, its arguments in parts."""
    deltas = b"".join(delta(index, "input_json_delta", partial_json=part) for part in parts)
    return begin(index, type="tool_use", id=id, name=name, **{"input": {}} | fields) + deltas + stop(index)


def end(word: str | None = "end_turn", usage: Any = None, **fields: Any) -> bytes:
    """``message_delta`` and ``message_stop``."""
    said = {"type": "message_delta", "delta": {"stop_reason": word, "stop_sequence": None, **fields}}
    return frame(said | {"usage": usage}) + frame({"type": "message_stop"})


def translate(reads: Iterable[bytes], *, clean: bool = True) -> tuple[list[StreamChunk], MessagesTranslator]:
    """The chunks of a stream; as :func:`~..streams.fold`."""
    translator = MessagesTranslator()
    return fold(WIRE, translator, reads, clean=clean), translator


def chunks_of(*frames: bytes) -> list[StreamChunk]:
    """The chunks of a stream."""
    return translate([b"".join(frames)])[0]


def message_of(chunks: Iterable[StreamChunk], source: ModelSource = SOURCE) -> Message:
    """The assistant message of a response, as the runtime stores it."""
    return stored(chunks, source)


async def body_of(
    model: AnthropicModel | str = "claude-opus-4-6",
    *,
    on_degraded: OnDegraded = not_degraded,
    max_tokens: int | None = None,
    thinking: bool = True,
    settings: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """The body as it goes over the wire."""
    known = model if isinstance(model, AnthropicModel) else find_model(CLAUDE_MODELS, model)
    options = ask(**{"model": known.id, "max_tokens": max_tokens} | fields)
    images = await load_images(options.messages)
    body = messages_body(
        options,
        known,
        converse(options.system, options.messages, images, on_degraded),
        max_tokens=64_000,
        thinking=thinking,
        thinking_settings=settings,
    )
    decoded = json.loads(encode_body(body))
    assert isinstance(decoded, dict)
    return decoded


async def sent_messages(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    """The messages of a body."""
    sent = (await body_of(messages=messages, **fields))["messages"]
    assert isinstance(sent, list)
    return sent


def config(server: WireServer, **changes: Any) -> AnthropicConfig:
    """A configuration for a server, with a key."""
    return AnthropicConfig(**{"api_key": "sk-ant-123", "base_url": server.base_url} | changes)


ANSWER = start({"input_tokens": 4, "output_tokens": 1}) + text(0, "hi") + end(usage={"output_tokens": 3})

BENCH = Bench(
    lambda server, **changes: AnthropicAdapter(config(server, **changes)),
    event_stream(ANSWER),
    Stop(raw="end_turn"),
)
