"""Every recorded Messages stream gives what was recorded of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trio_llm.model.chunks import StreamChunk
from trio_llm.model.messages import create_tool_result_message, create_user_message
from trio_llm.providers.anthropic import AnthropicAdapter
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ...shared_data import RECORDINGS, requires_recordings
from .. import streams
from ..wire import run
from .messages import BENCH, config, message_of, sent_messages, translate

pytestmark = requires_recordings

FOLDERS = streams.recordings("anthropic-messages")
BY_NAME = [pytest.param(folder, id=folder.name) for folder in FOLDERS]
ERRORS = [
    pytest.param(folder, id=folder.name)
    for folder in sorted(RECORDINGS.joinpath("errors").glob("*anthropic*"))
    if folder.is_dir()
]


def check(chunks: list[StreamChunk], expected: dict[str, Any]) -> None:
    """Compare with an expectation, and with the grammar."""
    streams.check_grammar(chunks)
    streams.check_blocks(chunks, expected["blocks"])
    reason = streams.finish_of(chunks).reason
    assert reason.raw == expected["finish"]["raw"]
    if expected["finish"]["kind"] == "refusal":
        assert streams.code_of(chunks) == "REFUSAL"
    else:
        assert reason.kind == expected["finish"]["kind"]
    assert streams.usage_facts(streams.usage_of(chunks)) == expected.get("usage")


@pytest.mark.parametrize("folder", BY_NAME)
def test_recorded_stream_with_its_own_reads(folder: Path) -> None:
    expected = streams.load(folder, "expected.json")
    chunks, translator = translate(streams.recorded_reads(folder))
    check(chunks, expected)
    assert translator.failure is None
    assert translator.response_id == expected["responseId"]
    assert translator.served_model == expected["model"]


@pytest.mark.parametrize("folder", BY_NAME)
async def test_recorded_stream_over_the_wire(folder: Path) -> None:
    expected = streams.load(folder, "expected.json")
    reads = streams.recorded_reads(folder)
    async with (
        WireServer(event_stream(*reads, headers=(("request-id", "req_1"),))) as server,
        AnthropicAdapter(config(server)) as adapter,
    ):
        chunks, stream = await run(adapter)
    check(chunks, expected)
    settlement = stream.settlement
    assert settlement is not None
    assert (settlement.request_id, settlement.response_id) == ("req_1", expected["responseId"])


def wire_content(folder: Path) -> list[dict[str, Any]]:
    """The content of a response as an independent reader folds it: what has to come back."""
    content: dict[int, dict[str, Any]] = {}
    texts: dict[int, str] = {}
    for line in streams.body_bytes(folder).split(b"\n"):
        if not line.startswith(b"data:"):
            continue
        event: Any = json.loads(line[5:])
        match event:
            case {"type": "message_start", "message": {"content": list(blocks)}}:
                content |= dict(enumerate(blocks))
            case {"type": "content_block_start", "index": index, "content_block": block}:
                content[index] = block
            case {"type": "content_block_delta", "index": index, "delta": said}:
                [(name, value)] = [(name, value) for name, value in said.items() if name != "type"]
                if name == "partial_json":
                    texts[index] = texts.get(index, "") + value
                elif name == "citation":
                    content[index].setdefault("citations", []).append(value)
                elif isinstance(content[index].get(name), str):
                    content[index][name] += value
                else:
                    content[index][name] = value
            case _:
                pass
    for index, arguments in texts.items():
        if arguments:
            content[index]["input"] = json.loads(arguments)
    return [
        {name: value for name, value in block.items() if value is not None and value != []}
        for _, block in sorted(content.items())
    ]


COMES_BACK = [
    pytest.param(folder, id=folder.name)
    for folder in FOLDERS
    # A refused response is no message, and a cut call is not sent back.
    if streams.load(folder, "expected.json")["finish"]["kind"] not in ("refusal", "max-tokens")
]


@pytest.mark.parametrize("folder", COMES_BACK)
async def test_P07_a_recorded_response_comes_back_as_it_was(folder: Path) -> None:
    message = message_of(translate([streams.body_bytes(folder)])[0])
    results = [
        create_tool_result_message(block.id, "done")
        for block in message.content
        if block.type == "tool-call" and hasattr(block, "id")
    ]
    sent = await sent_messages(create_user_message("hi"), message, *results)
    assert sent[1] == {"role": "assistant", "content": wire_content(folder)}
    assert len(sent) == (3 if results else 2)


@pytest.mark.parametrize("folder", ERRORS)
async def test_D08_recorded_error(folder: Path) -> None:
    await BENCH.check_recorded_error(folder)
