"""Every recorded Responses stream gives what was recorded of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trio_llm.model.chunks import StreamChunk
from trio_llm.model.content import ToolCallBlock
from trio_llm.model.messages import ModelSource, create_tool_result_message, create_user_message
from trio_llm.providers.openai_responses import ResponsesAdapter
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ...shared_data import RECORDINGS, requires_recordings
from .. import streams
from ..wire import run
from .responses import BENCH, config, message_of, sent_items, translate

pytestmark = requires_recordings

FOLDERS = streams.recordings("openai-responses")
BY_NAME = [pytest.param(folder, id=folder.name) for folder in FOLDERS]
ERRORS = [
    pytest.param(folder, id=folder.name)
    for folder in sorted(RECORDINGS.joinpath("errors").glob("*"))
    if folder.is_dir() and streams.load(folder, "meta.json").get("wire") == "openai-responses"
]

EMPTY_TEXT = {"type": "text", "text": ""}
DEVIATIONS: dict[str, list[dict[str, Any]]] = {
    # The provider delimits an item without any text: a block even when empty.
    "openai-image-generation": [EMPTY_TEXT],
    # Nothing but an item on the provider's side: an empty block carries it.
    "openai-apply-patch": [EMPTY_TEXT],
}
"""Blocks that the expectation does not list, behind those that it does."""


def check(folder: Path, chunks: list[StreamChunk]) -> None:
    """Compare with the expectation, and with the grammar."""
    expected = streams.load(folder, "expected.json")
    streams.check_grammar(chunks)
    streams.check_blocks(chunks, [*expected["blocks"], *DEVIATIONS.get(folder.name, [])])
    reason = streams.finish_of(chunks).reason
    assert (reason.kind, reason.raw) == (expected["finish"]["kind"], expected["finish"]["raw"])
    assert streams.usage_facts(streams.usage_of(chunks)) == expected.get("usage")


def test_every_stream_is_there() -> None:
    assert len(FOLDERS) == 34
    assert len(ERRORS) >= 3


@pytest.mark.parametrize("folder", BY_NAME)
def test_recorded_stream_with_its_own_reads(folder: Path) -> None:
    expected = streams.load(folder, "expected.json")
    chunks, translator = translate(streams.recorded_reads(folder))
    check(folder, chunks)
    assert translator.failure is None
    if folder.name != "copilot-item-id-rotation":  # it has another id in every event
        assert translator.response_id == expected["responseId"]
    assert translator.served_model == expected["model"]


@pytest.mark.parametrize("folder", BY_NAME)
def test_events_are_known_by_their_own_type(folder: Path) -> None:
    body = streams.body_bytes(folder)
    bare = b"".join(line for line in body.splitlines(keepends=True) if not line.startswith(b"event:"))
    assert bare != body
    assert translate([bare])[0] == translate([body])[0]


@pytest.mark.parametrize("folder", BY_NAME)
async def test_recorded_stream_over_the_wire(folder: Path) -> None:
    reads = streams.recorded_reads(folder)
    async with (
        WireServer(event_stream(*reads, headers=(("x-request-id", "req_1"),))) as server,
        ResponsesAdapter(config(server)) as adapter,
    ):
        chunks, stream = await run(adapter)
    check(folder, chunks)
    settlement = stream.settlement
    assert settlement is not None
    assert settlement.request_id == "req_1"
    assert settlement.response_id is not None


def wire_output(folder: Path) -> list[dict[str, Any]]:
    """The items of a response as its own events state them in the end."""
    items: dict[int, dict[str, Any]] = {}
    for line in streams.body_bytes(folder).split(b"\n"):
        if line.startswith(b"data:"):
            event = json.loads(line[5:])
            if event["type"] == "response.output_item.done":
                items[event["output_index"]] = event["item"]
    return [item for _, item in sorted(items.items())]


def comparable(item: dict[str, Any]) -> dict[str, Any]:
    """An item without what a request leaves out."""
    kept = {name: value for name, value in item.items() if value is not None and name != "status"}
    if item["type"] == "reasoning" and not kept.get("content"):
        kept.pop("content", None)
    if item["type"] == "message":
        kept["content"] = [
            {name: value for name, value in part.items() if name != "logprobs"} for part in item["content"]
        ]
    return kept


COMES_BACK = [
    param
    for param in BY_NAME
    if not any(
        word in str(param.id)
        for word in (
            "apply-patch",  # waits for an answer that nobody gives
            "local-shell",
            "code-interpreter",  # not encrypted, and so of no use to a provider that stored nothing
            "image-generation",
            "copilot",
            "incomplete",  # thinking that led to nothing
            "quota",
        )
    )
]


@pytest.mark.parametrize("folder", COMES_BACK)
async def test_P07_a_recorded_response_comes_back_as_it_was(folder: Path) -> None:
    model = streams.load(folder, "expected.json")["model"]
    message = message_of(translate([streams.body_bytes(folder)])[0], ModelSource("openai", model))
    results = [
        create_tool_result_message(block.id, "done")
        for block in message.content
        if isinstance(block, ToolCallBlock)
    ]
    sent = await sent_items(create_user_message("hi"), message, *results, model=model, published=False)
    assert [comparable(item) for item in sent[1 : len(sent) - len(results)]] == [
        comparable(item) for item in wire_output(folder)
    ]


MESSAGES = [param for param in BY_NAME if "quota" not in str(param.id)]  # a failed response is no message


@pytest.mark.parametrize("folder", MESSAGES)
async def test_every_recorded_response_sent_back_is_of_the_published_types(folder: Path) -> None:
    message = message_of(translate([streams.body_bytes(folder)])[0])
    results = [
        create_tool_result_message(block.id, "done")
        for block in message.content
        if isinstance(block, ToolCallBlock)
    ]
    hi = create_user_message("hi")
    for model in ("gpt-5.5", "gpt-4o"):
        sent = await sent_items(hi, message, *results, hi, model=model)
        assert model == "gpt-5.5" or not [item for item in sent if item["type"] == "reasoning"]
        assert sent[-1] == sent[0]


@pytest.mark.parametrize("folder", ERRORS)
async def test_D08_recorded_error(folder: Path) -> None:
    await BENCH.check_recorded_error(folder)
