"""Events of a Gemini stream to chunks."""

from __future__ import annotations

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
from trio_llm.model.identifiers import CallId
from trio_llm.protocol.assembler import BlockAssembler

from .. import streams
from ..streams import replay_of
from .events import call, chunks_of, end, event, frame, message_of, piece, text, thought, translate

CODE = {"executableCode": {"language": "PYTHON", "code": "1"}}


def test_S01_thoughts_text_and_calls() -> None:
    chunks = chunks_of(
        event(thought("h"), thought("m")),
        event(text("a")),
        event(text("b"), call("ls", {"a": [1, "é"]}), call("ls", id="c-9")),
        end(text("")),
    )
    assert chunks[:-2] == [
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "h"),
        ReasoningDelta(0, "m"),
        BlockEnd(0, ReasoningBlock("hm")),
        BlockStart(1, "text"),
        TextDelta(1, "a"),
        TextDelta(1, "b"),
        BlockEnd(1, TextBlock("ab")),
        BlockStart(2, "tool-call"),
        ToolCallDelta(2, CallId("call-2"), "ls", ""),
        ToolCallDelta(2, CallId("call-2"), None, '{"a":[1,"é"]}'),
        BlockEnd(2, ToolCallBlock(CallId("call-2"), "ls", '{"a":[1,"é"]}')),
        BlockStart(3, "tool-call"),
        ToolCallDelta(3, CallId("c-9"), "ls", ""),
        ToolCallDelta(3, CallId("c-9"), None, "{}"),
        BlockEnd(3, ToolCallBlock(CallId("c-9"), "ls", "{}")),
    ]
    assert chunks[-2] == Usage(TokenUsage(4, 3))
    assert streams.finish_of(chunks).reason == ToolCalls(raw="STOP")


def test_a_part_that_is_not_shown_ends_a_text_and_stays_in_its_place() -> None:
    chunks = chunks_of(event(text("a"), CODE, text("b")), end({"inlineData": {}}, {}))
    assert [block["text"] for block in streams.blocks_of(chunks)] == ["a", "b"]
    state = replay_of(chunks)
    assert [entry.get("before") for entry in state.blocks] == [None, (CODE,)]
    assert state.response == {"version": 1, "after": ({"inlineData": {}},)}


def test_signatures_stay_where_they_stood() -> None:
    chunks = chunks_of(
        event(thought("t", "s1"), thought("u")),
        event(text("a"), text("bc", "s2"), text("", "s3"), text("d")),
        end(call("f", {}, "s4"), text("", "s5")),
    )
    thoughts, said, called = replay_of(chunks).blocks
    assert thoughts == {"type": "thought", "signed": ((0, 1, "s1"),)}
    assert said == {"type": "text", "signed": ((1, 3, "s2"), (3, 3, "s3"))}
    assert called == {"type": "call", "signature": "s4"}
    assert replay_of(chunks).response["after"] == (text("", "s5"),)


def test_a_signature_in_front_of_everything() -> None:
    chunks = chunks_of(event(text("", "s1")), end(text("a")))
    assert [block["text"] for block in streams.blocks_of(chunks)] == ["a"]
    assert replay_of(chunks).blocks == ({"type": "text", "before": (text("", "s1"),)},)


