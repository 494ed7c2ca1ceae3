"""What the chat wire keeps of a response for its server, and how it goes back."""

from __future__ import annotations

import itertools
import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.model.chunks import MaxTokens, StreamChunk
from trio_llm.model.codes import INVALID_REPLAY_STATE
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
from trio_llm.protocol.assembler import BlockAssembler
from trio_llm.protocol.json_text import encode_body
from trio_llm.providers.deepseek import DEEPSEEK
from trio_llm.providers.openai_chat import ChatAdapter, ChatProfile
from trio_llm.providers.openai_chat.profiles import GOOGLE, MISTRAL, MOONSHOT, OPENROUTER
from trio_llm.providers.openai_chat.replay import Kept
from trio_llm.providers.openai_chat.serialize import chat_body
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ..shared_data import RECORDINGS, requires_recordings
from . import streams
from .wire import PLAIN, ask, chat_config

CLAUDE = "anthropic-claude-v1"
SIGNED = {"google": {"thought_signature": "SIG"}}
UNCHECKED = {"google": {"thought_signature": "skip_thought_signature_validator"}}


def thought(**fields: Any) -> dict[str, Any]:
    return {"type": "reasoning.text", "format": CLAUDE, "index": 0, **fields}


def sealed(**fields: Any) -> dict[str, Any]:
    return {"type": "reasoning.encrypted", "format": "google-gemini-v1", "index": 0, **fields}


def details(*pieces: dict[str, Any]) -> dict[str, Any]:
    return {"reasoning_details": list(pieces)}


def call(id: str, arguments: str = "{}", index: int = 0, **fields: Any) -> dict[str, Any]:
    function = {"name": "look", "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": id, "function": function, **fields}]}


def said(*deltas: dict[str, Any], finish: str = "stop") -> bytes:
    events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"


def answered(profile: ChatProfile, body: bytes) -> Message:
    """The message that a runtime makes of a response."""
    assembler = BlockAssembler()
    chunks: list[StreamChunk] = streams.translate([body], kept=Kept(profile))[0]
    assembler.push_all(chunks)
    return assembler.message(ModelSource("p", "m", assembler.replay_state))


def bodies(profile: ChatProfile, *messages: Message) -> list[dict[str, Any]]:
    """The messages of a request that goes on with these."""
    body = chat_body(ask(messages=messages), profile, {}, streams.not_degraded)
    listed: list[dict[str, Any]] = json.loads(encode_body(body))["messages"]
    return listed


