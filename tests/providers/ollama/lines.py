"""Bodies of chat streams, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from trio_llm.model.chunks import Stop, StreamChunk
from trio_llm.model.messages import Message
from trio_llm.protocol.json_text import encode_body
from trio_llm.providers.images import load_images
from trio_llm.providers.ollama import OllamaAdapter, OllamaConfig, OllamaModel
from trio_llm.providers.ollama.adapter import WIRE
from trio_llm.providers.ollama.serialize import chat_body
from trio_llm.providers.ollama.translate import OllamaTranslator
from trio_llm.testing.wire_script import Response, Step
from trio_llm.testing.wire_server import WireServer

from ..bench import Bench
from ..streams import fold
from ..wire import ask

PLAIN = OllamaModel("m")

NDJSON = {"content-type": "application/x-ndjson"}


def line(**fields: Any) -> bytes:
    """One line."""
    return json.dumps({"model": "served"} | fields).encode() + b"\n"


def says(content: str | None = None, **message: Any) -> bytes:
    """A line with a part of the message."""
    return line(message={"role": "assistant", "content": content} | message, done=False)


def call(name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    """A tool call as the wire has it."""
    return {"function": {"name": name, "arguments": arguments}} | fields


def done(word: str | None = "stop", **fields: Any) -> bytes:
    """The last line."""
    counts = {"prompt_eval_count": 4, "eval_count": 3}
    return line(message={"role": "assistant", "content": ""}, done=True, done_reason=word, **counts | fields)


def lines(*steps: Step) -> Response:
    """A stream of lines."""
    return Response(200, NDJSON, steps)


def translate(reads: Iterable[bytes], *, clean: bool = True) -> tuple[list[StreamChunk], OllamaTranslator]:
    """The chunks of a stream; as :func:`~..streams.fold`."""
    translator = OllamaTranslator()
    return fold(WIRE, translator, reads, clean=clean), translator


def chunks_of(*parts: bytes) -> list[StreamChunk]:
    """The chunks of a stream."""
    return translate([b"".join(parts)])[0]


async def body_of(model: OllamaModel = PLAIN, **fields: Any) -> dict[str, Any]:
    """The body as it goes over the wire."""
    options = ask(**{"model": model.id} | fields)
    body = chat_body(options, model, await load_images(options.messages))
    decoded = json.loads(encode_body(body))
    assert isinstance(decoded, dict)
    return decoded


async def sent_messages(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    """The messages of a body."""
    sent = (await body_of(messages=messages, **fields))["messages"]
    assert isinstance(sent, list)
    return sent


def config(server: WireServer, **changes: Any) -> OllamaConfig:
    """A configuration for a server."""
    return OllamaConfig(**{"base_url": server.base_url} | changes)


ANSWER = says("hi") + done()

BENCH = Bench(
    lambda server, **changes: OllamaAdapter(config(server, **changes)), lines(ANSWER), Stop(raw="stop")
)
