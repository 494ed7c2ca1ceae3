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
from trio_llm.providers.openai_responses import ResponsesAdapter
from trio_llm.providers.openai_responses.replay import fault_of
from trio_llm.providers.replay_state import readable
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ..streams import not_degraded
from ..wire import ask
from .responses import (
    added,
    body,
    call,
    chunks_of,
    config,
    created,
    cut,
    delta,
    done,
    end,
    message_of,
    sent_items,
    text,
    thinking,
)

HI = create_user_message("hi")
RESULT = create_tool_result_message(CallId("call_1"), "done")
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
CITATION = {"type": "url_citation", "url": "https://h", "title": "t", "start_index": 0, "end_index": 1}


def message(*events: Any) -> Message:
    return message_of(chunks_of(created(), *events, end()))


async def test_encrypted_reasoning_comes_back_in_its_parts() -> None:
    turn = message(thinking(0, "a", "b", encrypted_content="enc"), call(1, "{}"))
    sent = await sent_items(HI, turn, RESULT)
    assert sent[1:] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
            "encrypted_content": "enc",
        },
        {"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": "{}", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
    ]


async def test_reasoning_that_nobody_can_read_again_stays_behind_and_takes_the_ids_along() -> None:
    turn = message(thinking(0, "a"), text(1, "x"), call(2, "{}"))
    assert [sorted(item) for item in (await sent_items(HI, turn, RESULT))[1:3]] == [
        ["content", "role", "type"],
        ["arguments", "call_id", "name", "type"],
    ]


async def test_reasoning_in_plain_text_comes_back() -> None:
    part = {"type": "reasoning_text", "text": "hm"}
    events = [
        added(0, type="reasoning", id="rs_1", summary=[], content=[]),
        delta("reasoning_text", 0, "hm", content_index=0),
        done(0, type="reasoning", id="rs_1", summary=[], content=[part]),
    ]
    sent = await sent_items(HI, message(events, text(1, "x")))
    assert sent[1] == {"type": "reasoning", "id": "rs_1", "summary": [], "content": [part]}


async def test_a_model_that_does_not_reason_is_given_no_reasoning() -> None:
    turn = message(
        thinking(0, "a", encrypted_content="enc"), added(1, **SEARCH), done(1, **SEARCH), text(2, "x")
    )
    sent = await sent_items(HI, turn, model="gpt-4o")
    assert sent[1:] == [{"type": "message", "role": "assistant", "content": "x"}]
    assert [item["type"] for item in (await sent_items(HI, turn, model="gpt-5"))[1:]] == [
        *("reasoning", "web_search_call", "message")
    ]


@pytest.mark.parametrize("after", [(), (HI,)])
async def test_thinking_that_led_to_nothing_stays_behind(after: tuple[Message, ...]) -> None:
    turn = message_of(chunks_of(created(), thinking(0, "Plan", encrypted_content="enc"), cut()))
    assert turn.content == (ReasoningBlock("Plan"),)
    assert len(await sent_items(HI, turn, *after)) == 1 + len(after)


async def test_thinking_that_led_to_nothing_takes_nothing_else_along() -> None:
    turn = message_of(
        chunks_of(created(), thinking(0, "a", encrypted_content="e"), text(1, "x"), thinking(2), cut())
    )
    sent = await sent_items(HI, turn)
    assert [item["type"] for item in sent[1:]] == ["reasoning", "message"]
    assert sent[2]["id"] == "msg_1"


async def test_phases_citations_and_refusals_come_back_in_their_parts() -> None:
    content = [
        {"type": "output_text", "text": "ab", "annotations": [CITATION], "logprobs": [1]},
        {"type": "refusal", "refusal": "no"},
    ]
    events = [
        added(0, type="message", id="msg_1", phase="commentary", content=[]),
        delta("output_text", 0, "ab", content_index=0),
        delta("refusal", 0, "no", content_index=1),
        done(0, type="message", id="msg_1", phase="commentary", content=content),
    ]
    turn = message(events)
    assert turn.content == (TextBlock("abno"),)
    assert (await sent_items(HI, turn))[1] == {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "phase": "commentary",
        "content": [
            {"type": "output_text", "text": "ab", "annotations": [CITATION]},
            {"type": "refusal", "refusal": "no"},
        ],
    }


async def test_items_on_the_providers_side_come_back_in_their_places() -> None:
    after = SEARCH | {"id": "ws_2"}
    turn = message(added(0, **SEARCH), done(0, **SEARCH), text(1, "x"), added(2, **after), done(2, **after))
    sent = await sent_items(HI, turn, HI)
    assert [item.get("id") for item in sent] == [None, "ws_1", "msg_1", "ws_2", None]
    assert sent[1] == SEARCH


async def test_items_that_wait_for_an_answer_from_here_do_not_come_back() -> None:
    shell = {"type": "shell_call", "id": "sh_1", "call_id": "call_9", "action": {}}
    answer = {"type": "shell_call_output", "id": "so_1", "call_id": "call_9", "output": []}
    alone = message(added(0, **shell), done(0, **shell), text(1, "x"))
    assert [item["type"] for item in (await sent_items(alone))] == ["message"]
    answered = message(
        added(0, **shell), done(0, **shell), added(1, **answer), done(1, **answer), text(2, "x")
    )
    sent = await sent_items(answered, published=False)
    assert [item["type"] for item in sent] == ["shell_call", "shell_call_output", "message"]


async def test_a_block_that_only_carries_items_is_not_sent() -> None:
    assert await sent_items(HI, message(added(0, **SEARCH), done(0, **SEARCH))) == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        SEARCH,
    ]


