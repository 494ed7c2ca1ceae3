"""What a response left in replay state goes back word for word, or is dropped and told of."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_llm.model.content import ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmFailure
from trio_llm.model.identifiers import CallId, MessageId
from trio_llm.model.messages import (
    ModelSource,
    ReplayEnvelope,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.protocol.codec import decode_message, encode
from trio_llm.providers.gemini import GeminiAdapter
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ..wire import ask
from .events import call, chunks_of, config, end, event, message_of, sent_contents, text, thought

HI = create_user_message("hi")
CODE = {"executableCode": {"language": "PYTHON", "code": "1"}}
RESULT = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}
PARTS = [
    thought("t", "s1"),
    CODE,
    RESULT,
    text("a"),
    text("b", "s2"),
    text("c"),
    text("", "s3"),
    call("f", {"x": 1}, "s4", id="id-1"),
    call("f", {"x": 2}, id="id-2"),
    {"toolCall": {"id": "t"}, "thoughtSignature": "s5"},
]
ANSWER = event(*PARTS) + end(text(""))
RESULTS = [create_tool_result_message(CallId(id), id) for id in ("id-1", "id-2")]


async def test_P07_every_part_comes_back() -> None:
    sent = await sent_contents(HI, message_of(chunks_of(ANSWER)), *RESULTS)
    assert sent[1] == {"role": "model", "parts": PARTS}
    assert [part["functionResponse"]["id"] for part in sent[2]["parts"]] == ["id-1", "id-2"]


async def test_P07_after_the_codec_too() -> None:
    message = decode_message(json.loads(encode(message_of(chunks_of(ANSWER)))))
    assert (await sent_contents(HI, message, *RESULTS))[1]["parts"] == PARTS


async def test_a_call_of_ones_own_without_a_signature_gets_none() -> None:
    message = message_of(chunks_of(end(call("f", {}))))
    result = create_tool_result_message(CallId("call-0"), "r")
    sent = await sent_contents(HI, message, result)
    assert sent[1]["parts"] == [call("f", {})]
    assert "id" not in sent[2]["parts"][0]["functionResponse"]


async def test_a_call_that_is_taken_out_takes_its_entry_along() -> None:
    message = message_of(chunks_of(event(call("f", {}, "s1"), text("x", "s2")), end()))
    broken = attrs.evolve(message, content=[ToolCallBlock(CallId("call-0"), "f", "{"), message.content[1]])
    assert (await sent_contents(HI, broken, HI))[1]["parts"] == [text("x", "s2")]


async def test_L22_through_the_runtime() -> None:
    async with (
        WireServer([event_stream(ANSWER), event_stream(end(text("ok")))]) as server,
        LlmRuntime() as runtime,
    ):
        runtime.register_adapter(["gemini"], GeminiAdapter(config(server)))
        options = ask(provider="gemini", model="gemini-3-flash-preview")
        async with runtime.stream(options) as stream:
            assert [chunk async for chunk in stream]
        assert stream.message is not None
        history = [*options.messages, stream.message, *RESULTS]
        async with runtime.stream(attrs.evolve(options, messages=history)) as stream:
            assert [chunk async for chunk in stream]
    assert server.requests[1].json()["contents"][1]["parts"] == PARTS


TEXT = (TextBlock("ab"),)


@pytest.mark.parametrize(
    ("content", "state"),
    [
        (TEXT, ReplayEnvelope(None, [{"type": "text"}])),
        (TEXT, ReplayEnvelope({"version": 2}, [{"type": "text"}])),
        (TEXT, ReplayEnvelope({"version": 1, "after": {}}, [{"type": "text"}])),
        (TEXT, ReplayEnvelope({"version": 1, "after": [1]}, [{"type": "text"}])),
        (TEXT, ReplayEnvelope({"version": 1})),
        (TEXT, ReplayEnvelope({"version": 1}, [])),
        (TEXT, ReplayEnvelope({"version": 1}, [None])),
        (TEXT, ReplayEnvelope({"version": 1}, [{"type": "thought"}])),
        (TEXT, ReplayEnvelope({"version": 1}, [{"type": "text", "before": ["x"]}])),
        (TEXT, ReplayEnvelope({"version": 1}, [{"type": "text", "signed": 1}])),
        (TEXT, ReplayEnvelope({"version": 1}, [{"type": "text", "signed": [[0, 1]]}])),
        (TEXT, ReplayEnvelope({"version": 1}, [{"type": "text", "signed": [[0, "1", "s"]]}])),
        (TEXT, ReplayEnvelope({"version": 1}, [{"type": "text", "signed": [[0, 1, None]]}])),
        (TEXT, ReplayEnvelope({"version": 1}, [{"type": "text", "signed": [[0, 3, "s"]]}])),
        (TEXT, ReplayEnvelope({"version": 1}, [{"type": "text", "signed": [[1, 0, "s"]]}])),
        (TEXT, ReplayEnvelope({"version": 1}, [{"type": "text", "signed": [[0, 2, "s"], [1, 2, "s"]]}])),
        (
            (ToolCallBlock(CallId("c"), "f", "{}"),),
            ReplayEnvelope({"version": 1}, [{"type": "call", "signature": 1}]),
        ),
        (
            (ToolCallBlock(CallId("c"), "f", "{}"),),
            ReplayEnvelope({"version": 1}, [{"type": "call", "id": 1}]),
        ),
        ((ReasoningBlock("a"), *TEXT), ReplayEnvelope({"version": 1}, [{"type": "text"}, {"type": "text"}])),
    ],
)
async def test_P07_state_that_makes_no_sense_degrades_its_one_message(
    content: Any, state: ReplayEnvelope
) -> None:
    told: list[tuple[MessageId, LlmFailure]] = []
    good = message_of(chunks_of(end(text("x", "s"))))
    bad = create_assistant_message(content, ModelSource("p", "m", state))
    sent = await sent_contents(
        HI, good, HI, bad, HI, on_degraded=lambda id, failure: told.append((id, failure))
    )
    assert [(id, failure.code) for id, failure in told] == [(bad.id, "INVALID_REPLAY_STATE")]
    assert sent[1]["parts"] == [text("x", "s")]
    shown = [part for content in sent[2:] for part in content["parts"] if part.get("text") == "ab"]
    assert shown == ([{"text": "ab"}] if TEXT[0] in content else [])


async def test_without_replay_state_thoughts_and_signatures_stay_behind() -> None:
    message = message_of(chunks_of(event(thought("hm", "s1")), end(text("a", "s2"))))
    foreign = attrs.evolve(message, source=ModelSource("other", "m"))
    assert (await sent_contents(HI, foreign))[1]["parts"] == [text("a")]


WIRE_PARTS = st.lists(
    st.one_of(
        st.builds(text, st.text(max_size=3), st.none() | st.sampled_from(["s1", "s2"])),
        st.builds(thought, st.text(min_size=1, max_size=3), st.none() | st.just("s3")),
        st.builds(call, st.just("f"), st.dictionaries(st.text(max_size=2), st.integers())),
        st.just(CODE),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=100)
@given(WIRE_PARTS)
def test_P07_any_parts_come_back_with_nothing_merged_into_a_signed_one(parts: list[dict[str, Any]]) -> None:
    message = message_of(chunks_of(event(*parts), end()))
    if not message.content:
        return
    sent = trio.run(sent_contents, HI, message, create_user_message("go on"))
    results = [part for part in parts if "functionCall" in part]
    assert [part for part in sent[1]["parts"] if "functionCall" in part] == results
    signed = [part for part in parts if part.get("thoughtSignature")]
    assert [part for part in sent[1]["parts"] if part.get("thoughtSignature")] == signed

    def spoken(said: list[dict[str, Any]], thoughts: bool) -> str:
        return "".join(part["text"] for part in said if "text" in part and ("thought" in part) is thoughts)

    for thoughts in (True, False):
        assert spoken(sent[1]["parts"], thoughts) == spoken(parts, thoughts)
