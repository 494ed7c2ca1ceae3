"""Events of the Messages API to chunks: what the recordings do not show, rule by rule."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.model.chunks import (
    BlockEnd,
    BlockStart,
    Error,
    Finish,
    MaxTokens,
    Pause,
    ReasoningDelta,
    Stop,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCalls,
    Usage,
)
from trio_llm.model.content import ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import CallId, ProviderRequestId
from trio_llm.protocol.assembler import BlockAssembler
from trio_llm.providers.anthropic.translate import MessagesTranslator
from trio_llm.providers.anthropic.types import decode_answer, decode_event

from .. import streams
from ..streams import replay_of
from .messages import begin, call, chunks_of, delta, end, frame, start, stop, text, translate


def assembled(chunks: list[StreamChunk]) -> BlockAssembler:
    assembler = BlockAssembler()
    assembler.push_all(chunks)
    return assembler


def reason_of(*frames: bytes) -> Any:
    return streams.finish_of(chunks_of(*frames)).reason


class TestBlocks:
    def test_a_delimited_block_is_one_even_when_empty(self) -> None:
        chunks = chunks_of(start(), text(0), begin(1, type="thinking", thinking=""), stop(1), end())
        assert chunks[:4] == [
            BlockStart(0, "text"),
            BlockEnd(0, TextBlock("")),
            BlockStart(1, "reasoning"),
            BlockEnd(1, ReasoningBlock("")),
        ]

    def test_indexes_follow_first_appearance_and_skip_what_is_dropped(self) -> None:
        chunks = chunks_of(
            start(),
            begin(7, type="text", text=""),
            begin(2, type="server_tool_use", id="s", name="web_search", input={}),
            begin(3, type="text", text=""),
            delta(3, "text_delta", text="b"),
            delta(7, "text_delta", text="a"),
            stop(3),
            stop(2),
            stop(7),
            end(),
        )
        assert [block["text"] for block in streams.blocks_of(chunks)] == ["a", "b"]
        assert [chunk.index for chunk in chunks if isinstance(chunk, BlockEnd)] == [1, 0]

    def test_what_stands_in_a_start_is_shown(self) -> None:
        chunks = chunks_of(
            start(),
            begin(0, type="thinking", thinking="t", signature="s"),
            stop(0),
            begin(1, type="text", text="a"),
            delta(1, "text_delta", text="b"),
            stop(1),
            end(),
        )
        assert ReasoningDelta(0, "t") in chunks
        assert BlockEnd(1, TextBlock("ab")) in chunks
        assert replay_of(chunks).blocks[0] == {"type": "thinking", "signature": "s"}

    def test_redacted_thinking_is_an_empty_block_and_kept(self) -> None:
        chunks = chunks_of(start(), begin(0, type="redacted_thinking", data="cmVk"), stop(0), end())
        assert chunks[:2] == [BlockStart(0, "reasoning"), BlockEnd(0, ReasoningBlock(""))]
        assert replay_of(chunks).blocks == ({"type": "redacted_thinking", "data": "cmVk"},)

    @pytest.mark.parametrize("kind", ["text", "thinking"])
    def test_a_delta_without_its_start_opens_a_block(self, kind: str) -> None:
        chunks = chunks_of(start(), delta(0, f"{kind}_delta", **{kind: "a"}), end())
        assert isinstance(chunks[0], BlockStart)
        assert chunks[-2] == BlockEnd(0, TextBlock("a") if kind == "text" else ReasoningBlock("a"))

    def test_a_delta_that_belongs_to_nothing_is_ignored(self) -> None:
        lost = delta(4, "input_json_delta", partial_json="{}")
        assert chunks_of(start(), text(0, "a"), lost, stop(9), end()) == chunks_of(
            start(), text(0, "a"), end()
        )

    def test_a_second_start_at_an_index_closes_the_first(self) -> None:
        chunks = chunks_of(start(), begin(0, type="text", text="a"), text(0, "b"), end())
        assert [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)] == [
            TextBlock("a"),
            TextBlock("b"),
        ]

    def test_blocks_that_were_not_stopped_end_with_the_message(self) -> None:
        chunks = chunks_of(start(), begin(0, type="text", text="a"), end())
        assert BlockEnd(0, TextBlock("a")) in chunks

    def test_halves_of_a_character_are_joined(self) -> None:
        halves = rb'"\ud83d"', rb'"\ude00"'
        body = start() + text(0, "HIGH", "LOW") + end()
        for name, half in zip((b'"HIGH"', b'"LOW"'), halves, strict=True):
            body = body.replace(name, half)
        assert chunks_of(body)[:3] == [
            BlockStart(0, "text"),
            TextDelta(0, "\U0001f600"),
            BlockEnd(0, TextBlock("\U0001f600")),
        ]

    def test_half_a_character_is_shown_at_the_end(self) -> None:
        body = (start() + text(0, "HIGH") + end()).replace(b'"HIGH"', rb'"\ud83d"')
        assert chunks_of(body)[1:3] == [TextDelta(0, "\ud83d"), BlockEnd(0, TextBlock("\ud83d"))]

    def test_a_whole_answer_in_its_start(self) -> None:
        said = {"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}
        translator, out = MessagesTranslator(), list[StreamChunk]()
        translator.feed(
            decode_answer(json.dumps(said | {"id": "msg_1", "usage": {"input_tokens": 1}}).encode()), out
        )
        translator.close(True, out)
        assert [type(chunk) for chunk in out] == [BlockStart, TextDelta, BlockEnd, Usage, Finish]
        with pytest.raises(LlmError, match="no message"):
            decode_answer(b'{"ok": true}')


class TestToolCalls:
    def test_the_first_delta_names_the_call(self) -> None:
        chunks = chunks_of(start(), call(0, "", '{"a":', "1}"), end("tool_use"))
        assert chunks[:4] == [
            BlockStart(0, "tool-call"),
            ToolCallDelta(0, CallId("toolu_1"), "ls", ""),
            ToolCallDelta(0, CallId("toolu_1"), None, '{"a":'),
            ToolCallDelta(0, CallId("toolu_1"), None, "1}"),
        ]
        assert chunks[4] == BlockEnd(0, ToolCallBlock(CallId("toolu_1"), "ls", '{"a":1}'))
        assert streams.finish_of(chunks).reason == ToolCalls(raw="tool_use")

    def test_no_arguments_stay_empty(self) -> None:
        chunks = chunks_of(start(), call(0, ""), end("tool_use"))
        assert chunks[2] == BlockEnd(0, ToolCallBlock(CallId("toolu_1"), "ls", ""))

    def test_an_object_is_serialised_again_as_one_delta_before_the_end(self) -> None:
        chunks = chunks_of(start(), call(0, input={"a": {"b": [1, "é"]}}), end("tool_use"))
        assert chunks[2] == ToolCallDelta(0, CallId("toolu_1"), None, '{"a":{"b":[1,"é"]}}')
        assert isinstance(chunks[3], BlockEnd)

    def test_deltas_say_an_object_anew(self) -> None:
        chunks = chunks_of(start(), call(0, '{"b":2}', input={"a": 1}), end("tool_use"))
        assert assembled(chunks).blocks() == (ToolCallBlock(CallId("toolu_1"), "ls", '{"b":2}'),)

    def test_a_call_without_an_id_gets_one(self) -> None:
        chunks = chunks_of(start(), text(0, "a"), call(1, "{}", id=""), end("tool_use"))
        assert assembled(chunks).blocks()[1] == ToolCallBlock(CallId("call-1"), "ls", "{}")

    @pytest.mark.parametrize("word", ["end_turn", "stop_sequence", "tool_use", None])
    def test_complete_calls_are_a_tool_turn_whatever_the_word(self, word: str | None) -> None:
        assert reason_of(start(), call(0, "{}"), end(word)) == ToolCalls(raw=word)

    def test_a_call_ends_when_another_block_begins(self) -> None:
        chunks = chunks_of(start(), call(0, "{}"), begin(1, type="text", text=""), end("tool_use"))
        assert [type(chunk) for chunk in chunks[:5]] == [
            BlockStart,
            ToolCallDelta,
            ToolCallDelta,
            BlockEnd,
            BlockStart,
        ]

    @pytest.mark.parametrize("word", ["tool_use", "end_turn"])
    def test_a_call_that_is_not_whole_was_cut_whatever_the_word(self, word: str) -> None:
        chunks = chunks_of(start(), call(0, '{"a": "b'), end(word))
        assert streams.finish_of(chunks).reason == MaxTokens(raw=word)
        assert not any(isinstance(chunk, BlockEnd) for chunk in chunks)


class TestTokenLimit:
    def test_S06_the_last_call_may_be_cut_even_where_it_looks_whole(self) -> None:
        for arguments in ("", "{}", '{"a": 1'):
            chunks = chunks_of(start(), text(0, "a"), call(1, arguments), end("max_tokens"))
            assert streams.finish_of(chunks).reason == MaxTokens(raw="max_tokens")
            assembler = assembled(chunks)
            assert assembler.blocks() == (TextBlock("a"),)
            assert [block.arguments for block in assembler.incomplete_calls] == [arguments]
            assert assembler.replay_state is not None
            assert assembler.replay_state.blocks == ({"type": "text"},)

    def test_S06_a_whole_call_before_another_block_is_closed(self) -> None:
        chunks = chunks_of(start(), call(0, "{}"), call(1, '{"a', id="toolu_2"), end("max_tokens"))
        assert assembled(chunks).blocks() == (ToolCallBlock(CallId("toolu_1"), "ls", "{}"),)

    def test_S06_one_that_was_never_stopped_too(self) -> None:
        open_call = begin(0, type="tool_use", id="toolu_1", name="ls", input={})
        chunks = chunks_of(start(), open_call, text(1, "a"), end("max_tokens"))
        assert [type(block) for block in assembled(chunks).blocks()] == [ToolCallBlock, TextBlock]

    def test_S06_a_cut_call_before_another_block_stays_open(self) -> None:
        chunks = chunks_of(start(), call(0, '{"a'), text(1, "b"), end("max_tokens"))
        assert assembled(chunks).blocks() == (TextBlock("b"),)

    def test_length_without_blocks_stays_max_tokens(self) -> None:
        assert reason_of(start(), end("max_tokens")) == MaxTokens(raw="max_tokens")

    def test_a_server_tool_that_was_cut_does_not_come_back(self) -> None:
        search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
        answer = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
        chunks = chunks_of(
            start(),
            begin(0, **search),
            stop(0),
            begin(1, **answer),
            stop(1),
            text(2, "a"),
            begin(3, **search | {"id": "s2"}),
            stop(3),
            end("max_tokens"),
        )
        state = replay_of(chunks)
        assert state.response == {"version": 1}
        assert state.blocks == ({"type": "text", "before": (search, answer | {"content": ()})},)

    def test_nor_does_one_whose_input_is_not_whole(self) -> None:
        search = begin(1, type="server_tool_use", id="s1", name="web_search", input={})
        part = delta(1, "input_json_delta", partial_json='{"q')
        for tail in (b"", stop(1)):
            chunks = chunks_of(start(), text(0, "a"), search, part, tail, end("max_tokens"))
            assert replay_of(chunks).response == {"version": 1}


class TestEnds:
    @pytest.mark.parametrize("word", ["end_turn", "stop_sequence"])
    def test_stop(self, word: str) -> None:
        assert reason_of(start(), text(0, "a"), end(word)) == Stop(raw=word)

    def test_the_stop_string_is_a_fact(self) -> None:
        _, translator = translate([start() + text(0, "a") + end("stop_sequence", stop_sequence="END")])
        assert translator.facts == {"stop_sequence": "END"}

    @pytest.mark.parametrize("word", ["pause_turn", "compaction"])
    def test_a_suspended_turn_is_a_pause(self, word: str) -> None:
        search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "a"}}
        chunks = chunks_of(start(), text(0, "a"), begin(1, **search), stop(1), end(word))
        assert streams.finish_of(chunks).reason == Pause(raw=word)
        assert replay_of(chunks).response == {"version": 1, "after": (search,)}

    def test_a_pause_without_any_block_has_one_to_carry_what_was_done(self) -> None:
        search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "a"}}
        chunks = chunks_of(start(), begin(0, **search), stop(0), end("pause_turn"))
        assert assembled(chunks).blocks() == (TextBlock(""),)
        assert replay_of(chunks).blocks == ({"type": "text", "before": (search,)},)

    def test_a_refusal_keeps_the_counts_and_the_explanation(self) -> None:
        details = {"type": "refusal", "category": "bio", "explanation": "Not that."}
        chunks = chunks_of(start(), text(0, "a"), end("refusal", {"output_tokens": 3}, stop_details=details))
        reason = streams.finish_of(chunks).reason
        assert isinstance(reason, Error)
        assert (reason.failure.code, reason.failure.message, reason.raw) == (
            "REFUSAL",
            "Not that.",
            "refusal",
        )
        assert streams.usage_of(chunks) == TokenUsage(0, 3)
        assert replay_of(chunks) is None

    @pytest.mark.parametrize(
        ("word", "code"),
        [("model_context_window_exceeded", "CONTEXT_WINDOW_EXCEEDED"), ("odd_word", "ODD_WORD")],
    )
    def test_other_words_are_errors(self, word: str, code: str) -> None:
        chunks = chunks_of(start(), text(0, "a"), end(word))
        assert streams.code_of(chunks) == code
        assert streams.finish_of(chunks).reason.raw == word

    def test_an_empty_response_is_a_failure(self) -> None:
        assert streams.code_of(chunks_of(start(), end())) == "EMPTY_RESPONSE"

    def test_no_word_is_a_stop(self) -> None:
        assert reason_of(start(), text(0, "a"), frame({"type": "message_stop"})) == Stop()

    def test_usage_and_finish_wait_for_message_stop(self) -> None:
        body = start() + text(0, "a") + end(usage={"output_tokens": 2})
        before, after = body.rsplit(b"event: message_stop", 1)
        chunks, translator = translate([before], clean=False)
        assert not translator.terminal
        assert not any(isinstance(chunk, Usage | Finish) for chunk in chunks)
        whole, translator = translate([before + b"event: message_stop" + after + text(1, "late")])
        assert whole == [*chunks, Usage(TokenUsage(0, 2)), *whole[-1:]]

    def test_a_clean_end_after_the_stop_reason_is_an_end(self) -> None:
        body = start() + text(0, "a") + end()
        before = body.rsplit(b"event: message_stop", 1)[0]
        assert translate([before])[0] == translate([body])[0]

    def test_a_clean_end_without_one_is_none(self) -> None:
        _, translator = translate([start() + text(0, "a")])
        assert translator.failure is not None
        assert translator.failure.code == "STREAM_CLOSED"

    def test_done_ends_it_too(self) -> None:
        body = start() + text(0, "a") + b"data: [DONE]\n\n"
        assert translate([body])[0][-1] == chunks_of(start(), text(0, "a"), end(None))[-1]


class TestUsage:
    def test_28_the_last_count_that_is_not_null_holds(self) -> None:
        first = {
            "input_tokens": 3,
            "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 7,
            "output_tokens": 1,
        }
        last = {"input_tokens": None, "cache_read_input_tokens": 0, "output_tokens": 9}
        chunks = chunks_of(start(first), text(0, "a"), end(usage=last))
        assert streams.usage_of(chunks) == TokenUsage(3, 9, 0, 7)

    def test_thinking_tokens(self) -> None:
        usage = {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}
        assert streams.usage_of(chunks_of(start(), text(0, "a"), end(usage=usage))) == TokenUsage(
            0, 9, reasoning_tokens=4
        )

    @pytest.mark.parametrize("usage", [None, "many", {}, {"input_tokens": None}, {"input_tokens": -1}])
    def test_counts_that_are_none(self, usage: Any) -> None:
        assert streams.usage_of(chunks_of(start(usage), text(0, "a"), end(usage=usage))) is None

    def test_a_count_that_came_as_a_float(self) -> None:
        assert streams.usage_of(
            chunks_of(start(), text(0, "a"), end(usage={"output_tokens": 2.0}))
        ) == TokenUsage(0, 2)

    def test_early_usage_comes_with_the_start_and_stays_the_same_object(self) -> None:
        _, translator = translate([start({"input_tokens": 3, "output_tokens": 1})], clean=False)
        assert translator.early_usage == TokenUsage(3, 1)
        assert translator.early_usage is translator.early_usage

    def test_other_facts(self) -> None:
        usage = {
            "output_tokens": 1,
            "service_tier": "priority",
            "server_tool_use": {"web_search_requests": 2},
        }
        held = {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}
        body = start() + text(0, "a") + end(usage=usage, container=held)
        body = body.replace(
            b'"usage": {"output', b'"context_management": {"applied_edits": []}, "usage": {"output'
        )
        _, translator = translate([body])
        assert translator.facts == {
            "service_tier": "priority",
            "server_tool_use": {"web_search_requests": 2},
            "container": held,
            "context_management": {"applied_edits": []},
        }


class TestErrors:
    @pytest.mark.parametrize(
        ("type", "code"),
        [
            ("overloaded_error", "SERVER"),
            ("api_error", "SERVER"),
            ("timeout_error", "SERVER"),
            ("rate_limit_error", "RATE_LIMIT"),
            ("authentication_error", "AUTH"),
            ("permission_error", "AUTH"),
            ("billing_error", "QUOTA"),
            ("invalid_request_error", "INVALID_REQUEST"),
        ],
    )
    def test_37_an_error_event_is_that_error(self, type: str, code: str) -> None:
        error = {"type": "error", "error": {"type": type, "message": "no"}, "request_id": "req_9"}
        chunks = chunks_of(start({"input_tokens": 3}), text(0, "Par"), frame(error), text(1, "late"))
        reason = streams.finish_of(chunks).reason
        assert isinstance(reason, Error)
        assert (reason.failure.code, reason.failure.message) == (code, "no")
        assert reason.failure.request_id == "req_9"
        assert reason.failure.status is None
        assert streams.usage_of(chunks) is None  # what the start told are not the counts of the response
        assert BlockEnd(0, TextBlock("Par")) in chunks

    def test_an_error_after_the_counts_keeps_them_and_names_the_request(self) -> None:
        translator, out = MessagesTranslator(), list[StreamChunk]()
        translator.request_id = ProviderRequestId("req_h")
        said = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}
        for value in (said, {"error": "broken"}):
            event = decode_event("" if "type" in value else "error", json.dumps(value).encode())
            assert event is not None
            translator.feed(event, out)
        assert out[0] == Usage(TokenUsage(0, 2))
        assert isinstance(out[1], Finish)
        assert isinstance(out[1].reason, Error)
        assert (out[1].reason.failure.request_id, out[1].reason.raw) == ("req_h", "end_turn")

    def test_an_error_of_another_shape(self) -> None:
        for data in (b'{"message": "gone", "code": 503}', b'{"type": 5, "message": "gone", "code": 503}'):
            event = decode_event("error", data)
            assert event is not None
            out: list[StreamChunk] = []
            MessagesTranslator().feed(event, out)
            assert streams.code_of(out) == "SERVER"


class TestDecoding:
    @pytest.mark.parametrize("data", [b'{"type": "ping"}', b"  ", b": proxy"])
    def test_what_carries_nothing(self, data: bytes) -> None:
        assert decode_event("ping", data) is None

    def test_the_events_name_where_the_data_has_none(self) -> None:
        event = decode_event("message_stop", b"{}")
        assert event is not None
        assert event.type == "message_stop"

    @pytest.mark.parametrize("data", [b"{", b"[]", b'{"type": "content_block_start", "content_block": 5}'])
    def test_what_cannot_be_read(self, data: bytes) -> None:
        with pytest.raises(LlmError) as caught:
            decode_event("content_block_start", data)
        assert caught.value.code == "MALFORMED_RESPONSE"

    def test_unknown_events_and_empty_deltas_say_nothing(self) -> None:
        odd = frame({"type": "odd_event", "index": 0})
        none = frame({"type": "content_block_delta", "index": 0})
        bare = b"".join(
            frame({"type": type}) for type in ("content_block_start", "message_start", "message_delta")
        )
        empty = begin(0, type="text", text="") + delta(0, "text_delta", text="")
        _, translator = translate([empty], clean=False)
        translator.progressed = False
        out: list[StreamChunk] = []
        for event in (decode_event("", odd.split(b"data: ")[1]), decode_event("", none.split(b"data: ")[1])):
            assert event is not None
            translator.feed(event, out)
        assert (out, translator.progressed) == ([], False)
        assert chunks_of(start(), odd, none, bare, text(0, "a"), end()) == chunks_of(
            start(), text(0, "a"), end()
        )

    def test_events_that_make_no_chunk_are_progress_all_the_same(self) -> None:
        for body in (
            start(),
            begin(0, type="server_tool_use", id="s", name="n", input={}),
            begin(0, type="thinking", thinking="") + delta(0, "signature_delta", signature="x"),
            begin(0, type="compaction", content=None)
            + delta(0, "compaction_delta", content=None, encrypted_content="e"),
        ):
            _, translator = translate([body], clean=False)
            assert translator.progressed


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A stream whose blocks open, grow and close in any order."""
    kinds = draw(
        st.lists(st.sampled_from(["text", "thinking", "tool_use", "server_tool_use"]), min_size=1, max_size=5)
    )
    tracks: list[list[bytes]] = []
    for index, kind in enumerate(kinds):
        words = draw(st.lists(st.text(max_size=3), max_size=3))
        if kind == "text":
            track = [begin(index, type=kind, text=""), *(delta(index, "text_delta", text=w) for w in words)]
        elif kind == "thinking":
            track = [
                begin(index, type=kind, thinking=""),
                *(delta(index, "thinking_delta", thinking=w) for w in words),
            ]
        else:
            whole = json.dumps(words) if words else ""
            parts = [whole[i : i + 2] for i in range(0, len(whole), 2)]
            track = [
                begin(index, type=kind, id=f"t{index}", name="n", input={}),
                *(delta(index, "input_json_delta", partial_json=part) for part in parts),
            ]
        tracks.append([*track, stop(index)] if draw(st.booleans()) or kind == "text" else track)
    out = [start()]
    while any(tracks):
        track = draw(st.sampled_from([track for track in tracks if track]))
        out.append(track.pop(0))
    word = draw(st.sampled_from(["end_turn", "tool_use", "max_tokens", "pause_turn", "refusal", "odd"]))
    return b"".join([*out, end(word)])


@given(bodies(), st.lists(st.integers(1, 200), max_size=12))
def test_any_interleaving_is_proper_and_any_cut_gives_the_same(body: bytes, sizes: list[int]) -> None:
    chunks, translator = translate([body])
    assert translator.terminal
    streams.check_grammar(chunks)
    assert translate(streams.cut(body, sizes))[0] == chunks
    assembler = assembled(chunks)
    state = assembler.replay_state
    if state is not None:
        assert state.blocks is not None
        assert len(state.blocks) == len(assembler.blocks())
    for one, other in itertools.pairwise(c.index for c in chunks if isinstance(c, BlockStart)):
        assert other == one + 1
