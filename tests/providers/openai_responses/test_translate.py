"""Events to chunks: what the recordings do not show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_llm.model.chunks import (
    BlockEnd,
    BlockStart,
    Error,
    Finish,
    MaxTokens,
    ReasoningDelta,
    Stop,
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
from trio_llm.protocol.grammar import Grammar
from trio_llm.providers.openai_responses.translate import ResponsesTranslator
from trio_llm.providers.openai_responses.types import decode_answer, decode_event
from trio_llm.providers.openai_responses.usage import token_usage, usage_facts

from .. import streams
from ..streams import replay_of
from .responses import (
    HELLO,
    added,
    body,
    call,
    chunks_of,
    created,
    cut,
    delta,
    done,
    end,
    event,
    frame,
    message_of,
    text,
    thinking,
    translate,
    usage,
)


def blocks_of(*events: Any) -> list[Any]:
    return list(message_of(chunks_of(*events)).content)


def reason_of(*events: Any) -> Any:
    return streams.finish_of(chunks_of(*events)).reason


class TestBlocks:
    def test_a_text(self) -> None:
        chunks, translator = translate([HELLO])
        assert chunks[:-1] == [
            BlockStart(0, "text"),
            TextDelta(0, "Hel"),
            TextDelta(0, "lo"),
            BlockEnd(0, TextBlock("Hello")),
            Usage(TokenUsage(4, 3)),
        ]
        assert streams.finish_of(chunks).reason == Stop(raw="completed")
        assert (translator.response_id, translator.served_model) == ("resp_1", "served")

    def test_several_summary_parts_are_joined_with_a_blank_line(self) -> None:
        chunks = chunks_of(created(), thinking(0, "a", "b", "c"), text(1, "x"), end())
        said = [chunk.text for chunk in chunks if isinstance(chunk, ReasoningDelta)]
        assert said == ["a", "\n\n", "b", "\n\n", "c"]
        assert BlockEnd(0, ReasoningBlock("a\n\nb\n\nc")) in chunks

    def test_reasoning_text_is_shown_where_there_is_no_summary(self) -> None:
        events = [
            added(0, type="reasoning", id="rs_1", summary=[]),
            delta("reasoning_text", 0, "hm", content_index=0),
            delta("reasoning_summary_text", 0, "never", summary_index=0),
            delta("reasoning_text", 0, "so", content_index=1),
            done(0, type="reasoning", id="rs_1", summary=[{"type": "summary_text", "text": "never"}]),
        ]
        assert blocks_of(created(), events, text(1, "x"), end())[0] == ReasoningBlock("hm\n\nso")

    def test_items_may_interleave(self) -> None:
        one, other = text(0, "a", "b", id="msg_1"), call(1, "{", "}")
        mixed = [part for pair in zip(one, other, strict=True) for part in pair]
        chunks = chunks_of(created(), mixed, end())
        assert [type(chunk).__name__ for chunk in chunks[:6]] == [
            *["BlockStart"] * 2,
            *["ToolCallDelta", "TextDelta", "ToolCallDelta", "TextDelta"],
        ]
        assert message_of(chunks).content == (TextBlock("ab"), ToolCallBlock(CallId("call_1"), "ls", "{}"))

    def test_arguments_that_come_only_in_done_items(self) -> None:
        whole = call(0, '{"a":1}')
        chunks = chunks_of(created(), whole[0], whole[-1], end())
        assert ToolCallDelta(0, CallId("call_1"), None, '{"a":1}') in chunks
        assert isinstance(streams.finish_of(chunks).reason, ToolCalls)
        stated = event("function_call_arguments.done", output_index=0, arguments='{"a":1}')
        bare = done(0, type="function_call", id="fc_1", call_id="call_1", name="ls")
        assert message_of(chunks_of(created(), whole[0], stated, bare, end())) is not None
        assert blocks_of(created(), whole[0], stated, bare, end())[0].arguments == '{"a":1}'

    def test_arguments_that_are_an_object_are_written_compactly(self) -> None:
        item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "t"}
        events = [added(0, **item, arguments={}), done(0, **item, arguments={"a": [1, 2]})]
        assert blocks_of(created(), events, end()) == [ToolCallBlock(CallId("c"), "t", '{"a":[1,2]}')]

    def test_what_no_delta_brought_is_taken_from_the_statements(self) -> None:
        begun = [added(0, type="message", id="m"), delta("output_text", 0, "He", content_index=0)]
        stated = [
            event("output_text.done", output_index=0, content_index=0, text="Hell"),
            event("content_part.done", output_index=0, content_index=0, part={"text": "Hello"}),
        ]
        closed = done(0, type="message", id="m", content=[{"type": "output_text", "text": "Hello!"}])
        chunks = chunks_of(created(), begun, stated, closed, end())
        assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["He", "ll", "o", "!"]
        part = event("reasoning_summary_part.done", output_index=0, summary_index=0, part={"text": "hm"})
        assert blocks_of(created(), added(0, type="reasoning"), part, text(1, "a"), end())[0].text == "hm"

    def test_statements_that_say_otherwise_change_nothing(self) -> None:
        events = text(0, "abc")
        other = event("output_text.done", output_index=0, content_index=0, text="xyz")
        assert blocks_of(created(), *events[:-1], other, events[-1], end()) == [TextBlock("abc")]

    def test_a_refusal_is_visible_text(self) -> None:
        events = [
            added(0, type="message", id="m", content=[]),
            delta("output_text", 0, "Well. ", content_index=0),
            delta("refusal", 0, "I can", content_index=1),
            event("refusal.done", output_index=0, content_index=1, refusal="I cannot."),
            done(
                0,
                type="message",
                id="m",
                content=[
                    {"type": "output_text", "text": "Well. "},
                    {"type": "refusal", "refusal": "I cannot."},
                ],
            ),
        ]
        chunks = chunks_of(created(), events, end())
        assert message_of(chunks).content == (TextBlock("Well. I cannot."),)
        assert isinstance(streams.finish_of(chunks).reason, Stop)

    @pytest.mark.parametrize("type", ["message", "reasoning", "function_call"])
    def test_an_item_is_a_block_even_when_empty(self, type: str) -> None:
        item = {"type": type, "id": "i", "call_id": "c", "name": "t"}
        chunks = chunks_of(created(), added(0, **item), done(0, **item), end())
        assert len(message_of(chunks).content) == 1
        assert not isinstance(streams.finish_of(chunks).reason, Error)

    def test_a_custom_tools_input_is_any_text(self) -> None:
        item = {"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "sql"}
        parts = [delta("custom_tool_call_input", 0, "SELECT "), delta("custom_tool_call_input", 0, "1")]
        chunks = chunks_of(created(), added(0, **item), parts, done(0, **item, input="SELECT 1"), end())
        assert message_of(chunks).content == (ToolCallBlock(CallId("c"), "sql", "SELECT 1"),)
        assert isinstance(streams.finish_of(chunks).reason, ToolCalls)

    def test_halves_of_a_character_in_two_deltas(self) -> None:
        smile = "\U0001f600"
        parts = [
            b'data: {"type":"response.output_text.delta","output_index":0,"delta":"a\\ud83d"}\n\n',
            b'data: {"type":"response.output_text.delta","output_index":0,"delta":"\\ude00b"}\n\n',
        ]
        events = text(0, smile)
        events[2]["item"]["content"][0]["text"] = f"a{smile}b"
        chunks = translate([body(events[0]) + b"".join(parts) + body(events[2], end())])[0]
        assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["a", f"{smile}b"]
        lone = translate([body(events[0]) + parts[0] + body(done(0, type="message", id="msg_1"), end())])[0]
        assert BlockEnd(0, TextBlock("a\ud83d")) in lone

    def test_a_statement_completes_a_character_whose_half_is_held(self) -> None:
        half = b'data: {"type":"response.output_text.delta","output_index":0,"delta":"a\\ud83d"}\n\n'
        events = text(0, "a\U0001f600")
        chunks = translate([body(events[0]) + half + body(events[2], end())])[0]
        assert message_of(chunks).content == (TextBlock("a\U0001f600"),)

    def test_a_call_without_an_id_is_named_by_its_index(self) -> None:
        item = {"type": "function_call", "name": "t", "arguments": "{}"}
        assert blocks_of(created(), added(0, **item), done(0, **item), end())[0].id == "call-0"

    def test_S02_events_after_an_item_was_closed_begin_another(self) -> None:
        late = delta("output_text", 0, "more", content_index=0)
        assert blocks_of(created(), text(0, "a"), late, end()) == [TextBlock("a"), TextBlock("more")]

    def test_deltas_without_anything_around_them(self) -> None:
        events = [delta("output_text", 0, "a"), delta("function_call_arguments", 1, "{}")]
        chunks = chunks_of(events, end())
        assert message_of(chunks).content == (TextBlock("a"), ToolCallBlock(CallId("call-1"), "", "{}"))

    def test_without_output_indexes_items_go_by_their_ids(self) -> None:
        events = [*thinking(0, "a"), *text(1, "b"), *call(2, "{}")]
        for each in events:
            del each["output_index"]
        assert blocks_of(created(), events, end()) == [
            ReasoningBlock("a"),
            TextBlock("b"),
            ToolCallBlock(CallId("call_1"), "ls", "{}"),
        ]


class TestProviderSide:
    def test_items_on_the_providers_side_are_kept_for_replay_alone(self) -> None:
        search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
        chunks = chunks_of(
            created(),
            added(0, **search),
            event("web_search_call.searching", output_index=0, item_id="ws_1"),
            done(0, **search, action={"type": "search", "query": "q"}),
            text(1, "a"),
            added(2, **search),
            done(2, **search | {"id": "ws_2"}),
            end(),
        )
        assert message_of(chunks).content == (TextBlock("a"),)
        state = replay_of(chunks)
        [entry] = state.blocks
        assert [item["id"] for item in entry["before"]] == ["ws_1"]
        assert entry["before"][0]["action"]["query"] == "q"
        assert [item["id"] for item in state.response["after"]] == ["ws_2"]

    def test_a_response_of_nothing_else_has_a_block_to_carry_it(self) -> None:
        item = {"type": "image_generation_call", "id": "ig_1", "result": "aGk="}
        chunks = chunks_of(created(), added(0, **item), done(0, **item), end())
        assert message_of(chunks).content == (TextBlock(""),)
        assert replay_of(chunks).blocks[0]["before"][0]["result"] == "aGk="
        assert isinstance(streams.finish_of(chunks).reason, Stop)

    def test_10_what_only_the_terminal_event_tells_is_kept_for_replay(self) -> None:
        thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e" * 10}
        message = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "a"}]}
        chunks = chunks_of(created(), text(0, "a"), end(output=[thought, message]))
        assert message_of(chunks).content == (TextBlock("a"),)
        assert replay_of(chunks).blocks[0]["before"] == (thought | {"summary": ()},)

    def test_fields_that_only_the_terminal_event_has(self) -> None:
        thought = {"type": "reasoning", "id": "rs_1", "encrypted_content": "e", "summary": []}
        chunks = chunks_of(created(), thinking(0, "hm"), text(1, "a"), end(output=[thought]))
        state = replay_of(chunks)
        assert state.blocks[0]["encrypted_content"] == "e"
        assert state.blocks[0]["summary"][0]["text"] == "hm"

    def test_items_that_only_the_terminal_event_has_and_that_say_something_are_shown(self) -> None:
        said = [
            {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "a"}]},
            {"type": "message", "id": "m2", "content": [{"type": "output_text", "text": "b"}]},
            {"type": "function_call", "id": "f", "call_id": "c", "name": "t", "arguments": "{}"},
        ]
        chunks = chunks_of(created(), text(0, "a"), end(output=said))
        assert message_of(chunks).content == (
            TextBlock("a"),
            TextBlock("b"),
            ToolCallBlock(CallId("c"), "t", "{}"),
        )
        assert isinstance(streams.finish_of(chunks).reason, ToolCalls)

    def test_a_terminal_event_is_enough(self) -> None:
        output = [
            {"type": "reasoning", "id": "r", "summary": []},
            {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "a"}]},
        ]
        chunks = chunks_of(end(output=output))
        assert message_of(chunks).content == (ReasoningBlock(""), TextBlock("a"))
        Grammar().check(chunks[0])

    def test_ids_that_change_with_every_event(self) -> None:
        events = text(0, "a", id="x1")
        events[1]["item_id"], events[2]["item"]["id"] = "x2", "x3"
        output = [{"type": "message", "id": "x4", "content": [{"type": "output_text", "text": "a"}]}]
        chunks = chunks_of(created(), events, end(output=output))
        assert message_of(chunks).content == (TextBlock("a"),)
        assert replay_of(chunks).blocks[0]["id"] == "x3"


class TestEnds:
    def test_33_an_incomplete_response_has_its_reason_and_its_usage(self) -> None:
        chunks = chunks_of(created(), thinking(0, "Plan", encrypted_content="e"), cut(usage=usage(40, 16)))
        assert streams.finish_of(chunks).reason == MaxTokens(raw="incomplete:max_output_tokens")
        assert streams.usage_of(chunks) == TokenUsage(40, 16)
        assert replay_of(chunks).blocks[0]["encrypted_content"] == "e"

    def test_a_limit_before_any_block_is_no_empty_response(self) -> None:
        assert isinstance(reason_of(created(), cut()), MaxTokens)

    def test_S06_a_call_that_the_limit_cut_has_no_end(self) -> None:
        chunks = chunks_of(created(), call(0, '{"a'), cut())
        assert not [chunk for chunk in chunks if isinstance(chunk, BlockEnd)]
        whole = chunks_of(created(), call(0, "{}"), cut())
        assert not [chunk for chunk in whole if isinstance(chunk, BlockEnd)]
        assembler = BlockAssembler()
        assembler.push_all(whole)
        assert assembler.blocks() == ()
        assert len(assembler.incomplete_calls) == 1

    def test_S06_a_whole_call_before_another_block_is_closed_at_the_limit(self) -> None:
        first, second = call(0, "{}"), call(1, '{"a', id="fc_2", call_id="call_2")
        chunks = chunks_of(created(), first, second, cut())
        assert [chunk.index for chunk in chunks if isinstance(chunk, BlockEnd)] == [0]
        unstopped = chunks_of(created(), first[:-1], text(1, "a"), cut())
        assert sorted(chunk.index for chunk in unstopped if isinstance(chunk, BlockEnd)) == [0, 1]

    def test_a_call_that_is_not_whole_at_a_normal_end_was_cut(self) -> None:
        assert reason_of(created(), call(0, '{"a'), end()) == MaxTokens(raw="completed")

    def test_a_call_that_was_never_closed_is_closed_at_the_end(self) -> None:
        assert blocks_of(created(), call(0, "{}")[:-1], end()) == [
            ToolCallBlock(CallId("call_1"), "ls", "{}")
        ]

    @pytest.mark.parametrize(
        ("reason", "code", "raw"),
        [
            ("content_filter", "CONTENT_FILTER", "incomplete:content_filter"),
            ("odd_word", "ODD_WORD", "incomplete:odd_word"),
            (None, "INCOMPLETE", "incomplete"),
        ],
    )
    def test_other_reasons_to_be_incomplete(self, reason: str | None, code: str, raw: str) -> None:
        ended = reason_of(created(), text(0, "a"), cut(reason))
        assert isinstance(ended, Error)
        assert (ended.failure.code, ended.raw) == (code, raw)

    def test_a_status_that_says_more_than_its_event(self) -> None:
        ended = end("incomplete", incomplete_details={"reason": "max_output_tokens"})
        assert isinstance(
            reason_of(created(), text(0, "a"), ended | {"type": "response.completed"}), MaxTokens
        )
        odd = end() | {"type": "response.completed"}
        odd["response"]["status"] = "in_progress"
        assert reason_of(created(), text(0, "a"), odd) == Stop(raw="completed")

    def test_an_empty_response(self) -> None:
        ended = reason_of(created(), end())
        assert isinstance(ended, Error)
        assert ended.failure.code == "EMPTY_RESPONSE"

    @pytest.mark.parametrize("word", ["failed", "cancelled"])
    def test_a_failure_without_a_word(self, word: str) -> None:
        ended = reason_of(created(), end(word))
        assert isinstance(ended, Error)
        assert (ended.failure.code, ended.raw) == ({"failed": "SERVER"}.get(word, "CANCELLED"), word)

    def test_a_failed_response(self) -> None:
        error = {"code": "rate_limit_exceeded", "message": "slow down"}
        chunks = chunks_of(created(), text(0, "a"), end("failed", error=error, usage=usage()))
        ended = streams.finish_of(chunks)
        assert isinstance(ended.reason, Error)
        assert (ended.reason.failure.code, ended.reason.failure.message) == ("RATE_LIMIT", "slow down")
        assert streams.usage_of(chunks) == TokenUsage(4, 3)
        assert ended.replay_state is None

    @pytest.mark.parametrize(
        "error",
        [
            {"type": "error", "code": "insufficient_quota", "message": "no money"},
            {"type": "error", "error": {"code": "insufficient_quota", "message": "no money"}},
            {"error": {"code": "insufficient_quota", "message": "no money"}},
        ],
    )
    def test_an_error_event_is_reported_once(self, error: dict[str, Any]) -> None:
        said = b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n"
        failed = end("failed", error={"code": "server_error", "message": "again"})
        for rest, raw in ((body(failed), "failed"), (b"", None)):
            chunks, translator = translate([body(created(), text(0, "a")) + said + rest])
            ended = streams.finish_of(chunks).reason
            assert isinstance(ended, Error)
            assert (ended.failure.code, ended.failure.message, ended.raw) == ("QUOTA", "no money", raw)
            assert translator.ending

    def test_an_error_that_is_only_a_text(self) -> None:
        chunks, _ = translate([body(created()) + b"event: error\ndata: oops\n\n"])
        assert chunks == []
        chunks, _ = translate([b'event: error\ndata: "oops"\n\n'])
        ended = streams.finish_of(chunks).reason
        assert isinstance(ended, Error)
        assert ended.failure.message == "oops"

    def test_the_request_id_goes_into_failures(self) -> None:
        for last in (end(), end("failed", error={"message": "no"}), cut("odd")):
            translator, out = ResponsesTranslator(), list[Any]()
            translator.request_id = ProviderRequestId("req_1")
            translator.feed(decode_event("", json.dumps(last).encode()), out)  # type: ignore[arg-type]  # no ping
            assert out[-1].reason.failure.request_id == "req_1"

    @pytest.mark.parametrize(
        "last", [b"", b"data: [DONE]\n\n", frame({"type": "keepalive"}), b"data: :x\n\n"]
    )
    def test_D07_a_clean_end_without_a_terminal_event(self, last: bytes) -> None:
        chunks, translator = translate([body(created(), text(0, "a")) + last])
        assert translator.failure is not None
        assert translator.failure.code == "STREAM_CLOSED"
        assert not [chunk for chunk in chunks if isinstance(chunk, Finish)]

    def test_a_broken_end_says_nothing(self) -> None:
        assert translate([body(created())], clean=False)[1].failure is None

    def test_facts(self) -> None:
        tier = end(service_tier="flex", usage=usage() | {"cost_in_usd_ticks": 7})
        assert translate([body(text(0, "a"), tier)])[1].facts == {
            "service_tier": "flex",
            "cost_in_usd_ticks": 7,
        }

    @pytest.mark.parametrize("data", [b"{", b"[1]", b"5", b'{"type":"response.created","response":5}'])
    def test_what_is_no_event(self, data: bytes) -> None:
        with pytest.raises(LlmError) as caught:
            decode_event("", data)
        assert caught.value.code == "MALFORMED_RESPONSE"

    @pytest.mark.parametrize("data", [b"{}", b'{"output":[]}', b'{"object":"list","data":[]}'])
    def test_what_is_no_answer(self, data: bytes) -> None:
        with pytest.raises(LlmError) as caught:
            decode_answer(data)
        assert caught.value.code == "MALFORMED_RESPONSE"

    def test_events_of_kinds_nobody_knows_are_progress(self) -> None:
        translator = ResponsesTranslator()
        for kind in (event("odd"), event("queued", response={"id": "r"}), event("output_item.added")):
            translator.progressed = False
            translator.feed(decode_event("", json.dumps(kind).encode()), [])  # type: ignore[arg-type]  # no ping
            assert translator.progressed
        assert translator.response_id == "r"


class TestUsage:
    def test_D06_the_counts_are_disjoint(self) -> None:
        counts = usage(100, 50) | {
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
            "output_tokens_details": {"reasoning_tokens": 20},
        }
        assert token_usage(counts) == TokenUsage(30, 50, 60, 10, 20)

    @pytest.mark.parametrize("counts", [None, {}, [], {"input_tokens": None}, {"input_tokens": "5"}])
    def test_no_counts(self, counts: Any) -> None:
        assert token_usage(counts) is None

    def test_odd_counts(self) -> None:
        assert token_usage({"input_tokens": 5.0, "output_tokens_details": 5}) == TokenUsage(5, 0)
        apart = {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 60}}
        assert token_usage(apart) == TokenUsage(5, 0, 60)
        assert usage_facts(None) == {}


PIECES = st.lists(
    st.one_of(
        st.builds(lambda said: ("message", said), st.text(max_size=5)),
        st.builds(lambda said: ("reasoning", said), st.lists(st.text(min_size=1, max_size=3), max_size=3)),
        st.builds(lambda said: ("call", said), st.text(max_size=5)),
    ),
    max_size=5,
)


@settings(max_examples=60)
@given(PIECES, st.booleans(), st.data())
def test_G01_any_response_in_any_cut_keeps_the_grammar(
    pieces: list[tuple[str, Any]], limited: bool, data: st.DataObject
) -> None:
    events: list[Any] = [created()]
    for place, (kind, said) in enumerate(pieces):
        if kind == "message":
            events.append(text(place, *said))
        elif kind == "reasoning":
            events.append(thinking(place, *said))
        else:
            events.append(call(place, *json.dumps({"a": said}), call_id=f"c{place}"))
    stream = body(*events, cut() if limited else end())
    whole = translate([stream])[0]
    assert translate(streams.cut(stream, data.draw(st.lists(st.integers(1, 90)))))[0] == whole
    streams.check_grammar(whole)
    said_by_end = [block.get("text", block.get("arguments")) for block in streams.blocks_of(whole)]
    assert said_by_end == [
        "\n\n".join(said) if kind == "reasoning" else said if kind == "message" else json.dumps({"a": said})
        for kind, said in pieces
    ]
