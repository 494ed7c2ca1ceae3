"""Public bug reports, replayed against the Responses API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trio_llm.model.chunks import MaxTokens
from trio_llm.model.content import ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.identifiers import CallId
from trio_llm.model.messages import (
    Message,
    ModelSource,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.providers.openai_responses import ResponsesAdapter
from trio_llm.testing.wire_script import Response
from trio_llm.testing.wire_server import WireServer

from ...shared_data import CASES, requires_cases
from .. import streams
from ..streams import replay_of
from ..test_cases_chat import usage_matches
from ..wire import run
from .responses import body_of, config

pytestmark = requires_cases


def folder_of(number: str) -> Path:
    [folder] = CASES.glob(f"{number}-*")
    return folder


@pytest.mark.parametrize("by_byte", [False, True], ids=["whole", "byte-by-byte"])
async def test_33_incomplete_carries_reason_and_usage(by_byte: bool) -> None:
    case = streams.load(folder_of("33"), "case.json")
    reads = streams.case_reads(folder_of("33"), case["input"])
    if by_byte:
        reads = [bytes((byte,)) for byte in b"".join(reads)]
    response = Response(200, case["input"]["headers"], reads)
    async with WireServer(response) as server, ResponsesAdapter(config(server)) as adapter:
        chunks, stream = await run(adapter)
    [expected] = case["expect"]["blocks"]
    assert isinstance(stream.finish, MaxTokens)
    assert stream.message is not None
    assert stream.message.content == (ReasoningBlock(expected["text"]),)
    [entry] = replay_of(chunks).blocks
    assert {name: entry[name] for name in expected["replay"]} == expected["replay"]
    assert usage_matches(stream.usage, case["expect"]["usage"])


async def test_63_lone_surrogates() -> None:
    history: list[Message] = []
    for said in json.loads(streams.load(folder_of("63"), "case.json")["input"]["history_escaped"]):
        content: Any = said["content"]
        if said["role"] == "tool":
            history.append(create_tool_result_message(CallId(said["tool_call_id"]), content))
        elif said["role"] == "user":
            history.append(create_user_message([TextBlock(part["text"]) for part in content]))
        else:
            calls = [
                ToolCallBlock(CallId(call["id"]), call["name"], json.dumps(call["arguments"]))
                for call in content
            ]
            history.append(create_assistant_message(calls, ModelSource("openai", "gpt-5.5")))
    body = json.dumps(await body_of(messages=history), ensure_ascii=False)
    body.encode()
    assert body.count("\ufffd") + body.count("\\\\ufffd") == 3
    assert "\U0001f363" in body