async def test_custom_tools_get_their_own_kind_of_result() -> None:
    item = {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_1", "name": "sql"}
    turn = message(added(0, **item), done(0, **item, input="SELECT 1"))
    assert (await sent_items(HI, turn, RESULT))[1:] == [
        item | {"input": "SELECT 1"},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "done"},
    ]


async def test_namespaces_come_back() -> None:
    sent = await sent_items(HI, message(call(0, "{}", namespace="files")), RESULT)
    assert sent[1]["namespace"] == "files"


async def test_ids_of_items_that_the_api_refuses_are_left_out() -> None:
    turn = message(text(0, "x", id="a" * 65), call(1, "{}", id="a|b"))
    sent = await sent_items(HI, turn, RESULT)
    assert sent[1] == {"type": "message", "role": "assistant", "content": "x"}
    assert "id" not in sent[2]


async def test_a_statement_that_does_not_fit_leaves_the_text_whole() -> None:
    events = text(0, "abc")
    events[-1]["item"]["content"] = [{"type": "output_text", "text": "x"}]
    assert (await sent_items(message(events)))[0]["content"][0]["text"] == "abc"
    events[-1]["item"]["content"] = "abc"
    assert (await sent_items(message(events)))[0]["content"][0]["text"] == "abc"


def with_state(response: Any, blocks: Any, id: str = "c") -> Message:
    content: list[ContentBlock] = [ReasoningBlock("hm"), TextBlock("a"), ToolCallBlock(CallId(id), "t", "{}")]
    return create_assistant_message(
        content, ModelSource("openai", "gpt-5.5", ReplayEnvelope(response, blocks))
    )


GOOD = ({"type": "reasoning", "encrypted_content": "e"}, {"type": "message"}, {"type": "function_call"})


def test_good_state_passes_as_the_same_message() -> None:
    good = with_state({"version": 1, "after": [SEARCH]}, GOOD)
    assert next(iter(readable([good], fault_of, not_degraded))) is good
    assert list(readable([HI, good], fault_of, not_degraded)) == [HI, good]


@pytest.mark.parametrize(
    ("response", "blocks"),
    [
        (None, GOOD),
        ("text", GOOD),
        ({}, GOOD),
        ({"version": 2}, GOOD),
        ({"version": 1, "after": "x"}, GOOD),
        ({"version": 1, "after": ["x"]}, GOOD),
        ({"version": 1}, None),
        ({"version": 1}, GOOD[:2]),
        ({"version": 1}, ("x", *GOOD[1:])),
        ({"version": 1}, (GOOD[1], GOOD[0], GOOD[2])),
        ({"version": 1}, ({"type": ["reasoning"]}, *GOOD[1:])),
        ({"version": 1}, ({"type": "reasoning", "encrypted_content": 5}, *GOOD[1:])),
        ({"version": 1}, ({"type": "reasoning", "summary": 5}, *GOOD[1:])),
        ({"version": 1}, (GOOD[0], {"type": "message", "id": 5}, GOOD[2])),
        ({"version": 1}, (GOOD[0], {"type": "message", "before": [5]}, GOOD[2])),
        ({"version": 1}, (GOOD[0], {"type": "message", "parts": [{"type": "x"}]}, GOOD[2])),
        ({"version": 1}, (GOOD[0], {"type": "message", "parts": [{"type": "x", "length": 2}]}, GOOD[2])),
        ({"version": 1}, (GOOD[0], {"type": "message", "parts": [{"type": "x", "length": -1}]}, GOOD[2])),
    ],
)
async def test_P07_malformed_state_degrades_that_one_message_and_is_reported(
    response: Any, blocks: Any
) -> None:
    bad, good = with_state(response, blocks), with_state({"version": 1}, GOOD, "d")
    told: list[tuple[MessageId, LlmFailure]] = []
    sent = await sent_items(
        HI, bad, HI, good, on_degraded=lambda id, failure: told.append((id, failure)), published=False
    )
    assert [(id, failure.code) for id, failure in told] == [(bad.id, "INVALID_REPLAY_STATE")]
    types = [item["type"] for item in sent]
    assert types.count("reasoning") == 1
    assert types[1:3] == ["message", "function_call"]


async def test_blocks_that_a_repair_takes_out_take_their_state_along() -> None:
    turn = message(thinking(0, "a", encrypted_content="e"), text(1, "x"))
    kept = attrs.evolve(turn, content=[turn.content[0]])
    told: list[Any] = []
    assert await sent_items(HI, kept, on_degraded=lambda *said: told.append(said)) == await sent_items(HI)
    assert len(told) == 1


async def test_L22_through_the_runtime() -> None:
    first = body(created(), thinking(0, "hm", encrypted_content="enc"), call(1, "{}"), end())
    async with (
        WireServer([event_stream(first), event_stream(body(text(0, "x"), end()))]) as server,
        LlmRuntime() as runtime,
    ):
        runtime.register_adapter(["openai"], ResponsesAdapter(config(server)))
        options = ask(provider="openai", model="gpt-5.5", messages=[HI])
        answer = await runtime.generate(options)
        await runtime.generate(attrs.evolve(options, messages=[HI, answer.message, RESULT]))
    assert [item["type"] for item in server.requests[1].json()["input"]] == [
        *("message", "reasoning", "function_call", "function_call_output")
    ]


async def test_P07_degraded_messages_are_told_to_the_runtimes_hook() -> None:
    told: list[MessageId] = []
    bad = with_state({"version": 7}, GOOD)
    async with (
        WireServer(event_stream(body(text(0, "x"), end()))) as server,
        LlmRuntime(on_degraded=lambda id, failure: told.append(id)) as runtime,
    ):
        runtime.register_adapter(["openai"], ResponsesAdapter(config(server)))
        await runtime.generate(ask(provider="openai", model="gpt-5.5", messages=[HI, bad]))
    assert told == [bad.id]
