"""Events of the chat wire to chunks: what the recordings do not show, rule by rule."""

from __future__ import annotations

import itertools
import json
import time
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
    Stop,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCalls,
    Usage,
)
from trio_llm.model.content import TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import CallId, ProviderRequestId
from trio_llm.providers.openai_chat.translate import ChatTranslator
from trio_llm.providers.openai_chat.types import DONE, decode_event

from . import streams


def frame(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def said(*deltas: dict[str, Any], finish: str | None = None, usage: Any = None, done: bool = True) -> bytes:
    """The body of a stream with these deltas."""
    frames = [
        frame({"id": "c-1", "model": "m", "choices": [{"index": 0, "delta": delta}]}) for delta in deltas
    ]
    if finish is not None or usage is not None:
        frames.append(
            frame({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage})
        )
    return b"".join(frames) + (b"data: [DONE]\n\n" if done else b"")


def chunks_of(body: bytes) -> list[StreamChunk]:
    return streams.translate([body])[0]


def call(index: int | None = None, id: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    part: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    if index is not None:
        part["index"] = index
    if id is not None:
        part["id"] = id
    return {"tool_calls": [part]}


def calls_of(chunks: list[StreamChunk]) -> list[tuple[str, str, str]]:
    return [
        (chunk.block.id, chunk.block.name, chunk.block.arguments)
        for chunk in chunks
        if isinstance(chunk, BlockEnd) and isinstance(chunk.block, ToolCallBlock)
    ]


class TestBlocks:
    def test_D04_empty_fragments_open_nothing(self) -> None:
        chunks = chunks_of(
            said({"role": "assistant", "content": ""}, {"reasoning_content": ""}, {"content": "a"})
        )
        assert chunks == [
            BlockStart(0, "text"),
            TextDelta(0, "a"),
            BlockEnd(0, TextBlock("a")),
            Finish(Stop()),
        ]

    def test_D04_reasoning_precedes_text_inside_one_delta(self) -> None:
        chunks = chunks_of(said({"content": "a", "reasoning_content": "r"}, finish="stop"))
        assert [block["type"] for block in streams.blocks_of(chunks)] == ["reasoning", "text"]

    def test_D04_a_block_ends_when_another_kind_begins(self) -> None:
        chunks = chunks_of(
            said(
                {"content": "a"},
                {"reasoning": "r"},
                {"content": "b"},
                call(0, "x", "f", "{}"),
                {"content": "c"},
            )
        )
        kinds = [block["type"] for block in streams.blocks_of(chunks)]
        assert kinds == ["text", "reasoning", "text", "tool-call", "text"]
        ends = [chunk.index for chunk in chunks if isinstance(chunk, BlockEnd)]
        assert ends == [0, 1, 2, 4, 3]  # the call stays open to the terminal marker

    def test_D04_reasoning_alone_is_a_success(self) -> None:
        assert streams.finish_of(chunks_of(said({"reasoning_content": "r"}, finish="stop"))).reason == Stop(
            raw="stop"
        )

    def test_D04_length_without_blocks_stays_max_tokens(self) -> None:
        assert chunks_of(said(finish="length")) == [Finish(MaxTokens(raw="length"))]

    def test_D04_no_finish_word_is_stop(self) -> None:
        assert streams.finish_of(chunks_of(said({"content": "a"}))).reason == Stop()

    def test_D04_usage_and_finish_wait_for_the_marker_and_the_last_usage_wins(self) -> None:
        translator, out = ChatTranslator(), list[StreamChunk]()
        values: list[Any] = [
            {
                "choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1},
            },
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
            {"choices": [], "usage": None},
        ]
        for value in values:
            event = decode_event("", json.dumps(value).encode())
            assert event is not None
            translator.feed(event, out)
        assert not translator.terminal
        assert not any(isinstance(chunk, Usage | Finish) for chunk in out)
        assert translator.early_usage is translator.early_usage == TokenUsage(1, 2)
        translator.feed(DONE, out)
        assert out[-2:] == [Usage(TokenUsage(1, 2)), Finish(Stop(raw="stop"))]

    def test_an_empty_response_is_a_failure(self) -> None:
        assert streams.code_of(chunks_of(said({"role": "assistant"}, finish="stop"))) == "EMPTY_RESPONSE"

    def test_only_the_first_choice_is_read(self) -> None:
        both = {
            "choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]
        }
        assert streams.blocks_of(chunks_of(frame(both) + said()))[0]["text"] == "yes"

    @pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
    def test_thinking_is_not_doubled_by_its_details(self, name: str) -> None:
        details = [{"type": "reasoning.text", "text": "hm"}, {"type": "reasoning.encrypted", "data": "x"}]
        chunks = chunks_of(said({name: "hm", "reasoning_details": details}, {"content": "a"}))
        assert streams.blocks_of(chunks)[0] == {"type": "reasoning", "text": "hm", "closed": True}

    def test_details_of_other_shapes_say_nothing(self) -> None:
        chunks = chunks_of(
            said(
                {"reasoning_details": "x"},
                {"reasoning_details": [1, {"summary": "s"}, {"text": 5}]},
                {"content": "a"},
            )
        )
        assert [block["text"] for block in streams.blocks_of(chunks)] == ["s", "a"]

    def test_content_as_a_list_of_parts(self) -> None:
        parts = [
            {"type": "thinking", "thinking": [{"type": "text", "text": "r"}, {"type": "reference"}, "x"]},
            {"type": "reference", "reference_ids": [1]},
            {"type": "text", "text": "a"},
        ]
        chunks = chunks_of(said({"content": parts}, {"content": [{"type": "thinking", "thinking": "s"}]}))
        assert [(b["type"], b["text"]) for b in streams.blocks_of(chunks)] == [
            ("reasoning", "r"),
            ("text", "a"),
            ("reasoning", "s"),
        ]


class TestToolCalls:
    def test_a_new_id_at_a_known_index_is_a_new_call(self) -> None:
        chunks = chunks_of(
            said(
                call(0, "a", "f", '{"x":'),
                call(0, None, None, "1}"),
                call(0, "b", "g", "{"),
                call(0, None, None, "}"),
            )
        )
        assert calls_of(chunks) == [("a", "f", '{"x":1}'), ("b", "g", "{}")]

    def test_interleaved_calls_are_kept_apart(self) -> None:
        chunks = chunks_of(
            said(
                call(0, "a", "f", "{"),
                call(1, "b", "g", "["),
                call(0, None, None, "}"),
                call(1, "b", "g", "]"),
            )
        )
        assert calls_of(chunks) == [("a", "f", "{}"), ("b", "g", "[]")]

    def test_an_id_that_comes_late_is_adopted(self) -> None:
        chunks = chunks_of(said(call(0, None, "f", "{"), call(0, "a", None, "}"), call(0, "a", None, "")))
        assert calls_of(chunks) == [("a", "f", "{}")]

    def test_a_name_that_comes_late_is_adopted(self) -> None:
        chunks = chunks_of(said(call(0, "a", "", ""), call(0, "a", "f", ""), call(0, None, None, "{}")))
        assert calls_of(chunks) == [("a", "f", "{}")]

    def test_without_ids_the_assembler_would_name_it_alike(self) -> None:
        chunks = chunks_of(said({"content": "a"}, call(0, None, "f", "{}")))
        assert calls_of(chunks) == [("call-1", "f", "{}")]
        assert [chunk.id for chunk in chunks if isinstance(chunk, ToolCallDelta)] == [None]

    @pytest.mark.parametrize("index", [None, 0])
    def test_whole_calls_without_ids_at_one_index_or_none(self, index: int | None) -> None:
        chunks = chunks_of(said(call(index, None, "f", '{"a":1}'), call(index, None, "f", '{"a":2}')))
        assert [arguments for _, _, arguments in calls_of(chunks)] == ['{"a":1}', '{"a":2}']

    def test_a_repeated_name_without_id_goes_on_with_the_call(self) -> None:
        chunks = chunks_of(said(call(0, "a", "f", '{"a":"}'), call(0, "", "f", '{"}')))
        assert calls_of(chunks) == [("a", "f", '{"a":"}{"}')]

    def test_a_part_that_says_nothing_new_makes_no_chunk_and_ends_no_text(self) -> None:
        again = call(0, "a", "f", "")
        chunks = chunks_of(said(call(0, "a", "f", "{}"), {"content": "b"}, again, {"content": "c"}))
        assert [block["type"] for block in streams.blocks_of(chunks)] == ["tool-call", "text"]
        assert sum(isinstance(chunk, ToolCallDelta) for chunk in chunks) == 1

    def test_numbers_as_ids(self) -> None:
        assert calls_of(chunks_of(said(call(0, 7, "f", "{}"), call(0, 7, None, "")))) == [("7", "f", "{}")]

    @pytest.mark.parametrize("arguments", ["", None, " "])
    def test_empty_arguments_are_complete(self, arguments: str | None) -> None:
        chunks = chunks_of(said(call(0, "a", "f", arguments), finish="tool_calls"))
        assert calls_of(chunks) == [("a", "f", arguments or "")]
        assert streams.finish_of(chunks).reason == ToolCalls(raw="tool_calls")

    def test_arguments_as_an_object_are_written_compactly(self) -> None:
        chunks = chunks_of(said(call(0, "a", "f", {"x": [1, "é"]}), finish="stop"))
        assert calls_of(chunks) == [("a", "f", '{"x":[1,"é"]}')]
        assert streams.finish_of(chunks).reason == ToolCalls(raw="stop")

    def test_a_call_without_function_waits_for_its_rest(self) -> None:
        chunks = chunks_of(said({"tool_calls": [{"index": 0, "id": "a"}]}, call(0, None, "f", "{}")))
        assert calls_of(chunks) == [("a", "f", "{}")]

    def test_max_tokens_closes_only_calls_that_are_complete_and_not_the_last(self) -> None:
        chunks = chunks_of(
            said(call(0, "a", "f", "{}"), call(1, "b", "g", "{"), call(2, "c", "h", "{}"), finish="length")
        )
        assert calls_of(chunks) == [("a", "f", "{}")]
        assert streams.finish_of(chunks).reason == MaxTokens(raw="length")

    def test_max_tokens_closes_a_call_that_text_followed(self) -> None:
        assert calls_of(chunks_of(said(call(0, "a", "f", "{}"), {"content": "t"}, finish="length")))

    def test_a_cut_call_is_no_tool_turn_whatever_the_server_says(self) -> None:
        chunks = chunks_of(said(call(0, "a", "f", '{"x":1'), finish="tool_calls"))
        assert calls_of(chunks) == []
        assert streams.finish_of(chunks).reason == MaxTokens(raw="tool_calls")


class TestFinish:
    @pytest.mark.parametrize(
        ("word", "kind"),
        [("stop", "stop"), ("tool_calls", "tool-calls"), ("length", "max-tokens"), ("STOP", "stop")],
    )
    def test_D05_known_words(self, word: str, kind: str) -> None:
        reason = streams.finish_of(chunks_of(said({"content": "a"}, finish=word))).reason
        assert (reason.kind, reason.raw) == (kind, word)

    @pytest.mark.parametrize(
        ("word", "code"),
        [
            ("content_filter", "CONTENT_FILTER"),
            ("refusal", "REFUSAL"),
            ("some_new_word", "SOME_NEW_WORD"),
            ("insufficient_system_resource", "SERVER"),
        ],
    )
    def test_D05_any_other_word_is_an_error(self, word: str, code: str) -> None:
        reason = streams.finish_of(chunks_of(said({"content": "a"}, finish=word))).reason
        assert isinstance(reason, Error)
        assert (reason.failure.code, reason.raw) == (code, word)

    def test_D07_done_ends_and_later_data_is_ignored(self) -> None:
        body = said({"content": "a"}, finish="stop")
        assert chunks_of(body + said({"content": "b"}) + b"data: garbage\n\n") == chunks_of(body)

    def test_D07_a_clean_end_without_a_terminal_signal(self) -> None:
        chunks, translator = streams.translate([said({"content": "a"}, done=False)])
        assert chunks == [BlockStart(0, "text"), TextDelta(0, "a")]
        assert translator.failure is not None
        assert translator.failure.code == "STREAM_CLOSED"

    def test_a_clean_end_after_a_finish_word(self) -> None:
        chunks, _ = streams.translate([said({"content": "a"}, finish="stop", done=False)])
        assert streams.finish_of(chunks).reason == Stop(raw="stop")

    def test_a_broken_end_is_somebody_elses_failure(self) -> None:
        chunks, translator = streams.translate(
            [said({"content": "a"}, finish="stop", done=False)], clean=False
        )
        assert not translator.terminal
        assert translator.failure is None
        assert len(chunks) == 2

    def test_D07_bad_json(self) -> None:
        chunks, translator = streams.translate([said({"content": "a"}, done=False) + b"data: {]\n\n"])
        assert len(chunks) == 2
        assert translator.failure is not None
        assert translator.failure.code == "MALFORMED_RESPONSE"


class TestErrors:
    @pytest.mark.parametrize(
        ("event", "code"),
        [
            ({"error": {"message": "no", "code": 429}}, "RATE_LIMIT"),
            ({"error": "overloaded", "choices": []}, "SERVER"),
            (
                {"message": "no such thing", "type": "BadRequestError", "code": 400, "object": "error"},
                "INVALID_REQUEST",
            ),
            ({"detail": "gone", "code": 500}, "SERVER"),
            ({"x_groq": {"error": {"message": "no", "code": "rate_limit_exceeded"}}}, "RATE_LIMIT"),
        ],
    )
    def test_D07_an_error_inside_the_stream_is_that_error(self, event: Any, code: str) -> None:
        assert streams.code_of(chunks_of(said({"content": "a"}, done=False) + frame(event) + said())) == code

    def test_an_event_named_error_is_one_whatever_its_shape(self) -> None:
        body = b'event: error\ndata: {"statusCode": 503, "reason": "x"}\n\n'
        assert streams.code_of(chunks_of(body)) == "SERVER"

    def test_null_and_empty_errors_are_none(self) -> None:
        ok = {"error": None, "choices": [{"delta": {"content": "a"}}]}
        assert streams.finish_of(chunks_of(frame(ok) + said())).reason == Stop()

    def test_after_an_error_only_the_counts_are_read(self) -> None:
        body = (
            said({"content": "a"}, done=False)
            + frame(
                {
                    "error": {"message": "no", "code": 502},
                    "choices": [{"delta": {"content": "b"}, "finish_reason": "error"}],
                }
            )
            + frame(
                {
                    "choices": [{"delta": {"content": "c"}}],
                    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
                }
            )
        )
        chunks = chunks_of(body)
        assert streams.blocks_of(chunks) == [{"type": "text", "text": "a"}]
        assert streams.usage_of(chunks) == TokenUsage(3, 1)
        assert streams.finish_of(chunks).reason.raw == "error"

    def test_a_failure_inside_the_stream_names_the_request(self) -> None:
        translator, out = ChatTranslator(), list[StreamChunk]()
        translator.request_id = ProviderRequestId("r-1")
        event = decode_event("", b'{"error": {"message": "no"}}')
        assert event is not None
        translator.feed(event, out)
        assert translator.ending
        translator.close(False, out)
        finish = out[-1]
        assert isinstance(finish, Finish)
        assert isinstance(finish.reason, Error)
        assert finish.reason.failure.request_id == "r-1"


class TestProgress:
    @pytest.mark.parametrize(
        ("event", "progressed"),
        [
            (b'{"choices": [{"delta": {"role": "assistant", "content": ""}}]}', False),
            (b'{"choices": []}', False),
            (b'{"type": "ping"}', False),
            (b'{"choices": null}', False),
            (b'{"choices": [{"delta": {}, "finish_reason": "stop"}]}', True),
            (b'{"choices": [], "usage": {"prompt_tokens": 1}}', True),
            (b'{"choices": [{"delta": {"content": "\\ud83c"}}]}', True),
            (b'{"choices": [{"delta": {"reasoning_details": []}}]}', False),
            (b'{"choices": [{"delta": {"reasoning_details": [{"type": "reasoning.encrypted"}]}}]}', True),
            (b'{"choices": [{"delta": {"extra_content": {"google": {"thought_signature": "s"}}}}]}', True),
        ],
    )
    def test_pings_and_empty_events_are_no_progress(self, event: bytes, progressed: bool) -> None:
        translator, out = ChatTranslator(), list[StreamChunk]()
        decoded = decode_event("", event)
        assert decoded is not None
        translator.feed(decoded, out)
        assert (translator.progressed or bool(out)) is progressed

    @pytest.mark.parametrize(
        "again", [call(0, "a", "f", "{}"), {"content": "</thought>"}], ids=["call", "tag"]
    )
    def test_what_says_nothing_new_is_progress_all_the_same(self, again: dict[str, Any]) -> None:
        thought = {"content": "<thought>a", "extra_content": {"google": {"thought": True}}}
        translator, out = ChatTranslator(), list[StreamChunk]()
        for delta in (call(0, "a", "f", "{}"), thought, again):
            out.clear()
            translator.progressed = False
            event = decode_event("", json.dumps({"choices": [{"delta": delta}]}).encode())
            assert event is not None
            translator.feed(event, out)
        assert (out, translator.progressed) == ([], True)

    @pytest.mark.parametrize("payload", [b": keepalive", b"", b"  "])
    def test_payloads_that_carry_nothing(self, payload: bytes) -> None:
        assert decode_event("", payload) is None

    @pytest.mark.parametrize("payload", [b"[DONE]", b" [DONE] "])
    def test_the_marker(self, payload: bytes) -> None:
        assert decode_event("", payload) is DONE

    @pytest.mark.parametrize("payload", [b"hello", b"3", b"null", b"[" * 100_000, b'{"choices": 3}'])
    def test_D07_what_is_no_event_is_malformed(self, payload: bytes) -> None:
        with pytest.raises(LlmError) as caught:
            decode_event("", payload)
        assert caught.value.code == "MALFORMED_RESPONSE"

    def test_a_number_in_a_string_is_taken(self) -> None:
        event = decode_event(
            "", b'{"choices": [{"index": "0", "delta": {"tool_calls": [{"index": "1", "id": 4}]}}]}'
        )
        assert event is not None
        assert event.choices is not None
        assert event.choices[0].index == 0


class TestSurrogates:
    @given(st.lists(st.text(st.characters(codec="utf-16-le"), min_size=1), min_size=1), st.data())
    def test_pairs_split_over_deltas_are_joined(self, texts: list[str], data: st.DataObject) -> None:
        text = "".join(texts)
        units = text.encode("utf-16-le", "surrogatepass")
        ends = sorted({2 * data.draw(st.integers(0, len(units) // 2)) for _ in range(4)} | {0, len(units)})
        pieces = [units[a:b].decode("utf-16-le", "surrogatepass") for a, b in itertools.pairwise(ends)]
        kind = data.draw(st.sampled_from(["content", "reasoning_content", "arguments"]))
        deltas = [call(0, "a", "f", piece) if kind == "arguments" else {kind: piece} for piece in pieces]
        chunks = chunks_of(said(*deltas, finish="length"))
        block = streams.blocks_of(chunks)[0]
        assert block["arguments" if kind == "arguments" else "text"] == text

    def test_a_lone_half_is_given_out_when_its_block_ends(self) -> None:
        chunks = chunks_of(
            said({"reasoning": "a\ud83c"}, {"content": "\ud83c"}, {"content": "b"}, finish="stop")
        )
        assert [block["text"] for block in streams.blocks_of(chunks)] == ["a\ud83c", "\ud83cb"]

    def test_a_lone_half_at_the_end_of_arguments(self) -> None:
        chunks = chunks_of(said(call(0, "a", "f", '"\ud83c'), call(0, "a", None, '"'), finish="stop"))
        assert calls_of(chunks) == [("a", "f", '"\ud83c"')]


class TestUsage:
    def test_costs_and_durations_are_facts(self) -> None:
        translator, out = ChatTranslator(), list[StreamChunk]()
        event = decode_event(
            "",
            b'{"usage": {"prompt_tokens": 1, "cost": 0.5, "queue_time": 2}, "timings": {"ms": 3.5}}',
        )
        assert event is not None
        translator.feed(event, out)
        assert translator.facts == {"cost": 0.5, "queue_time": 2, "ms": 3.5}

    def test_usage_beside_and_inside_the_choices(self) -> None:
        groq = {"choices": [{"delta": {"content": "a"}}], "x_groq": {"usage": {"prompt_tokens": 4}}}
        moonshot = {"choices": [{"delta": {}, "usage": {"prompt_tokens": 5}}]}
        assert streams.usage_of(chunks_of(frame(groq) + said())) == TokenUsage(4, 0)
        assert streams.usage_of(chunks_of(frame(groq) + frame(moonshot) + said())) == TokenUsage(5, 0)


def _seconds_for(fragments: int) -> float:
    body = said(
        call(0, "a", "f", '{"c":"'),
        *[call(0, None, None, "xxxxxxxx")] * fragments,
        call(0, None, None, '"}'),
        finish="tool_calls",
    )
    begun = time.process_time()
    chunks = chunks_of(body)
    spent = time.process_time() - begun
    assert calls_of(chunks) == [(CallId("a"), "f", '{"c":"' + "x" * 8 * fragments + '"}')]
    return spent


def test_a_hundred_thousand_argument_deltas_cost_linear_time() -> None:
    # Linear is 4, quadratic 16; a busy machine may spoil one measurement, not three.
    assert any(_seconds_for(100_000) <= 8 * max(_seconds_for(25_000), 0.02) for _ in range(3))
