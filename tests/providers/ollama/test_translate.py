"""Lines of a chat stream to chunks."""

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
from trio_llm.model.messages import ModelSource
from trio_llm.protocol.assembler import BlockAssembler

from .. import streams
from .lines import call, chunks_of, done, line, says, translate


def test_S01_thinking_text_and_calls_in_one_line_and_the_next() -> None:
    chunks = chunks_of(
        says("", thinking="hm"),
        says("an", thinking="m"),
        says("swer", tool_calls=[call("ls", {"a": [1, "é"]}), call("ls", {}, id="c-9")]),
        done(),
    )
    assert chunks == [
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "hm"),
        ReasoningDelta(0, "m"),
        BlockEnd(0, ReasoningBlock("hmm")),
        BlockStart(1, "text"),
        TextDelta(1, "an"),
        TextDelta(1, "swer"),
        BlockEnd(1, TextBlock("answer")),
        BlockStart(2, "tool-call"),
        ToolCallDelta(2, CallId("call-2"), "ls", ""),
        ToolCallDelta(2, CallId("call-2"), None, '{"a":[1,"é"]}'),
        BlockEnd(2, ToolCallBlock(CallId("call-2"), "ls", '{"a":[1,"é"]}')),
        BlockStart(3, "tool-call"),
        ToolCallDelta(3, CallId("c-9"), "ls", ""),
        ToolCallDelta(3, CallId("c-9"), None, "{}"),
        BlockEnd(3, ToolCallBlock(CallId("c-9"), "ls", "{}")),
        Usage(TokenUsage(4, 3)),
        Finish(ToolCalls(raw="stop")),
    ]


@pytest.mark.parametrize(
    ("arguments", "raw"),
    [({"b": 1, "a": 2}, '{"b":1,"a":2}'), (None, "{}"), ('{"a": 1}', '{"a": 1}'), ("", ""), ([1], "[1]")],
)
def test_P08_arguments_are_compact_text_in_their_own_order(arguments: Any, raw: str) -> None:
    [block] = streams.blocks_of(chunks_of(says(tool_calls=[call("ls", arguments)]), done()))
    assert (block["arguments"], block["closed"]) == (raw, True)


def test_a_call_without_a_function_is_none() -> None:
    chunks = chunks_of(says("a", tool_calls=[{"id": "x"}]), done())
    assert [block["type"] for block in streams.blocks_of(chunks)] == ["text"]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", Stop(raw="stop")),
        (None, Stop()),
        ("", Stop()),
        ("length", MaxTokens(raw="length")),
        ("unload", Stop(raw="unload")),
        ("load", Stop(raw="load")),
    ],
)
def test_D05_words(word: str | None, reason: Any) -> None:
    chunks = chunks_of(says("a"), done(word))
    assert chunks[-1] == Finish(reason)
    assert BlockEnd(0, TextBlock("a")) in chunks


def test_D05_an_unknown_word_is_an_error() -> None:
    reason = streams.finish_of(chunks_of(says("a"), done("kaput"))).reason
    assert isinstance(reason, Error)
    assert (reason.failure.code, reason.raw) == ("KAPUT", "kaput")


@pytest.mark.parametrize("word", ["stop", "load", "unload", None])
def test_no_block_is_an_empty_response(word: str | None) -> None:
    chunks = chunks_of(says(""), says(None), done(word))
    assert streams.code_of(chunks) == "EMPTY_RESPONSE"
    reason = streams.finish_of(chunks).reason
    assert isinstance(reason, Error)
    assert (word in ("load", "unload")) == ("model" in reason.failure.message)


def test_length_without_blocks_stays_max_tokens() -> None:
    assert chunks_of(done("length"))[-1] == Finish(MaxTokens(raw="length"))


def test_S06_max_tokens_leaves_the_last_call_open() -> None:
    chunks = chunks_of(says(tool_calls=[call("a", {}), call("b", {})]), done("length"))
    assert [block.get("closed") for block in streams.blocks_of(chunks)] == [True, None]
    assembler = BlockAssembler()
    assembler.push_all(chunks)
    assert [getattr(block, "name", None) for block in assembler.blocks()] == ["a"]
    assert [block.name for block in assembler.incomplete_calls] == ["b"]
    assert assembler.message(ModelSource("p", "m")).content == assembler.blocks()


