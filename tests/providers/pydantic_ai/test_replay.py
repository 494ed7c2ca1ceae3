"""P07: what the library must have again travels in replay state, and nothing malformed gets through."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from trio_llm.model import codes
from trio_llm.model.chunks import StreamChunk
from trio_llm.model.content import ContentBlock, ReasoningBlock, TextBlock
from trio_llm.model.failures import LlmFailure
from trio_llm.model.identifiers import MessageId
from trio_llm.model.messages import (
    Message,
    ModelSource,
    ReplayEnvelope,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.protocol.assembler import BlockAssembler
from trio_llm.providers.pydantic_ai.library import load_library
from trio_llm.providers.pydantic_ai.replay import VERSION, restore_response
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ..wire import RecordingSink, ask, run
from .support import ANSWER, adapter_for, needs_library, sse

__all__ = ["needs_library"]

MESSAGES = load_library().messages


def _delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


THOUGHT = sse(
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 1},
        },
    },
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    _delta(0, type="thinking_delta", thinking="Let me look."),
    _delta(0, type="signature_delta", signature="sig-1"),
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "redacted_thinking", "data": "opaque"},
    },
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
    },
    _delta(2, type="input_json_delta", partial_json='{ "at": "x" }'),
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
    names=True,
    done=False,
)


def message_of(chunks: Sequence[StreamChunk]) -> Message:
    """The assistant message of an answer."""
    assembler = BlockAssembler()
    for part in chunks:
        assembler.push(part)
    return assembler.message(ModelSource("p", "m", assembler.replay_state))


async def exchange(model: str = "m", **changes: Any) -> tuple[Message, dict[str, Any]]:
    """A thoughtful answer, and the body of the next request, to ``model``."""
    async with (
        WireServer([event_stream(*THOUGHT)] * 2) as server,
        adapter_for(server, "anthropic") as adapter,
    ):
        chunks, _ = await run(adapter)
        message = attrs.evolve(message_of(chunks), **changes)
        answered = create_tool_result_message(message.content[-1].id, "found")  # type: ignore[attr-defined]  # a call
        await run(adapter, ask(model=model, messages=[create_user_message("hi"), message, answered]))
    body: dict[str, Any] = server.requests[1].json()
    return message, body


@pytest.mark.parametrize("model", ["m", "another"])
async def test_P07_signatures_come_back_to_any_model_of_the_adapter(model: str) -> None:
    message, body = await exchange(model)
    assert isinstance(message.source, ModelSource)
    state = message.source.replay_state
    assert state is not None
    assert state.blocks is not None
    assert len(state.blocks) == len(message.content) == 3
    assert "Let me look." not in json.dumps([state.response, state.blocks])
    assistant = body["messages"][1]["content"]
    thinking = {"type": "thinking", "thinking": "Let me look.", "signature": "sig-1"}
    assert assistant[0] == thinking
    assert assistant[1] == {"type": "redacted_thinking", "data": "opaque"}
    assert assistant[2]["input"] == {"at": "x"}


async def test_P07_without_state_the_content_passes() -> None:
    _, body = await exchange(source=ModelSource("p", "m"))
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]


async def test_P07_malformed_state_degrades_one_message_and_is_reported() -> None:
    state = ReplayEnvelope({"version": VERSION, "message": {"kind": "response"}, "after": []}, [{"part": {}}])
    bad = create_assistant_message("Hello", ModelSource("p", "m", state))
    async with WireServer([event_stream(*ANSWER)]) as server, adapter_for(server) as adapter:
        told: list[tuple[MessageId, LlmFailure]] = []

        class Sink(RecordingSink):
            def note_degraded(self, message: MessageId, failure: LlmFailure) -> None:
                told.append((message, failure))

        await adapter.produce(ask(messages=[create_user_message("hi"), bad]), Sink())
    ((message, failure),) = told
    assert message == bad.id
    assert failure.code == codes.INVALID_REPLAY_STATE
    assert server.requests[0].json()["messages"][1] == {"role": "assistant", "content": "Hello"}


TEXT: dict[str, Any] = {"part_kind": "text"}


def envelope(blocks: Any = ({"part": TEXT},), **response: Any) -> ReplayEnvelope:
    """An envelope for one text block, with what is wrong with it."""
    fields: dict[str, Any] = {"version": VERSION, "message": {"kind": "response"}, "after": []}
    return ReplayEnvelope(fields | response, blocks)


@pytest.mark.parametrize(
    "state",
    [
        ReplayEnvelope(None, [{"part": TEXT}]),
        ReplayEnvelope([], [{"part": TEXT}]),
        envelope(version=0),
        envelope(None),
        envelope(()),
        envelope(["text"]),
        envelope([{}]),
        envelope([{"part": {"part_kind": "thinking"}}]),
        envelope([{"part": {}}]),
        envelope([{"part": TEXT, "before": [{"part_kind": "nonsense"}]}]),
        envelope([{"part": TEXT, "before": 3}]),
        envelope([{"part": {**TEXT, "provider_details": 3}}]),
        envelope(message={"kind": "request"}),
        envelope(message=3),
        envelope(after={"x": 1}),
    ],
)
def test_P07_what_makes_no_sense_is_dropped(state: ReplayEnvelope) -> None:
    told: list[str] = []
    message = create_assistant_message("Hello", ModelSource("p", "m", state))
    restored = restore_response(MESSAGES, message, lambda id, failure: told.append(failure.code))
    assert restored is None
    assert told == [codes.INVALID_REPLAY_STATE]


def test_P07_what_makes_sense_is_restored() -> None:
    state = envelope(
        [
            {"part": {"part_kind": "thinking", "signature": "s", "provider_name": "x"}},
            {
                "part": {**TEXT, "id": "i", "provider_name": "x"},
                "before": [{"part_kind": "text", "content": "aside"}],
            },
            {"part": None},
        ],
        after=[{"part_kind": "text", "content": "end"}],
    )
    content: list[ContentBlock] = [ReasoningBlock("hm"), TextBlock("a"), TextBlock("b")]
    message = create_assistant_message(content, ModelSource("p", "m", state))
    restored = restore_response(MESSAGES, message, lambda *told: pytest.fail(str(told)))
    assert restored is not None
    assert [part.content for part in restored.parts] == ["hm", "aside", "a", "b", "end"]
    assert restored.parts[0].signature == "s"
    assert restored.parts[2].id == "i"
