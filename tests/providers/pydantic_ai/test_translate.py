"""The library's events as chunks, without any wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.model import codes
from trio_llm.model.chunks import (
    BlockEnd,
    Error,
    Finish,
    MaxTokens,
    Pause,
    Stop,
    StreamChunk,
    TokenUsage,
    ToolCallDelta,
    ToolCalls,
    Usage,
)
from trio_llm.providers.pydantic_ai.library import load_library
from trio_llm.providers.pydantic_ai.translate import PartsTranslator, token_usage

from ..streams import blocks_of, check_grammar, finish_of
from .support import needs_library

__all__ = ["needs_library"]

LIBRARY = load_library()
M = LIBRARY.messages
RequestUsage = LIBRARY.direct.RequestUsage


def start(index: int, part: Any) -> Any:
    return M.PartStartEvent(index=index, part=part)


def more(index: int, delta: Any) -> Any:
    return M.PartDeltaEvent(index=index, delta=delta)


def end(index: int, part: Any) -> Any:
    return M.PartEndEvent(index=index, part=part)


def answer(events: Iterable[Any], parts: list[Any], **fields: Any) -> list[StreamChunk]:
    """The chunks of a whole response; they follow the grammar."""
    translator, out = PartsTranslator(), list[StreamChunk]()
    for event in events:
        translator.feed(event, out)
    translator.finish(M, M.ModelResponse(parts=parts, **fields), None, out)
    check_grammar(out)
    return out


def test_indexes_are_given_in_order_of_first_appearance() -> None:
    text, call = M.TextPart("a"), M.ToolCallPart("look", "{}", "c1")
    chunks = answer(
        [start(3, M.NativeToolCallPart("search", "{}", "s")), start(5, text), end(5, text), start(9, call)],
        [text] * 9 + [call],
        finish_reason="tool_call",
    )
    assert [block["type"] for block in blocks_of(chunks)] == ["text", "tool-call"]
    assert isinstance(finish_of(chunks).reason, ToolCalls)


def test_P08_arguments_that_are_objects_are_one_compact_delta() -> None:
    part = M.ToolCallPart("look", {"at": {"x": [1, 2]}}, "c1")
    chunks = answer([start(0, part)], [part], finish_reason="stop")
    deltas = [chunk.arguments_delta for chunk in chunks if isinstance(chunk, ToolCallDelta)]
    assert deltas == ["", '{"at":{"x":[1,2]}}']


def test_P08_raw_arguments_pass_as_they_are() -> None:
    whole = M.ToolCallPart("look", '{ "at" : 1 }', "c1")
    events = [
        start(0, M.ToolCallPart("look", None, "c1")),
        more(0, M.ToolCallPartDelta(args_delta='{ "at"')),
        more(0, M.ToolCallPartDelta(args_delta=" : 1 }")),
    ]
    chunks = answer(events, [whole], finish_reason="tool_call")
    assert blocks_of(chunks)[0]["arguments"] == '{ "at" : 1 }'


def test_text_that_comes_after_its_end_is_a_block_of_its_own() -> None:
    text, call = M.TextPart("ab"), M.ToolCallPart("look", "{}", "c1")
    events = [start(0, M.TextPart("a")), end(0, text), start(1, call), more(0, M.TextPartDelta("b"))]
    chunks = answer(events, [text, call], finish_reason="tool_call")
    assert [block.get("text") for block in blocks_of(chunks)] == ["a", None, "b"]
    state = finish_of(chunks).replay_state
    assert state is not None
    assert state.blocks is not None
    assert len(state.blocks) == 3
    assert state.blocks[2] == {"part": None}


def test_a_part_that_becomes_another_closes_its_block() -> None:
    text, thought = M.TextPart("a"), M.ThinkingPart("b")
    chunks = answer([start(0, text), start(0, thought)], [thought], finish_reason="stop")
    assert [(block["type"], block["text"]) for block in blocks_of(chunks)] == [
        ("text", "a"),
        ("reasoning", "b"),
    ]


def test_halves_of_a_character_are_joined() -> None:
    text = M.TextPart("\U0001f600")
    events = [
        start(0, M.TextPart("\ud83d")),
        more(0, M.TextPartDelta("\ude00")),
        more(0, M.TextPartDelta("\ud83d")),
    ]
    chunks = answer(events, [text], finish_reason="stop")
    assert blocks_of(chunks)[0]["text"] == "\U0001f600\ud83d"


def test_max_tokens_leaves_a_cut_call_open() -> None:
    cut = M.ToolCallPart("look", '{"at": "x', "c1")
    whole = M.ToolCallPart("look", '{"at": 1}', "c2")
    chunks = answer([start(0, whole), start(1, cut)], [whole, cut], finish_reason="length")
    assert [chunk.index for chunk in chunks if isinstance(chunk, BlockEnd)] == [0]
    assert isinstance(finish_of(chunks).reason, MaxTokens)
    chunks = answer([start(0, whole)], [whole], finish_reason="length")
    assert not [chunk for chunk in chunks if isinstance(chunk, BlockEnd)]


def test_S06_a_call_without_arguments_is_whole_once_another_block_began() -> None:
    bare, last = M.ToolCallPart("look", None, "c1"), M.ToolCallPart("look", None, "c2")
    chunks = answer([start(0, bare), start(1, last)], [bare, last], finish_reason="length")
    assert [chunk.index for chunk in chunks if isinstance(chunk, BlockEnd)] == [0]


@pytest.mark.parametrize(
    "fields", [{"finish_reason": "tool_call"}, {"finish_reason": "stop"}, {"state": "suspended"}]
)
def test_S06_a_call_that_is_not_whole_was_cut_whatever_the_word(fields: dict[str, Any]) -> None:
    cut, whole = M.ToolCallPart("look", '{"at": "x', "c1"), M.ToolCallPart("look", "{}", "c2")
    chunks = answer([start(0, cut), start(1, whole)], [cut, whole], **fields)
    assert [chunk.index for chunk in chunks if isinstance(chunk, BlockEnd)] == [1]
    assert isinstance(finish_of(chunks).reason, MaxTokens)


@pytest.mark.parametrize(
    ("fields", "code", "raw"),
    [
        ({"finish_reason": "content_filter"}, codes.CONTENT_FILTER, None),
        (
            {"finish_reason": "content_filter", "provider_details": {"finish_reason": "refusal"}},
            codes.REFUSAL,
            "refusal",
        ),
        ({"finish_reason": "content_filter", "provider_details": {"refusal": "No."}}, codes.REFUSAL, None),
        ({"finish_reason": "error"}, codes.SERVER, None),
        ({"provider_details": {"finish_reason": "odd"}}, "ODD", "odd"),
    ],
)
def test_ends_that_are_errors(fields: dict[str, Any], code: str, raw: str | None) -> None:
    text = M.TextPart("a")
    reason = finish_of(answer([start(0, text)], [text], **fields)).reason
    assert isinstance(reason, Error)
    assert (reason.failure.code, reason.raw) == (code, raw)


def test_an_answer_without_blocks_is_empty() -> None:
    reason = finish_of(answer([], [], finish_reason="stop")).reason
    assert isinstance(reason, Error)
    assert reason.failure.code == codes.EMPTY_RESPONSE
    assert isinstance(finish_of(answer([], [], finish_reason="length")).reason, MaxTokens)


def test_a_suspended_turn_is_a_pause() -> None:
    text = M.TextPart("a")
    assert isinstance(finish_of(answer([start(0, text)], [text], state="suspended")).reason, Pause)
    assert isinstance(finish_of(answer([start(0, text)], [text])).reason, Stop)


def test_usage_is_disjoint_and_comes_before_the_finish() -> None:
    usage = RequestUsage(input_tokens=100, cache_read_tokens=60, cache_write_tokens=10, output_tokens=5)
    text = M.TextPart("a")
    chunks = answer([start(0, text)], [text], usage=usage, finish_reason="stop")
    assert chunks[-2] == Usage(TokenUsage(30, 5, 60, 10))
    assert isinstance(chunks[-1], Finish)
    assert token_usage(RequestUsage()) is None
    thought = token_usage(RequestUsage(input_tokens=1, output_tokens=5, details={"reasoning_tokens": 3}))
    assert thought == TokenUsage(1, 5, reasoning_tokens=3)


_PARTS = st.sampled_from(["text", "thinking", "tool"])


@given(st.lists(st.tuples(_PARTS, st.text(max_size=4), st.integers(0, 3)), max_size=12))
def test_whatever_the_library_says_the_grammar_holds(said: list[tuple[str, str, int]]) -> None:
    parts: list[Any] = []
    events: list[Any] = []
    makers = {"text": M.TextPart, "thinking": M.ThinkingPart}
    for kind, text, back in said:
        if parts and back:
            index = max(len(parts) - back, 0)
            if isinstance(parts[index], M.ToolCallPart):
                events.append(more(index, M.ToolCallPartDelta(args_delta=text)))
            elif isinstance(parts[index], M.TextPart):
                events.append(more(index, M.TextPartDelta(text)))
            else:
                events.append(more(index, M.ThinkingPartDelta(content_delta=text)))
            continue
        if parts:
            events.append(end(len(parts) - 1, parts[-1]))
        part = M.ToolCallPart("look", text, f"c{len(parts)}") if kind == "tool" else makers[kind](text)
        parts.append(part)
        events.append(start(len(parts) - 1, part))
    blocks_of(answer(events, parts, finish_reason="stop"))
