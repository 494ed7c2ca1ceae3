"""Public bug reports, replayed against the Gemini API."""

from __future__ import annotations

import json

import pytest

from trio_llm.providers.gemini import GeminiAdapter
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ...shared_data import CASES, requires_cases
from .. import streams
from ..anthropic.test_cases import HI, history_of
from ..streams import replay_of
from ..test_cases_chat import usage_matches
from ..wire import run
from .events import body_of, config, message_of, sent_contents

pytestmark = requires_cases


@pytest.mark.parametrize("by_byte", [False, True], ids=["whole", "byte-by-byte"])
async def test_21_parallel_calls_of_one_name_without_ids(by_byte: bool) -> None:
    folder = CASES / "21-gemini-parallel-calls-same-name-no-id"
    case = streams.load(folder, "case.json")
    reads = streams.case_reads(folder, case["input"])
    if by_byte:
        reads = [reads[0][i : i + 1] for i in range(len(reads[0]))]
    async with WireServer(event_stream(*reads)) as server, GeminiAdapter(config(server)) as adapter:
        chunks, stream = await run(adapter)
    expect = case["expect"]
    blocks = streams.blocks_of(chunks)
    assert [(block["name"], json.loads(block["arguments"])) for block in blocks] == [
        (block["name"], block["arguments"]) for block in expect["blocks"]
    ]
    assert all(block["closed"] for block in blocks)
    ids = [block["id"] for block in blocks]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    signatures = [entry.get("signature") for entry in replay_of(chunks).blocks]
    assert signatures == [block.get("signature") for block in expect["blocks"]]
    assert stream.finish is not None
    assert (stream.finish.kind, stream.finish.raw) == ("tool-calls", expect["raw_finish"])
    assert usage_matches(stream.usage, expect["usage"])
    sent = await sent_contents(HI, message_of(chunks))
    assert [part.get("thoughtSignature") for part in sent[1]["parts"]] == signatures
    assert all("id" not in part["functionCall"] for part in sent[1]["parts"])


async def test_58_a_call_that_was_cut_leaves_nothing_behind() -> None:
    sent = await sent_contents(*history_of("58", 0))
    assert [(content["role"], len(content["parts"])) for content in sent] == [("user", 2)]


async def test_58_a_missing_result_is_an_error_result() -> None:
    sent = await sent_contents(*history_of("58", 1))
    one, two, said = sent[2]["parts"]
    assert "output" in one["functionResponse"]["response"]
    assert "error" in two["functionResponse"]["response"]
    assert said == {"text": "never mind b"}


async def test_61_ids_of_another_provider_are_not_sent() -> None:
    history = history_of("61")
    sent = await sent_contents(*history)
    assert all("id" not in part["functionCall"] for part in sent[1]["parts"])
    assert all("id" not in part["functionResponse"] for part in sent[2]["parts"])
    assert len(sent[2]["parts"]) == len(sent[1]["parts"])
    assert await sent_contents(*history) == sent


async def test_63_lone_surrogates() -> None:
    body = json.dumps(await body_of(messages=history_of("63")), ensure_ascii=False)
    body.encode()
    assert body.count("\ufffd") == 3
    assert "\U0001f363" in body
