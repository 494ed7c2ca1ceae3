"""Public bug reports, replayed against the Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from trio_llm.model.chunks import Error
from trio_llm.model.content import ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.identifiers import CallId
from trio_llm.model.messages import (
    Message,
    ModelSource,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.policy import DEFAULT_RETRYABLE_CODES
from trio_llm.providers.anthropic import AnthropicAdapter
from trio_llm.testing.wire_script import Cut, Response, Step
from trio_llm.testing.wire_server import WireServer

from ...shared_data import CASES, requires_cases
from .. import streams
from ..streams import replay_of
from ..test_cases_chat import usage_matches
from ..wire import run
from .messages import body_of, config, message_of, sent_messages

pytestmark = requires_cases

HI = create_user_message("hi")


@attrs.frozen
class Case:
    """One variant of a case for this wire."""

    folder: Path
    name: str
    input: dict[str, Any]
    expect: dict[str, Any]


def all_cases() -> Iterator[Case]:
    for folder in sorted(path.parent for path in CASES.glob("*/case.json")):
        case = streams.load(folder, "case.json")
        for variant in case.get("variants", [case]):
            if variant.get("wire", case["wire"]) == "anthropic-messages":
                name = "-".join(filter(None, (case["id"], variant.get("name"))))
                yield Case(folder, name, variant["input"], variant["expect"])


STREAMS = [pytest.param(case, id=case.name) for case in all_cases() if case.input["type"] == "http_stream"]


def blocks_of(chunks: list[Any]) -> list[dict[str, Any]]:
    """The blocks in the cases' spelling."""
    state = replay_of(chunks) if chunks else None
    said: list[dict[str, Any]] = []
    for place, block in enumerate(streams.blocks_of(chunks)):
        entry = {} if state is None else state.blocks[place]
        match block["type"]:
            case "text":
                said.append({"type": "text", "text": block["text"]})
            case "tool-call":
                call = {"type": "tool_call", "id": block["id"], "name": block["name"]}
                said.append(call | {"arguments": json.loads(block["arguments"] or "{}"), "complete": True})
            case _ if "data" in entry:
                said.append({"type": "thinking_redacted", "data": entry["data"]})
            case _:
                signed = {"signature": entry["signature"]} if "signature" in entry else {}
                said.append({"type": "thinking", "text": block["text"]} | signed)
    return said


@pytest.mark.parametrize("by_byte", [False, True], ids=["whole", "byte-by-byte"])
@pytest.mark.parametrize("case", STREAMS)
async def test_stream_over_the_wire(case: Case, by_byte: bool) -> None:
    expect = case.expect
    reads = streams.case_reads(case.folder, case.input)
    if by_byte:
        body = b"".join(reads)
        reads = [body[i : i + 1] for i in range(len(body))]
    steps: list[Step] = [*reads, Cut()] if case.input["end"] == "truncate" else [*reads]
    response = Response(case.input["status"], case.input["headers"], steps)
    async with WireServer(response) as server, AnthropicAdapter(config(server)) as adapter:
        chunks, stream = await run(adapter)
    assert len(server.requests) == 1
    if expect["outcome"] == "failure":
        assert isinstance(stream.finish, Error)
        failure = stream.finish.failure
        assert failure.code == {"NETWORK": "TRANSPORT"}.get(expect["error"]["code"], expect["error"]["code"])
        assert (failure.code in DEFAULT_RETRYABLE_CODES) is expect["error"]["retryable"]
        assert expect.get("request_id") in (None, failure.request_id)
        assert blocks_of(chunks) == expect["partial_blocks"]
        message = create_assistant_message(stream.partial, ModelSource("p", "m"))
    else:
        assert stream.finish is not None
        assert stream.finish.kind == {"stop": "stop", "tool_calls": "tool-calls"}[expect["finish"]]
        assert blocks_of(chunks) == expect["blocks"]
        assert usage_matches(stream.usage, expect["usage"])
        message = message_of(chunks)
    await check_next_request(case, message)


async def check_next_request(case: Case, message: Message) -> None:
    """What the history gives when it goes on."""
    then = case.input.get("then")
    if then is None:
        return
    more = [
        create_tool_result_message(CallId(said["tool_call_id"]), said["content"])
        if said["role"] == "tool"
        else create_user_message(said["content"])
        for said in then["append"]
    ]
    sent = await sent_messages(HI, message, *more)
    wanted = case.expect.get("request", {})
    if wanted:
        assert sent[-2]["content"] == wanted["messages[-2].content"]
        assert sent[-1]["content"][0]["tool_use_id"] == wanted["messages[-1].content[0].tool_use_id"]
    for message_sent in sent:
        assert message_sent["content"]
        assert all("signature" in part for part in message_sent["content"] if part["type"] == "thinking")


def history_of(number: str, variant: int | None = None) -> list[Message]:
    """A history that a case gives for every wire."""
    [folder] = CASES.glob(f"{number}-*")
    case = streams.load(folder, "case.json")
    spec = case["input"] if variant is None else case["variants"][variant]["input"]
    return list(map(as_message, spec.get("history") or json.loads(spec["history_escaped"])))


def as_message(said: dict[str, Any]) -> Message:
    if said["role"] == "tool":
        return create_tool_result_message(CallId(said["tool_call_id"]), said["content"])
    content: list[Any] = []
    for block in said["content"]:
        match block["type"]:
            case "text":
                content.append(TextBlock(block["text"]))
            case "thinking":
                content.append(ReasoningBlock(block["text"]))
            case _:
                raw = block.get("raw") or json.dumps(block["arguments"])
                content.append(ToolCallBlock(CallId(block["id"]), block["name"], raw))
    if said["role"] == "user":
        return create_user_message(content)
    return create_assistant_message(content, ModelSource("p", "m"))


async def test_58_a_call_that_was_cut_leaves_nothing_behind() -> None:
    assert await sent_messages(*history_of("58", 0)) == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "run this"}, {"type": "text", "text": "continue"}],
        }
    ]


async def test_58_a_missing_result_is_an_error_result() -> None:
    sent = await sent_messages(*history_of("58", 1))
    one, two, said = sent[2]["content"]
    assert (one["tool_use_id"], one.get("is_error")) == ("c1", None)
    assert (two["tool_use_id"], two["is_error"]) == ("c2", True)
    assert said == {"type": "text", "text": "never mind b"}


async def test_61_ids_of_another_provider() -> None:
    history = history_of("61")
    sent = await sent_messages(*history)
    ids = [part["id"] for part in sent[1]["content"]]
    assert len(set(ids)) == 3
    assert all(id and len(id) <= 64 and id.replace("_", "").replace("-", "").isalnum() for id in ids)
    assert [part["tool_use_id"] for part in sent[2]["content"]] == ids
    assert await sent_messages(*history) == sent


async def test_63_lone_surrogates() -> None:
    body = json.dumps(await body_of(messages=history_of("63")), ensure_ascii=False)
    body.encode()
    assert body.count("\ufffd") == 3
    assert "\U0001f363" in body