def sent_back(profile: ChatProfile, *deltas: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    """The assistant's turn of a request that follows this response."""
    return bodies(profile, answered(profile, said(*deltas, finish=finish)))[0]


BARE: Any = {"index": None}
ODD = {"type": "reasoning.new", "x": [1], "id": {"odd": 1}}
TOGETHER: list[tuple[list[Any], list[Any]]] = [
    (
        [thought(text="a"), thought(text="b"), thought(signature="S")],
        [thought(text="ab", signature="S")],
    ),
    ([thought(text="", signature=""), thought(text="a")], [thought(text="a", signature="")]),
    ([thought(text="a", signature=""), thought(signature="S")], [thought(text="a", signature="S")]),
    ([thought(text="a"), thought(text="b", index=1)],) * 2,
    # Types share an index, and what comes between two pieces does not part them.
    ([thought(text="a"), sealed(data="D"), thought(text="b")], [thought(text="ab"), sealed(data="D")]),
    # Encrypted ones are whole, whatever their index.
    ([sealed(data="D"), sealed(data="E")],) * 2,
    # An id may come with the first piece alone; two ids are two things.
    ([thought(text="a", id="1"), thought(text="b")], [thought(text="ab", id="1")]),
    ([thought(text="a", id="1"), thought(text="b", id="2")],) * 2,
    # Without an index, neighbours belong together.
    (
        [thought(text="a", **BARE), thought(text="b", **BARE), sealed(data="D"), thought(text="c", **BARE)],
        [thought(text="ab", **BARE), sealed(data="D"), thought(text="c", **BARE)],
    ),
    (
        [{"type": "reasoning.summary", "summary": part} for part in "ab"],
        [{"type": "reasoning.summary", "summary": "ab"}],
    ),
    # What is unknown goes back all the same; what is no object is left out.
    ([ODD, "no object"], [ODD]),
]


class TestDetails:
    @pytest.mark.parametrize(("pieces", "whole"), TOGETHER)
    def test_pieces_come_together(self, pieces: list[Any], whole: list[Any]) -> None:
        turn = sent_back(OPENROUTER, *(details(piece) for piece in pieces), {"content": "done"})
        assert turn == {"role": "assistant", "content": "done", "reasoning_details": whole}

    @given(st.lists(st.integers(1, 9)))
    def test_any_split_gives_the_same(self, cuts: list[int]) -> None:
        text, places = "The user wants \U0001f44d.", [0, *itertools.accumulate(cuts)]
        pieces = [
            thought(text=text[a:b]) for a, b in itertools.pairwise([*places, len(text)]) if a < len(text)
        ]
        turn = sent_back(OPENROUTER, *map(details, pieces), details(thought(signature="S")), {"content": "a"})
        assert turn["reasoning_details"] == [thought(text=text, signature="S")]

    def test_a_detail_follows_its_call(self) -> None:
        deltas = (call("c"), details(sealed(data="D", id="c")))
        answer = answered(OPENROUTER, said(*deltas, finish="tool_calls"))
        assert bodies(OPENROUTER, answer)[0]["reasoning_details"] == [sealed(data="D", id="c")]
        before = create_assistant_message([ToolCallBlock(CallId("c"), "look", "{}")], ModelSource("q", "m"))
        turns = bodies(OPENROUTER, before, answer)
        renamed = turns[2]["tool_calls"][0]["id"]
        assert renamed != "c"
        assert turns[2]["reasoning_details"] == [sealed(data="D", id=renamed)]

    def test_what_the_limit_cut_stays_away(self) -> None:
        deltas = (
            details(thought(text="whole", signature="S"), thought(text="cut", index=1)),
            call("a", index=0),
            call("b", '{"pa', index=1),
            details(sealed(data="A", id="a"), sealed(data="B", id="b")),
        )
        answer = answered(OPENROUTER, said(*deltas, finish="length"))
        assert [block.id for block in answer.content if isinstance(block, ToolCallBlock)] == ["a"]
        turn = bodies(OPENROUTER, answer)[0]
        assert turn["reasoning_details"] == [
            thought(text="whole", signature="S"),
            sealed(data="A", id="a"),
        ]

    @requires_recordings
    @pytest.mark.parametrize(
        ("name", "wanted"),
        [
            ("openrouter-sonnet45-reasoning", [("reasoning.text", "signature")]),
            ("openrouter-haiku-reasoning-details-tool", [("reasoning.text", "signature")]),
            ("openrouter-o3-encrypted-reasoning", [("reasoning.encrypted", "data")]),
            ("openrouter-gemini31-multitool", [("reasoning.encrypted", "data")]),
            ("openrouter-kimi25-multitool", [("reasoning.text", "text")]),
            ("vercelgw-sonnet4-thinking", [("reasoning.text", "signature")]),
            ("vercelgw-gemini3-thinking", [("reasoning.text", "text"), ("reasoning.encrypted", "data")]),
        ],
    )
    def test_recorded(self, name: str, wanted: list[tuple[str, str]]) -> None:
        folder = RECORDINGS / "streams" / "openai-chat" / name
        answer = answered(OPENROUTER, (folder / "stream.sse").read_bytes())
        turn = bodies(OPENROUTER, answer)[0]
        assert [detail["type"] for detail in turn["reasoning_details"]] == [type for type, _ in wanted]
        assert all(
            detail[field] for detail, (_, field) in zip(turn["reasoning_details"], wanted, strict=True)
        )
        told = "".join(detail.get("text", "") for detail in turn["reasoning_details"])
        assert told == "".join(block.text for block in answer.content if isinstance(block, ReasoningBlock))
        assert "reasoning" not in turn


class TestGoogle:
    def test_signatures_stay_with_their_calls(self) -> None:
        turn = sent_back(GOOGLE, call("a", extra_content=SIGNED), call("b", index=1), finish="tool_calls")
        assert [each.get("extra_content") for each in turn["tool_calls"]] == [SIGNED, None]

    def test_a_signature_may_come_after_its_call(self) -> None:
        late = {"tool_calls": [{"index": 0, "id": "a", "extra_content": SIGNED}]}
        turn = sent_back(GOOGLE, call("a"), late, finish="tool_calls")
        assert turn["tool_calls"][0]["extra_content"] == SIGNED

    def test_the_messages_own_signature(self) -> None:
        turn = sent_back(GOOGLE, {"content": "done"}, {"content": "", "extra_content": SIGNED})
        assert turn == {"role": "assistant", "content": "done", "extra_content": SIGNED}

    def test_thoughts_are_content_in_a_tag(self) -> None:
        marked = {"google": {"thought": True}}
        body = said(
            {"content": "<thought>hm", "extra_content": marked},
            {"content": " <thought>", "extra_content": marked},
            {"content": "</thought>yes"},
            {"content": "</thought>"},
        )
        assert answered(GOOGLE, body).content == (ReasoningBlock("hm <thought>"), TextBlock("yes</thought>"))
        alone = said(
            {"content": "<thought>", "extra_content": marked}, {"content": "</thought>"}, {"content": "a"}
        )
        assert answered(GOOGLE, alone).content == (TextBlock("a"),)

    def test_a_call_of_another_model_gets_past_the_check(self) -> None:
        calls = [ToolCallBlock(CallId(id), "look", "{}") for id in "ab"]
        turn = bodies(GOOGLE, create_assistant_message(calls, ModelSource("q", "m")))[0]
        assert [each.get("extra_content") for each in turn["tool_calls"]] == [UNCHECKED, None]


THOUGHT: Any = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


class TestMistral:
    def test_thinking_goes_back_as_the_part_it_was(self) -> None:
        closing = {"type": "thinking", "thinking": [], "closed": True, "signature": "S"}
        deltas = ({"content": [THOUGHT]}, {"content": [closing, {"type": "text", "text": "yes"}]})
        turn = sent_back(MISTRAL, *deltas, {"content": "!"})
        assert turn["content"] == [
            THOUGHT | {"closed": True, "signature": "S"},
            {"type": "text", "text": "yes!"},
        ]

    def test_no_thinking_no_parts(self) -> None:
        assert sent_back(MISTRAL, {"content": "a"}) == {"role": "assistant", "content": "a"}
        foreign = create_assistant_message([ReasoningBlock("hm"), TextBlock("a")], ModelSource("q", "m"))
        assert bodies(MISTRAL, foreign) == [{"role": "assistant", "content": "a"}]


EVERYTHING = (
    details(thought(text="a", signature="S")),
    {"content": [THOUGHT]},
    {"content": "done", "extra_content": SIGNED},
    call("c", extra_content=SIGNED),
)


@pytest.mark.parametrize("profile", [PLAIN, DEEPSEEK, MOONSHOT], ids=lambda profile: profile.id)
def test_nothing_is_kept_for_a_server_that_wants_nothing(profile: ChatProfile) -> None:
    answer = answered(profile, said(*EVERYTHING, finish="tool_calls"))
    assert answer.source == ModelSource("p", "m")


@pytest.mark.parametrize("profile", [OPENROUTER, GOOGLE, MISTRAL], ids=lambda profile: profile.id)
def test_another_profile_drops_what_is_not_its_own(profile: ChatProfile) -> None:
    answer = answered(profile, said(*EVERYTHING, finish="tool_calls"))
    (turn, _) = bodies(attrs.evolve(profile, id="other", reasoning_field=None, foreign_call={}), answer)
    assert turn.keys() == {"role", "content", "tool_calls"}
    assert turn["content"] == "done"
    assert turn["tool_calls"][0].keys() == {"id", "type", "function"}


@pytest.mark.parametrize("profile", [DEEPSEEK, MOONSHOT], ids=lambda profile: profile.id)
def test_D03_calls_without_thinking_have_the_field_all_the_same(profile: ChatProfile) -> None:
    """Their thinking modes refuse a turn with calls where the field is missing."""
    blocks: list[ContentBlock] = [TextBlock("a"), ToolCallBlock(CallId("c"), "look", "{}")]
    (turn, _, plain) = bodies(
        profile,
        create_assistant_message(blocks, ModelSource("q", "m")),
        create_assistant_message("b", ModelSource("q", "m")),
    )
    assert turn["reasoning_content"] == " "
    assert "reasoning_content" not in plain


@pytest.mark.parametrize(
    ("response", "entries"),
    [
        (None, [None, None]),
        ({"version": 2, "profile": "openrouter"}, [None, None]),
        ({"version": 1, "profile": "openrouter", "reasoning_details": "x"}, [None, None]),
        ({"version": 1, "profile": "openrouter", "reasoning_details": ["x"]}, [None, None]),
        ({"version": 1, "profile": "openrouter", "extra_content": "x"}, [None, None]),
        ({"version": 1, "profile": "openrouter"}, None),
        ({"version": 1, "profile": "openrouter"}, [None]),
        ({"version": 1, "profile": "openrouter"}, ["x", None]),
        ({"version": 1, "profile": "openrouter"}, [{"type": "call"}, None]),
        ({"version": 1, "profile": "openrouter"}, [{"type": ["call"]}, None]),
        ({"version": 1, "profile": "openrouter"}, [None, {"type": "call", "extra_content": "x"}]),
        ({"version": 1, "profile": "openrouter"}, [None, {"type": "call", "id": 1}]),
    ],
)
def test_malformed_state_degrades_one_message(response: Any, entries: Any) -> None:
    told: list[tuple[MessageId, LlmFailure]] = []
    blocks: list[ContentBlock] = [ReasoningBlock("hm"), ToolCallBlock(CallId("c"), "look", "{}")]
    broken = create_assistant_message(blocks, ModelSource("p", "m", ReplayEnvelope(response, entries)))
    sound = answered(OPENROUTER, said(details(thought(text="a", signature="S")), {"content": "b"}))
    request = ask(messages=[broken, create_user_message("go on"), sound])
    body = chat_body(request, OPENROUTER, {}, lambda message, failure: told.append((message, failure)))
    assert [(message, failure.code) for message, failure in told] == [(broken.id, INVALID_REPLAY_STATE)]
    assert body["messages"][0]["reasoning"] == "hm"
    assert body["messages"][-1]["reasoning_details"] == (thought(text="a", signature="S"),)


def test_an_unreturnable_name_is_refused() -> None:
    with pytest.raises(ValueError, match="returned"):
        attrs.evolve(PLAIN, returned={"audio"})


async def test_P07_the_next_request_of_a_runtime_has_it_and_a_foreigners_has_not() -> None:
    first = said(details(thought(text="a")), call("c"), details(thought(signature="S")), finish="tool_calls")
    async with (
        WireServer([event_stream(first), *[event_stream(said({"content": "b"}))] * 2]) as server,
        LlmRuntime() as llm,
    ):
        llm.register_adapter("own", ChatAdapter(chat_config(server, profile=OPENROUTER)))
        llm.register_adapter("other", ChatAdapter(chat_config(server, profile=OPENROUTER)))
        question = create_user_message("go")
        answer = (await llm.generate(ask(provider="own", messages=[question]))).message
        history = [question, answer, create_tool_result_message(CallId("c"), "ok")]
        for provider, wanted in (("own", [thought(text="a", signature="S")]), ("other", None)):
            await llm.generate(ask(provider=provider, messages=history))
            turn = server.requests[-1].json()["messages"][1]
            assert turn.get("reasoning_details") == wanted
            assert turn.get("reasoning") == (None if wanted else "a")


def test_the_limit_is_told_with_what_was_kept() -> None:
    chunks, _ = streams.translate(
        [said(details(thought(text="a", signature="S")), {"content": "b"}, finish="length")],
        kept=Kept(OPENROUTER),
    )
    finish = streams.finish_of(chunks)
    assert isinstance(finish.reason, MaxTokens)
    assert finish.replay_state is not None
