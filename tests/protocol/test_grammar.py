"""Which sequences of chunks are proper."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import CHUNKS, responses
from trio_llm.model import codes
from trio_llm.model.chunks import (
    FINISH_REASONS,
    Aborted,
    BlockEnd,
    BlockStart,
    Error,
    Finish,
    FinishReason,
    MaxTokens,
    Pause,
    ReasoningDelta,
    Stop,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCalls,
    UnknownFinish,
    Usage,
)
from trio_llm.model.content import ReasoningBlock, TextBlock, ToolCallBlock, UnknownBlock
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import CallId
from trio_llm.model.json_value import freeze_object
from trio_llm.protocol.grammar import OPEN_AT_FINISH, Grammar

FAILURE = LlmFailure("gone", codes.TRANSPORT)
TEXT = (BlockStart(0, "text"), TextDelta(0, "a"), BlockEnd(0, TextBlock("a")))
USAGE = Usage(TokenUsage(1, 1))
FOREIGN = UnknownBlock("video", freeze_object({}))


def check(*chunks: Any) -> None:
    grammar = Grammar()
    for chunk in chunks:
        grammar.check(chunk)
    grammar.end()


@given(chunks=responses())
def test_G01_proper_sequences_pass(chunks: list[StreamChunk]) -> None:
    check(*chunks)


@pytest.mark.parametrize(
    "chunks",
    [
        [Finish(Stop())],
        [*TEXT, USAGE, Finish(Stop())],
        [USAGE, *TEXT, Finish(Stop())],
        [BlockStart(0, "video"), BlockEnd(0, FOREIGN), Finish(Stop())],
        [*TEXT, *TEXT, Finish(Stop())],
        [BlockStart(7, "text"), BlockStart(1, "text"), Finish(Error(FAILURE))],
    ],
)
def test_G01_legal(chunks: list[StreamChunk]) -> None:
    check(*chunks)


@pytest.mark.parametrize(
    ("reason", "texts", "calls"),
    [
        (Stop(), False, False),
        (ToolCalls(), False, False),
        (Pause(), False, False),
        (MaxTokens(), False, True),
        (Aborted(FAILURE), True, True),
        (Error(FAILURE), True, True),
        (UnknownFinish("rest", freeze_object({})), True, True),
    ],
)
def test_G01_what_may_be_open_at_the_finish(reason: FinishReason, texts: bool, calls: bool) -> None:
    for block_type, allowed in (("text", texts), ("reasoning", texts), ("tool-call", calls)):
        chunks = [BlockStart(0, block_type), Finish(reason)]
        if allowed:
            check(*chunks)
        else:
            with pytest.raises(LlmError, match="open"):
                check(*chunks)


def test_G01_every_finish_reason_has_its_rule() -> None:
    assert set(OPEN_AT_FINISH) == {*FINISH_REASONS.values(), UnknownFinish}


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ([BlockStart(-1, "text")], "index"),
        ([BlockStart(True, "text")], "index"),
        ([BlockStart(1.0, "text")], "index"),  # type: ignore[arg-type]  # the point of the test
        ([BlockStart("0", "text")], "index"),  # type: ignore[arg-type]  # the point of the test
        ([BlockStart(0, "text"), BlockStart(0, "text")], "which is open"),
        ([TextDelta(0, "a")], "not open"),
        ([*TEXT, TextDelta(0, "a")], "not open"),
        ([BlockStart(0, "text"), TextDelta(False, "a")], "not open"),
        ([BlockStart(0, "text"), ReasoningDelta(0, "a")], "'text'"),
        ([BlockStart(0, "text"), ToolCallDelta(0)], "'text'"),
        ([BlockStart(0, "tool-call"), TextDelta(0, "a")], "'tool-call'"),
        ([BlockEnd(0, TextBlock("a"))], "not open"),
        ([BlockStart(0, "text"), BlockEnd(0, ReasoningBlock("a"))], "'text'"),
        ([BlockStart(0, "unknown"), BlockEnd(0, FOREIGN)], "'unknown'"),
        ([BlockStart(0, "text"), BlockEnd(0, ToolCallBlock(CallId("a"), "n", ""))], "'text'"),
        ([USAGE, USAGE], "second usage"),
        ([Finish(Stop()), USAGE], "after the finish"),
        ([Finish(Stop()), Finish(Stop())], "after the finish"),
        ([Finish(Error(FAILURE)), BlockStart(0, "text")], "after the finish"),
        ([None], "no chunk"),
        ([], "without a finish"),
        ([*TEXT, USAGE], "without a finish"),
    ],
)
def test_G01_illegal(chunks: list[Any], why: str) -> None:
    with pytest.raises(LlmError, match=why) as raised:
        check(*chunks)
    assert raised.value.code == codes.INVALID_CHUNK_SEQUENCE


@given(chunks=st.lists(CHUNKS, max_size=12))
def test_G01_refuses_with_one_code_and_nothing_else(chunks: list[StreamChunk]) -> None:
    ends = [chunk for chunk in chunks if isinstance(chunk, Finish)]
    if chunks and ends == chunks[-1:]:
        chunks = chunks[:-1]
    with pytest.raises(LlmError) as raised:
        check(*chunks)
    assert raised.value.code == codes.INVALID_CHUNK_SEQUENCE
