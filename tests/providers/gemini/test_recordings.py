"""Every recorded stream gives what was recorded of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trio_llm.model.chunks import StreamChunk
from trio_llm.model.content import ToolCallBlock
from trio_llm.model.messages import create_tool_result_message, create_user_message
from trio_llm.providers.gemini import GeminiAdapter
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ...shared_data import RECORDINGS, requires_recordings
from .. import streams
from ..wire import run
from .events import BENCH, config, message_of, sent_contents, translate

pytestmark = requires_recordings

FOLDERS = streams.recordings("gemini")
BY_NAME = [pytest.param(folder, id=folder.name) for folder in FOLDERS]
ERRORS = [
    "gemini-400-api-key",
    "gemini-429-input-tokens-per-minute",
    "google-403-permission",
    "google-404-model",
    "vertex-400-context",
]


def expected_blocks(expected: dict[str, Any]) -> list[dict[str, Any]]:
    """Provider-side items are dropped from the chunks; a call without an id gets one."""
    blocks: list[dict[str, Any]] = []
    for block in expected["blocks"]:
        if block["type"] == "other":
            continue
        said = {key: block[key] for key in ("type", "text", "id", "name", "arguments") if key in block}
        if said["type"] == "tool-call":
            said["id"] = said["id"] or f"call-{len(blocks)}"
            said["arguments"] = json.loads(said["arguments"])
        blocks.append(said)
    return blocks


def expected_usage(expected: dict[str, Any]) -> dict[str, int]:
    """What the provider's own tools brought in is input too."""
    usage: dict[str, int] = dict(expected["usage"])
    usage["inputTokens"] += usage.pop("toolUseInputTokens", 0)
    return usage


def check(chunks: list[StreamChunk], expected: dict[str, Any]) -> None:
    """Compare with an expectation, and with the grammar."""
    streams.check_grammar(chunks)
    blocks = streams.blocks_of(chunks)
    for block in blocks:
        assert block.pop("closed")
        if "arguments" in block:
            block["arguments"] = json.loads(block["arguments"])
    assert blocks == expected_blocks(expected)
    reason = streams.finish_of(chunks).reason
    assert (reason.kind, reason.raw) == (expected["finish"]["kind"], expected["finish"]["raw"])
    assert streams.usage_facts(streams.usage_of(chunks)) == expected_usage(expected)


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
    async with WireServer(event_stream(*reads)) as server, GeminiAdapter(config(server)) as adapter:
        chunks, stream = await run(adapter)
    check(chunks, expected)
    settlement = stream.settlement
    assert settlement is not None
    assert (settlement.served_model, settlement.response_id) == (expected["model"], expected["responseId"])
    wanted = {key: value for key, value in expected["usageRaw"].items() if key in settlement.facts}
    assert wanted.items() <= settlement.facts.items()
    assert ("serviceTier" in wanted) == ("serviceTier" in expected["usageRaw"])


def wire_parts(folder: Path, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a response as an independent reader folds them: what has to come back."""
    parts: list[dict[str, Any]] = []
    calls = [block for block in blocks if block["type"] == "tool-call"]
    for line in streams.body_bytes(folder).splitlines():
        if not line.startswith(b"data:"):
            continue
        content = json.loads(line[5:])["candidates"][0].get("content", {})
        for part in content.get("parts", ()):
            call = part.get("functionCall")
            last = parts[-1] if parts else {}
            if call is not None and "name" in call:  # what its pieces add up to was recorded
                whole = {"name": call["name"], "args": calls.pop(0)["input"]}
                given = {"id": call["id"]} if "id" in call else {}
                parts.append(part | {"functionCall": given | whole})
            elif call is not None:
                continue
            elif "text" not in part or "thoughtSignature" in part:
                parts.append(part)
            elif part["text"]:
                plain = "text" in last and "thoughtSignature" not in last
                if plain and last.get("thought") == part.get("thought"):
                    parts[-1] = last | {"text": last["text"] + part["text"]}
                else:
                    parts.append(part)
    return parts


COMES_BACK = [
    pytest.param(folder, id=folder.name)
    for folder in FOLDERS
    if streams.load(folder, "expected.json")["blocks"]  # an empty message is not sent back
]


@pytest.mark.parametrize("folder", COMES_BACK)
async def test_P07_a_recorded_response_comes_back_as_it_was(folder: Path) -> None:
    expected = streams.load(folder, "expected.json")
    message = message_of(translate([streams.body_bytes(folder)])[0])
    results = [
        create_tool_result_message(block.id, "done")
        for block in message.content
        if isinstance(block, ToolCallBlock)
    ]
    sent = await sent_contents(create_user_message("hi"), message, *results, create_user_message("so?"))
    assert sent[1] == {"role": "model", "parts": wire_parts(folder, expected["blocks"])}
    answers = [part["functionResponse"] for part in sent[2]["parts"] if "functionResponse" in part]
    asked = [part["functionCall"] for part in sent[1]["parts"] if "functionCall" in part]
    assert [(answer.get("id"), answer["name"]) for answer in answers] == [
        (call.get("id"), call["name"]) for call in asked
    ]


@pytest.mark.parametrize("folder", [RECORDINGS / "errors" / name for name in ERRORS])
async def test_D08_recorded_error(folder: Path) -> None:
    await BENCH.check_recorded_error(folder)