class TestPartialArguments:
    def test_pieces_make_an_object(self) -> None:
        chunks = chunks_of(
            event(call("f", None, "s", willContinue=True)),
            event(call(None, partialArgs=[piece("$.a", "x", more=True)], willContinue=True)),
            event(call(None, partialArgs=[piece("$.a", "y")], willContinue=True)),
            event(
                call(
                    None,
                    partialArgs=[
                        piece("$.b[0].c", 1.5),
                        piece("$.b[0]['d e']", True),
                        piece('$.b[1]["f"]', None),
                        piece("$.n[0][0]", 1),
                        piece("$.n[0][0]", 2),
                    ],
                    willContinue=True,
                )
            ),
            end(call(None)),
        )
        [block] = streams.blocks_of(chunks)
        assert block["arguments"] == '{"a":"xy","b":[{"c":1.5,"d e":true},{"f":null}],"n":[[2]]}'
        assert block["closed"]
        deltas = [chunk for chunk in chunks if isinstance(chunk, ToolCallDelta)]
        assert [delta.name for delta in deltas] == ["f", None]
        assert replay_of(chunks).blocks == ({"type": "call", "signature": "s"},)

    def test_a_call_ends_when_another_part_begins(self) -> None:
        open_call = event(call("f", partialArgs=[piece("$.a", 1)], willContinue=True))
        for after in (text("x"), call("g", {}), CODE):
            chunks = chunks_of(open_call, end(after))
            assert streams.blocks_of(chunks)[0]["arguments"] == '{"a":1}'
            assert streams.finish_of(chunks).reason == ToolCalls(raw="STOP")

    def test_a_text_that_was_cut_leaves_its_call_open(self) -> None:
        open_call = event(call("f", partialArgs=[piece("$.a", "x", more=True)], willContinue=True))
        for last in (end(), end(text("x")), end(call("g", {}))):
            chunks = chunks_of(open_call, last)
            assert "closed" not in streams.blocks_of(chunks)[0]
            assert streams.finish_of(chunks).reason == MaxTokens(raw="STOP")
            assert "f" not in [getattr(block, "name", None) for block in message_of(chunks).content]

    def test_a_character_in_two_halves_is_joined(self) -> None:
        first = event(call("f", partialArgs=[piece("$.a", "\ud83c", more=True)], willContinue=True))
        chunks = chunks_of(first, end(call(None, partialArgs=[piece("$.a", "\udf63")])))
        assert streams.blocks_of(chunks)[0]["arguments"] == '{"a":"\U0001f363"}'

    @pytest.mark.parametrize(
        "bad",
        [
            {},
            "what?",
            piece("", 1),
            piece("$", 1),
            piece("a", 1),
            piece("$.a[", 1),
            piece("$..a", 1),
            piece("$[0]", 1),
            piece("$.l[5]", 1),
            piece("$.l.a", 1),
            piece("$.s.a", 1),
            piece("$.s[0]", 1),
            piece("$.l[99999999999]", 1),
        ],
    )
    def test_a_piece_without_a_place(self, bad: Any) -> None:
        body = event(call("f", {"l": [1], "s": "x"}, partialArgs=[bad])) + end()
        chunks, translator = translate([body])
        assert chunks[0] == BlockStart(0, "tool-call")
        assert translator.failure is not None
        assert translator.failure.code == "MALFORMED_RESPONSE"

    def test_a_piece_without_a_value_says_nothing(self) -> None:
        chunks = chunks_of(end(call("f", {"a": 1}, partialArgs=[{"jsonPath": "$.b"}])))
        assert streams.blocks_of(chunks)[0]["arguments"] == '{"a":1}'


@pytest.mark.parametrize("args", [None, [1], "x"])
def test_arguments_that_are_no_object(args: Any) -> None:
    chunks = chunks_of(end(call("f", args)))
    assert streams.blocks_of(chunks)[0]["arguments"] == "{}"


def test_an_empty_call_is_none() -> None:
    assert [block["type"] for block in streams.blocks_of(chunks_of(event(text("a")), end(call(None))))] == [
        "text"
    ]


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("SAFETY", "CONTENT_FILTER"),
        ("RECITATION", "CONTENT_FILTER"),
        ("BLOCKLIST", "CONTENT_FILTER"),
        ("PROHIBITED_CONTENT", "CONTENT_FILTER"),
        ("SPII", "CONTENT_FILTER"),
        ("IMAGE_SAFETY", "CONTENT_FILTER"),
        ("MODEL_ARMOR", "CONTENT_FILTER"),
        ("MALFORMED_FUNCTION_CALL", "MALFORMED_FUNCTION_CALL"),
        ("UNEXPECTED_TOOL_CALL", "UNEXPECTED_TOOL_CALL"),
        ("LANGUAGE", "LANGUAGE"),
        ("OTHER", "OTHER"),
        ("brandNew", "BRANDNEW"),
    ],
)
def test_D05_words_that_are_errors(word: str, code: str) -> None:
    chunks = chunks_of(event(text("a")), end(word=word))
    reason = streams.finish_of(chunks).reason
    assert isinstance(reason, Error)
    assert (reason.failure.code, reason.raw) == (code, word)
    assert word in reason.failure.message
    assert replay_of(chunks) is None
    assert streams.usage_of(chunks) == TokenUsage(4, 3)


def test_the_provider_says_why() -> None:
    candidate = {"finishReason": "SAFETY", "finishMessage": "Not that.", "groundingMetadata": {"a": 1}}
    chunks, translator = translate([frame({"candidates": [candidate]})])
    reason = streams.finish_of(chunks).reason
    assert isinstance(reason, Error)
    assert reason.failure.message == "Not that."
    assert translator.facts == {"finishMessage": "Not that.", "groundingMetadata": {"a": 1}}