@pytest.mark.parametrize("word", ["stop", "length"])
def test_S06_arguments_as_text_that_is_not_whole_leave_their_call_open(word: str) -> None:
    chunks = chunks_of(says(tool_calls=[call("a", '{"x": "y'), call("b", "{}"), call("c", " ")]), done(word))
    blocks = streams.blocks_of(chunks)
    assert [block.get("closed") for block in blocks] == [None, True, None if word == "length" else True]
    assert blocks[0]["arguments"] == '{"x": "y'
    assert streams.finish_of(chunks).reason == MaxTokens(raw=word)


def test_D07_nothing_after_done_counts() -> None:
    assert chunks_of(says("a"), done(), says("b"), done("length")) == chunks_of(says("a"), done())


def test_D07_no_last_line() -> None:
    chunks, translator = translate([says("a")])
    assert chunks == [BlockStart(0, "text"), TextDelta(0, "a")]
    assert translator.failure is not None
    assert translator.failure.code == "STREAM_CLOSED"


def test_a_body_that_did_not_end_properly_is_the_transports_to_tell() -> None:
    _, translator = translate([says("a")], clean=False)
    assert translator.failure is None
    assert not translator.terminal


@pytest.mark.parametrize("bad", [b"{\n", b"what?\n", b"[1]\n", b'"a"\n'])
def test_D07_a_line_that_is_no_json_object(bad: bytes) -> None:
    chunks, translator = translate([says("a") + bad])
    assert chunks == [BlockStart(0, "text"), TextDelta(0, "a")]
    assert translator.failure is not None
    assert translator.failure.code == "MALFORMED_RESPONSE"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("an error was encountered while running the model", "SERVER"),
        ({"message": "slow down", "code": 429}, "RATE_LIMIT"),
        ("prompt too long; exceeded max context length by 4 tokens", "CONTEXT_WINDOW_EXCEEDED"),
    ],
)
def test_D07_an_error_line_is_that_error(error: Any, code: str) -> None:
    chunks = chunks_of(says("a"), line(error=error), says("b"), done())
    assert chunks[:-1] == [BlockStart(0, "text"), TextDelta(0, "a")]
    assert streams.code_of(chunks) == code


def test_counts() -> None:
    assert streams.usage_of(chunks_of(says("a"), done(prompt_eval_count=None))) == TokenUsage(0, 3)
    none = chunks_of(says("a"), done(prompt_eval_count=None, eval_count=None))
    assert streams.usage_of(none) is None
    assert streams.usage_of(chunks_of(says("a"), done(prompt_eval_count=-1))) == TokenUsage(0, 3)


def test_durations_are_facts_as_the_server_calls_them() -> None:
    _, translator = translate([says("a"), done(load_duration=7, prompt_eval_duration=0, context=[1])])
    assert translator.facts == {"load_duration": 7, "prompt_eval_duration": 0}


def test_a_character_in_two_halves_is_joined() -> None:
    chunks = chunks_of(
        b'{"message":{"content":"a\\ud83c"}}\n', b'{"message":{"content":"\\udf63b"}}\n', done()
    )
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["a", "\U0001f363b"]


def test_half_a_character_is_shown_at_the_end_of_its_block() -> None:
    chunks = chunks_of(b'{"message":{"content":"\\ud83c"}}\n', says(thinking="x"), done())
    assert [block["text"] for block in streams.blocks_of(chunks)] == ["\ud83c", "x"]


def test_progress_is_what_says_something() -> None:
    _, translator = translate([says("")])
    assert not translator.progressed
    for said in (says("a"), says(thinking="a"), says(tool_calls=[call("a", {})])):
        assert translate([said])[1].progressed


PIECES = st.sampled_from(
    [says("a"), says("é"), says(""), says(thinking="t"), says(tool_calls=[call("f", {"a": 1})]), says(None)]
)


@settings(max_examples=100)
@given(st.lists(PIECES, max_size=8), st.sampled_from(["stop", "length", "odd", None]), st.data())
def test_any_stream_is_grammatical_and_any_cut_gives_the_same(
    pieces: list[bytes], word: str | None, data: st.DataObject
) -> None:
    body = b"".join([*pieces, done(word)])
    chunks = translate([body])[0]
    streams.check_grammar(chunks)
    sizes = data.draw(st.lists(st.integers(1, 60), max_size=30))
    assert translate(streams.cut(body, sizes))[0] == chunks
