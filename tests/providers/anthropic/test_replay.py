"""What a response leaves behind for the next request, and what becomes of state that makes no sense."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from trio_llm.model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmFailure
from trio_llm.model.identifiers import CallId, MessageId
from trio_llm.model.messages import (
    Message,
    ModelSource,
    ReplayEnvelope,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.providers.anthropic import AnthropicAdapter
from trio_llm.providers.anthropic.replay import fault_of
from trio_llm.providers.replay_state import readable
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ..streams import not_degraded
from ..wire import ask
from .messages import (
    SOURCE,
    begin,
    body_of,
    call,
    chunks_of,
    config,
    delta,
    end,
    message_of,
    sent_messages,
    start,
    stop,
    text,
)

HI = create_user_message("hi")
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "a"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"encrypted_content": "x"}]}
CITATION = {"type": "web_search_result_location", "cited_text": "c", "encrypted_index": "i"}


def thinking(index: int, said: str, *signature: str) -> bytes:
    deltas = b"".join(delta(index, "signature_delta", signature=part) for part in signature)
    shown = delta(index, "thinking_delta", thinking=said)
    return begin(index, type="thinking", thinking="", signature="") + shown + deltas + stop(index)


def with_state(response: Any, blocks: Any, id: str = "c") -> Message:
    content: list[ContentBlock] = [
        ReasoningBlock("hm"),
        TextBlock("a"),
        ToolCallBlock(CallId(id), "t", "{}"),
    ]
    return create_assistant_message(content, ModelSource("anthropic", "m", ReplayEnvelope(response, blocks)))


GOOD = ({"type": "thinking", "signature": "s"}, {"type": "text"}, {"type": "tool_use"})


async def test_57_thinking_and_redacted_thinking_come_back_before_the_call() -> None:
    message = message_of(
        chunks_of(
            start(),
            thinking(0, "", "sigAAA", "BBB=="),
            begin(1, type="redacted_thinking", data="cmVk"),
            stop(1),
            call(2, ""),
            end("tool_use"),
        )
    )
    sent = await sent_messages(HI, message, create_tool_result_message(CallId("toolu_1"), "a b"))
    assert sent[1]["content"] == [
        {"type": "thinking", "thinking": "", "signature": "sigAAABBB=="},
        {"type": "redacted_thinking", "data": "cmVk"},
        {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}},
    ]
    assert sent[2]["content"][0]["tool_use_id"] == "toolu_1"


async def test_thinking_cut_before_its_signature_does_not_come_back() -> None:
    message = message_of(chunks_of(start(), thinking(0, "hm"), end("max_tokens")))
    assert message.content == (ReasoningBlock("hm"),)
    assert await sent_messages(HI, message) == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


async def test_server_tools_and_citations_come_back_in_their_places() -> None:
    cited = begin(2, type="text", text="", citations=[]) + delta(2, "citations_delta", citation=CITATION)
    message = message_of(
        chunks_of(
            start(),
            begin(0, **SEARCH),
            stop(0),
            begin(1, **FOUND),
            stop(1),
            cited,
            delta(2, "text_delta", text=" "),
            stop(2),
            end(),
        )
    )
    assert message.content == (TextBlock(" "),)
    sent = await sent_messages(HI, message, HI)
    assert sent[1]["content"] == [SEARCH, FOUND, {"type": "text", "text": " ", "citations": [CITATION]}]


async def test_a_paused_turn_is_sent_again_to_go_on() -> None:
    paused = message_of(
        chunks_of(start(), text(0, "Looking."), begin(1, **SEARCH), stop(1), end("pause_turn"))
    )
    sent = await sent_messages(HI, paused)
    assert sent[1] == {"role": "assistant", "content": [{"type": "text", "text": "Looking."}, SEARCH]}
    rest = message_of(chunks_of(start(), begin(0, **FOUND), stop(0), text(1, "Found."), end()))
    sent = await sent_messages(HI, paused, rest, HI)
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"][1:] == [SEARCH, FOUND, {"type": "text", "text": "Found."}]


async def test_a_pause_without_text_comes_back_without_it() -> None:
    paused = message_of(chunks_of(start(), begin(0, **SEARCH), stop(0), end("pause_turn")))
    assert (await sent_messages(HI, paused))[1]["content"] == [SEARCH]


async def test_a_container_is_named_while_code_in_it_waits_for_a_result() -> None:
    held = {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}
    caller = {"type": "code_execution_20250825", "tool_id": "s1"}
    waiting = message_of(chunks_of(start(), call(0, "{}", caller=caller), end("tool_use", container=held)))
    answered = (HI, waiting, create_tool_result_message(CallId("toolu_1"), "done"))
    body = await body_of(messages=answered)
    assert body["container"] == "container_1"
    assert body["messages"][1]["content"][0]["caller"] == caller
    own = await body_of(messages=answered, provider_options={"container": "container_2"})
    assert own["container"] == "container_2"
    done = message_of(chunks_of(start(), text(0, "Done."), end(container=held)))
    assert "container" not in await body_of(messages=(*answered, done, HI))
    direct = call(0, "{}", caller={"type": "direct"})
    plain = message_of(chunks_of(start(), direct, end("tool_use", container=held)))
    assert "container" not in await body_of(messages=(HI, plain))
    nameless = message_of(chunks_of(start(), call(0, "{}", caller=caller), end("tool_use", container={})))
    assert "container" not in await body_of(messages=(HI, nameless))


async def test_blocks_that_a_repair_takes_out_take_their_state_along() -> None:
    message = message_of(
        chunks_of(start(), thinking(0, "hm", "s"), call(1, "{}"), text(2, "a"), end("tool_use"))
    )
    broken = attrs.evolve(
        message,
        content=[message.content[0], ToolCallBlock(CallId("toolu_1"), "ls", '{"cut'), message.content[2]],
    )
    sent = await sent_messages(HI, broken)
    assert [part["type"] for part in sent[1]["content"]] == ["thinking", "text"]


def test_good_state_passes_as_the_same_message() -> None:
    message = with_state({"version": 1, "after": [SEARCH], "container": "c"}, GOOD)
    assert list(readable([HI, message], fault_of, not_degraded)) == [HI, message]
    assert next(iter(readable([message], fault_of, not_degraded))) is message


@pytest.mark.parametrize(
    ("response", "blocks"),
    [
        (None, GOOD),
        ("text", GOOD),
        ({}, GOOD),
        ({"version": 2}, GOOD),
        ({"version": 1, "after": "x"}, GOOD),
        ({"version": 1, "after": ["x"]}, GOOD),
        ({"version": 1, "container": 5}, GOOD),
        ({"version": 1}, None),
        ({"version": 1}, GOOD[:2]),
        ({"version": 1}, ("x", *GOOD[1:])),
        ({"version": 1}, (GOOD[1], GOOD[0], GOOD[2])),
        ({"version": 1}, ({"type": "thinking", "signature": 5}, *GOOD[1:])),
        ({"version": 1}, ({"type": "redacted_thinking", "data": None}, *GOOD[1:])),
        ({"version": 1}, ({"type": ["thinking"]}, *GOOD[1:])),
        ({"version": 1}, (GOOD[0], {"type": "text", "before": [5]}, GOOD[2])),
        ({"version": 1}, (GOOD[0], {"type": "text", "before": {"a": 1}}, GOOD[2])),
    ],
)
async def test_P07_malformed_state_degrades_that_one_message_and_is_reported(
    response: Any, blocks: Any
) -> None:
    message = with_state(response, blocks)
    told: list[tuple[MessageId, LlmFailure]] = []
    good = with_state({"version": 1}, GOOD, "d")
    sent = await sent_messages(
        HI, message, HI, good, on_degraded=lambda id, failure: told.append((id, failure))
    )
    assert [(id, failure.code) for id, failure in told] == [(message.id, "INVALID_REPLAY_STATE")]
    assert [part["type"] for part in sent[1]["content"]] == ["text", "tool_use"]
    assert [part["type"] for part in sent[3]["content"]] == ["thinking", "text", "tool_use"]


async def test_an_entry_cannot_say_what_the_content_says() -> None:
    content = [TextBlock("a")]
    entry: Any = {"type": "text", "text": "forged", "citations": [CITATION]}
    state = ReplayEnvelope({"version": 1}, [entry])
    message = create_assistant_message(content, attrs.evolve(SOURCE, replay_state=state))
    sent = await sent_messages(HI, message)
    assert sent[1]["content"] == [{"type": "text", "text": "a", "citations": [CITATION]}]


async def test_L22_through_the_runtime_a_signed_turn_comes_back() -> None:
    turn = start() + thinking(0, "hm", "sig") + call(1, '{"a": 1}') + end("tool_use")
    answers = [event_stream(turn), event_stream(start() + text(0, "Done.") + end())]
    async with WireServer(answers) as server, LlmRuntime() as runtime:
        runtime.register_adapter(["claude"], AnthropicAdapter(config(server)))
        asked = ask(provider="claude", model="claude-opus-5", messages=[HI])
        async with runtime.stream(asked) as stream:
            assert [chunk async for chunk in stream]
        assert stream.message is not None
        result = create_tool_result_message(CallId("toolu_1"), "done")
        more = attrs.evolve(asked, messages=[HI, stream.message, result])
        async with runtime.stream(more) as stream:
            assert [chunk async for chunk in stream]
    first, second = (request.json() for request in server.requests)
    assert first["max_tokens"] == second["max_tokens"] == 128_000
    assert second["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"a": 1}},
    ]