@pytest.mark.parametrize("feedback", [{"blockReason": "SAFETY"}, {"blockReason": "OTHER"}])
def test_a_blocked_prompt_is_a_content_filter(feedback: dict[str, Any]) -> None:
    chunks = chunks_of(frame({"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 4}}))
    assert streams.code_of(chunks) == "CONTENT_FILTER"
    assert streams.finish_of(chunks).reason.raw == feedback["blockReason"]
    assert streams.usage_of(chunks) == TokenUsage(4, 0)


def test_a_blocked_prompt_with_a_message() -> None:
    feedback = {"blockReason": "MODEL_ARMOR", "blockReasonMessage": "Policy."}
    reason = streams.finish_of(chunks_of(frame({"promptFeedback": feedback}))).reason
    assert isinstance(reason, Error)
    assert reason.failure.message == "Policy."


def test_feedback_that_blocks_nothing() -> None:
    chunks = chunks_of(frame({"promptFeedback": {"safetyRatings": []}}), end(text("a")))
    assert streams.finish_of(chunks).reason == Stop(raw="STOP")


def test_no_block_is_an_empty_response() -> None:
    for body in (end(), end(text("")), end(CODE), event(thought("")) + end()):
        assert streams.code_of(chunks_of(body)) == "EMPTY_RESPONSE"


def test_max_tokens_without_blocks_stays_max_tokens() -> None:
    assert streams.finish_of(chunks_of(end(word="MAX_TOKENS"))).reason == MaxTokens(raw="MAX_TOKENS")


def test_S06_max_tokens_leaves_the_last_call_open() -> None:
    chunks = chunks_of(event(text("t"), call("a", {}), call("b", {}, "s")), end(word="MAX_TOKENS"))
    assert [block.get("closed") for block in streams.blocks_of(chunks)] == [True, True, None]
    assembler = BlockAssembler()
    assembler.push_all(chunks)
    assert [block.name for block in assembler.incomplete_calls] == ["b"]
    assert assembler.replay_state is not None
    assert assembler.replay_state.blocks == ({"type": "text"}, {"type": "call"})


def test_max_tokens_ends_a_text() -> None:
    for part in (text("a"), thought("a")):
        assert streams.blocks_of(chunks_of(end(part, word="MAX_TOKENS")))[0]["closed"]


def test_a_word_in_every_event_and_none_in_the_last() -> None:
    chunks = chunks_of(event(text("a"), word="STOP"), event(text("b"), word="STOP"), event(text("c")))
    assert streams.blocks_of(chunks) == [{"type": "text", "text": "abc", "closed": True}]
    assert streams.finish_of(chunks).reason == Stop(raw="STOP")


def test_D07_no_word() -> None:
    chunks, translator = translate([event(text("a"))])
    assert chunks == [BlockStart(0, "text"), TextDelta(0, "a")]
    assert translator.failure is not None
    assert translator.failure.code == "STREAM_CLOSED"


def test_a_word_before_a_broken_end_is_not_enough() -> None:
    chunks, translator = translate([end(text("a"))], clean=False)
    assert not translator.terminal
    assert not any(isinstance(chunk, (Usage, Finish)) for chunk in chunks)


def test_D07_an_error_in_the_stream_is_that_error() -> None:
    error = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    chunks = chunks_of(
        event(text("a"), usageMetadata={"promptTokenCount": 4}), frame({"error": error}), end()
    )
    assert chunks[:-2] == [BlockStart(0, "text"), TextDelta(0, "a")]
    assert streams.usage_of(chunks) == TokenUsage(4, 0)
    reason = streams.finish_of(chunks).reason
    assert isinstance(reason, Error)
    assert (reason.failure.code, reason.failure.status) == ("SERVER", 503)
    assert reason.failure.message == "The model is overloaded."


@pytest.mark.parametrize("bad", [b"data: {\n\n", b"data: what?\n\n", b"data: [1]\n\n"])
def test_D07_an_event_that_is_no_json_object(bad: bytes) -> None:
    chunks, translator = translate([event(text("a")) + bad])
    assert chunks == [BlockStart(0, "text"), TextDelta(0, "a")]
    assert translator.failure is not None
    assert translator.failure.code == "MALFORMED_RESPONSE"


def test_what_gateways_put_in_says_nothing() -> None:
    noise = b": ping\n\ndata: : ping\n\ndata:  \n\ndata: [DONE]\n\n"
    assert chunks_of(noise, end(text("a")), noise) == chunks_of(end(text("a")))


def test_other_candidates_are_not_read() -> None:
    other = {"candidates": [{"index": 1, "content": {"parts": [text("b")]}, "finishReason": "OTHER"}]}
    assert chunks_of(frame(other), end(text("a")), frame(other)) == chunks_of(end(text("a")))


def test_null_everywhere() -> None:
    nothing = {"candidates": None, "usageMetadata": None, "promptFeedback": None, "error": None}
    empty = {"candidates": [{"content": None, "finishReason": None, "index": None}]}
    bare = {"candidates": [{"content": {"parts": None}}]}
    assert chunks_of(frame(nothing), frame(empty), frame(bare), end(text("a"))) == chunks_of(end(text("a")))


class TestUsage:
    @pytest.mark.parametrize(
        ("raw", "usage"),
        [
            ({"promptTokenCount": 10, "cachedContentTokenCount": 4}, TokenUsage(6, 0, 4)),
            ({"promptTokenCount": 10, "toolUsePromptTokenCount": 5}, TokenUsage(15, 0)),
            ({"candidatesTokenCount": 2, "thoughtsTokenCount": 3}, TokenUsage(0, 5, reasoning_tokens=3)),
            ({"promptTokenCount": 1, "cachedContentTokenCount": 4}, TokenUsage(0, 0, 4)),
            (
                {"promptTokenCount": 1, "candidatesTokenCount": -1, "thoughtsTokenCount": "x"},
                TokenUsage(1, 0),
            ),
            ({"totalTokenCount": 1}, None),
            ({"trafficType": "ON_DEMAND"}, None),
            ([1], None),
        ],
    )
    def test_D06_disjoint_counts(self, raw: Any, usage: TokenUsage | None) -> None:
        chunks = chunks_of(event(text("a"), word="STOP", usageMetadata=raw))
        assert streams.usage_of(chunks) == usage

    def test_the_last_counts_hold_as_a_whole(self) -> None:
        first = event(text("a"), usageMetadata={"promptTokenCount": 9, "candidatesTokenCount": 7})
        last = event(word="STOP", usageMetadata={"promptTokenCount": 87, "trafficType": "X"})
        chunks, translator = translate([first, last, event(usageMetadata={"trafficType": "Y"})])
        assert streams.usage_of(chunks) == TokenUsage(87, 0)
        assert translator.facts == {"trafficType": "X"}

    def test_early_usage_is_one_object_until_there_are_others(self) -> None:
        _, translator = translate([event(text("a"), usageMetadata={"promptTokenCount": 9})])
        assert translator.early_usage == TokenUsage(9, 0)
        assert translator.early_usage is translator.early_usage


def test_half_a_character_is_shown_at_the_end_of_its_block() -> None:
    half = b'data: {"candidates":[{"content":{"parts":[{"text":"a\\ud83c"}]}}]}\n\n'
    other = b'data: {"candidates":[{"content":{"parts":[{"text":"\\udf63","thoughtSignature":"s"}]}}]}\n\n'
    assert [block["text"] for block in streams.blocks_of(chunks_of(half, end()))] == ["a\ud83c"]
    joined = chunks_of(half, other, end())
    assert [block["text"] for block in streams.blocks_of(joined)] == ["a\U0001f363"]
    assert replay_of(joined).blocks[0]["signed"] == ((1, 2, "s"),)


def test_progress_is_what_says_something() -> None:
    assert not translate([event(text(""))])[1].progressed
    for part in (text("a"), thought("a"), call("f", {}), CODE, text("", "s")):
        assert translate([event(part)])[1].progressed
    for name in ("groundingMetadata", "urlContextMetadata", "citationMetadata"):
        said = b'data: {"candidates":[{"content":{"parts":[]},"%s":{"a":1}}]}\n\n' % name.encode()
        assert translate([said])[1].progressed


PARTS = st.sampled_from(
    [
        text("a"),
        text("é", "s"),
        text("", "s"),
        text(""),
        thought("t"),
        call("f", {"a": 1}),
        call("g", willContinue=True),
        call(None, partialArgs=[piece("$.a", "x", more=True)], willContinue=True),
        call(None, partialArgs=[piece("$.a", "y")], willContinue=True),
        call(None),
        CODE,
    ]
)


@settings(max_examples=150)
@given(st.lists(PARTS, max_size=8), st.sampled_from(["STOP", "MAX_TOKENS", "SAFETY", "odd"]), st.data())
def test_any_stream_is_grammatical_and_any_cut_gives_the_same(
    parts: list[dict[str, Any]], word: str, data: st.DataObject
) -> None:
    body = b"".join([*map(event, parts), end(word=word)])
    chunks = translate([body])[0]
    streams.check_grammar(chunks)
    state = replay_of(chunks)
    if state is not None:
        assert len(state.blocks) == sum(isinstance(chunk, BlockStart) for chunk in chunks)
    sizes = data.draw(st.lists(st.integers(1, 80), max_size=30))
    assert translate(streams.cut(body, sizes))[0] == chunks
