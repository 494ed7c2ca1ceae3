"""Bodies of Responses streams, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from trio_llm.model.chunks import Stop, StreamChunk
from trio_llm.model.messages import Message, ModelSource
from trio_llm.protocol.json_text import encode_body
from trio_llm.providers.images import load_images
from trio_llm.providers.openai_responses import (
    OPENAI_MODELS,
    ResponsesAdapter,
    ResponsesConfig,
    ResponsesModel,
)
from trio_llm.providers.openai_responses.adapter import WIRE
from trio_llm.providers.openai_responses.conversation import input_items
from trio_llm.providers.openai_responses.models import find_model
from trio_llm.providers.openai_responses.serialize import check_options, request_fields
from trio_llm.providers.openai_responses.translate import ResponsesTranslator
from trio_llm.providers.replay_state import OnDegraded
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ..bench import Bench
from ..published import check_published
from ..streams import fold, not_degraded
from ..streams import message_of as stored
from ..wire import ask

SOURCE = ModelSource("openai", "gpt-5.5")


def event(type: str, **fields: Any) -> dict[str, Any]:
    """One event."""
    return {"type": f"response.{type}", **fields}


def frame(value: dict[str, Any]) -> bytes:
    """An event as the stream has it."""
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), json.dumps(value).encode())


def created(id: str = "resp_1", **fields: Any) -> dict[str, Any]:
    """``response.created``."""
    return event("created", response={"id": id, "model": "served", "status": "in_progress", **fields})


def added(place: int, **item: Any) -> dict[str, Any]:
    """``response.output_item.added``."""
    return event("output_item.added", output_index=place, item=item)


def done(place: int, **item: Any) -> dict[str, Any]:
    """``response.output_item.done``."""
    return event("output_item.done", output_index=place, item=item)


def delta(kind: str, place: int, said: str, **fields: Any) -> dict[str, Any]:
    """A delta event; ``kind`` such as ``output_text``."""
    return event(f"{kind}.delta", output_index=place, delta=said, **fields)


def text(place: int, *parts: str, id: str = "msg_1", **fields: Any) -> list[dict[str, Any]]:
    """A message of one text."""
    content = [{"type": "output_text", "text": "".join(parts), "annotations": []}]
    return [
        added(place, type="message", id=id, role="assistant", content=[], **fields),
        *(delta("output_text", place, part, content_index=0, item_id=id) for part in parts),
        done(place, type="message", id=id, role="assistant", content=content, **fields),
    ]


def thinking(place: int, *parts: str, id: str = "rs_1", **fields: Any) -> list[dict[str, Any]]:
    """A reasoning item, one delta for each of the parts of its summary."""
    summary = [{"type": "summary_text", "text": part} for part in parts]
    return [
        added(place, type="reasoning", id=id, summary=[]),
        *(
            delta("reasoning_summary_text", place, part, summary_index=index, item_id=id)
            for index, part in enumerate(parts)
        ),
        done(place, type="reasoning", id=id, summary=summary, **fields),
    ]


def call(
    place: int, *parts: str, id: str = "fc_1", call_id: str = "call_1", name: str = "ls", **fields: Any
) -> list[dict[str, Any]]:
    """A function call, its arguments in parts."""
    item = {"type": "function_call", "id": id, "call_id": call_id, "name": name, **fields}
    return [
        added(place, **item, arguments=""),
        *(delta("function_call_arguments", place, part, item_id=id) for part in parts),
        done(place, **item, arguments="".join(parts)),
    ]


def end(word: str = "completed", usage: Any = None, **fields: Any) -> dict[str, Any]:
    """The terminal event."""
    response = {"id": "resp_1", "model": "served", "status": word, "usage": usage, **fields}
    return event(word, response=response)


def cut(reason: str | None = "max_output_tokens", **fields: Any) -> dict[str, Any]:
    """``response.incomplete``."""
    details = None if reason is None else {"reason": reason}
    return end("incomplete", incomplete_details=details, **fields)


def usage(taken: int = 4, given: int = 3) -> dict[str, Any]:
    """A ``usage`` object."""
    return {"input_tokens": taken, "output_tokens": given, "total_tokens": taken + given}


def body(*events: dict[str, Any] | list[dict[str, Any]]) -> bytes:
    """The body of a stream."""
    flat = [one for each in events for one in (each if isinstance(each, list) else [each])]
    return b"".join(map(frame, flat))


HELLO = body(created(), text(0, "Hel", "lo"), end(usage=usage()))


def translate(reads: Iterable[bytes], *, clean: bool = True) -> tuple[list[StreamChunk], ResponsesTranslator]:
    """The chunks of a stream; as :func:`~..streams.fold`."""
    translator = ResponsesTranslator()
    return fold(WIRE, translator, reads, clean=clean), translator


def chunks_of(*events: dict[str, Any] | list[dict[str, Any]]) -> list[StreamChunk]:
    """The chunks of some events."""
    return translate([body(*events)])[0]


def message_of(chunks: Iterable[StreamChunk], source: ModelSource = SOURCE) -> Message:
    """The assistant message of a response, as the runtime stores it."""
    return stored(chunks, source)


async def body_of(
    model: ResponsesModel | str = "gpt-5.5",
    *,
    on_degraded: OnDegraded = not_degraded,
    summary: str | None = None,
    published: bool = True,
    **fields: Any,
) -> dict[str, Any]:
    """The body as it goes over the wire, checked against the types that OpenAI publishes."""
    known = model if isinstance(model, ResponsesModel) else find_model(OPENAI_MODELS, model)
    options = ask(**{"model": known.id} | fields)
    check_options(options, known)
    images = await load_images(options.messages)
    items = input_items(options.messages, known, images, on_degraded)
    said = {**request_fields(options, known, summary=summary), "stream": True, "input": items}
    decoded = json.loads(encode_body(said))
    assert isinstance(decoded, dict)
    if published:
        check_published(
            decoded, "openai.types.responses.response_create_params", "ResponseCreateParamsStreaming"
        )
    return decoded


async def sent_items(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    """The input items of a body."""
    sent = (await body_of(messages=messages, **fields))["input"]
    assert isinstance(sent, list)
    return sent


def config(server: WireServer, **changes: Any) -> ResponsesConfig:
    """A configuration for a server, with a key."""
    return ResponsesConfig(**{"api_key": "sk-test-123", "base_url": server.base_url} | changes)


BENCH = Bench(
    lambda server, **changes: ResponsesAdapter(config(server, **changes)),
    event_stream(HELLO),
    Stop(raw="completed"),
)
