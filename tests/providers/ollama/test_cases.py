"""Public bug reports, replayed against Ollama's own API."""

from __future__ import annotations

import json

import pytest

from trio_llm.model.chunks import Error
from trio_llm.model.content import TextBlock
from trio_llm.model.policy import DEFAULT_RETRYABLE_CODES
from trio_llm.providers.ollama import OllamaAdapter
from trio_llm.testing.wire_server import WireServer

from ...shared_data import CASES, requires_cases
from .. import streams
from ..anthropic.test_cases import history_of
from ..test_cases_chat import usage_matches
from ..wire import run
from .lines import body_of, config, lines, sent_messages

pytestmark = requires_cases

HOW = pytest.mark.parametrize("by_byte", [False, True], ids=["whole", "byte-by-byte"])


def cut(reads: list[bytes], by_byte: bool) -> list[bytes]:
    body = b"".join(reads)
    return [body[i : i + 1] for i in range(len(body))] if by_byte else reads


@HOW
async def test_08_a_line_is_cut_anywhere(by_byte: bool) -> None:
    folder = CASES / "08-ndjson-line-cut-anywhere"
    case = streams.load(folder, "case.json")
    reads = cut(streams.case_reads(folder, case["input"]), by_byte)
    async with WireServer(lines(*reads)) as server, OllamaAdapter(config(server)) as adapter:
        chunks, stream = await run(adapter)
    [block] = streams.blocks_of(chunks)
    assert block == {"type": "text", "text": "día " + "x" * 5000 + " fin", "closed": True}
    assert stream.finish is not None
    assert stream.finish.kind == "stop"
    assert usage_matches(stream.usage, case["expect"]["usage"])


@HOW
async def test_38_an_error_as_a_line(by_byte: bool) -> None:
    folder = CASES / "38-error-object-in-a-data-frame"
    case = streams.load(folder, "case.json")["variants"][3]
    assert case["wire"] == "ollama"
    reads = cut(streams.case_reads(folder, case["input"]), by_byte)
    async with WireServer(lines(*reads)) as server, OllamaAdapter(config(server)) as adapter:
        _, stream = await run(adapter)
    assert isinstance(stream.finish, Error)
    failure = stream.finish.failure
    assert failure.code == case["expect"]["error"]["code"]
    assert failure.code in DEFAULT_RETRYABLE_CODES
    assert case["expect"]["message_contains"] in failure.message
    assert stream.partial == (TextBlock("Yes"),)


async def test_58_a_call_that_was_cut_leaves_nothing_behind() -> None:
    sent = await sent_messages(*history_of("58", 0))
    assert [message["role"] for message in sent] == ["user", "user"]


async def test_58_a_missing_result_is_an_error_result() -> None:
    sent = await sent_messages(*history_of("58", 1))
    results = [message for message in sent if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == ["c1", "c2"]
    assert results[1]["content"].startswith("Error: ")


async def test_61_ids_of_another_provider() -> None:
    sent = await sent_messages(*history_of("61"))
    [calls] = [message["tool_calls"] for message in sent if "tool_calls" in message]
    ids = [call["id"] for call in calls]
    assert len(set(ids)) == 3
    assert [message["tool_call_id"] for message in sent if message["role"] == "tool"] == ids


async def test_63_lone_surrogates() -> None:
    body = json.dumps(await body_of(messages=history_of("63")), ensure_ascii=False)
    body.encode()
    assert body.count("\ufffd") == 3
    assert "\U0001f363" in body
