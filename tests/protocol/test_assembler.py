"""The fold from chunks to blocks."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import (
    BLOCK_TAGS,
    CORE_BLOCKS,
    ENVELOPES,
    FINISHES,
    INDEXES,
    NAMES,
    TEXTS,
    USAGES,
    optional,
    responses,
)
from trio_llm.model import codes
from trio_llm.model.chunks import (
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
    Usage,
)
from trio_llm.model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock, UnknownBlock
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import CallId
from trio_llm.model.json_value import freeze_object
from trio_llm.model.messages import ModelSource, PluginSource, ReplayEnvelope
from trio_llm.protocol.assembler import BlockAssembler

FAILURE = LlmFailure("gone", codes.TRANSPORT)
A, B = CallId("a"), CallId("b")


def assembled(*chunks: StreamChunk) -> BlockAssembler:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


CORE_CHUNKS: st.SearchStrategy[StreamChunk] = st.one_of(
    st.builds(BlockStart, INDEXES, BLOCK_TAGS),
    st.builds(TextDelta, INDEXES, TEXTS),
    st.builds(ReasoningDelta, INDEXES, TEXTS),
    st.builds(ToolCallDelta, INDEXES, optional(NAMES.map(CallId)), optional(NAMES), TEXTS),
    st.builds(BlockEnd, INDEXES, CORE_BLOCKS),
    st.builds(Usage, USAGES),
    st.builds(Finish, FINISHES, optional(ENVELOPES)),
)


def test_S01_interleaved_blocks_stand_in_the_order_of_first_appearance() -> None:
    assembler = assembled(
        BlockStart(2, "reasoning"),
        BlockStart(0, "text"),
        TextDelta(0, "he"),
        ReasoningDelta(2, "hm"),
        TextDelta(0, "llo"),
        BlockEnd(0, TextBlock("hello")),
        ReasoningDelta(2, "m"),
        BlockEnd(2, ReasoningBlock("hmm")),
    )
    assert assembler.blocks() == (ReasoningBlock("hmm"), TextBlock("hello"))


def test_S02_the_first_block_end_wins_and_stragglers_are_ignored() -> None:
    first = TextBlock("first")
    assembler = assembled(
        BlockStart(0, "text"),
        BlockEnd(0, first),
        TextDelta(0, "late"),
        ReasoningDelta(0, "late"),
        ToolCallDelta(0, A, "late"),
        BlockEnd(0, TextBlock("second")),
        BlockStart(0, "tool-call"),
    )
    assert assembler.blocks() == (first,)
    assert assembler.blocks()[0] is first


def test_S03_streams_of_deltas_alone_and_repeated_starts() -> None:
    assembler = assembled(
        ReasoningDelta(0, "th"),
        ReasoningDelta(0, "ink"),
        BlockStart(1, "text"),
        TextDelta(1, "a"),
        BlockStart(1, "text"),
        TextDelta(1, "b"),
        ToolCallDelta(2, A, "run", '{"x"'),
        ToolCallDelta(2, None, None, ":1}"),
        Finish(ToolCalls()),
    )
    assert assembler.blocks() == (
        ReasoningBlock("think"),
        TextBlock("ab"),
        ToolCallBlock(A, "run", '{"x":1}'),
    )
    assert assembled(BlockStart(0, "text")).blocks() == (TextBlock(""),)


def test_S03_id_and_name_sent_again_are_a_restatement() -> None:
    assembler = assembled(
        ToolCallDelta(0, A, "read_file", "{"),
        ToolCallDelta(0, CallId(""), "read_file", ""),
        ToolCallDelta(0, A, "", "}"),
    )
    assert assembler.blocks() == (ToolCallBlock(A, "read_file", "{}"),)


def test_a_delta_of_another_type_than_its_block_is_ignored() -> None:
    assembler = assembled(
        BlockStart(0, "text"), ReasoningDelta(0, "x"), ToolCallDelta(0, A, "n"), TextDelta(0, "t")
    )
    assembler.push_all([BlockStart(1, "tool-call"), TextDelta(1, "no"), ToolCallDelta(1, A, "n", "{}")])
    assert assembler.blocks() == (TextBlock("t"), ToolCallBlock(A, "n", "{}"))


@pytest.mark.parametrize("given_id", [None, CallId("")])
def test_S04_a_tool_call_without_id_is_named_by_its_index(given_id: CallId | None) -> None:
    assembler = assembled(
        ToolCallDelta(3, given_id, "run", "{}"), BlockEnd(5, ToolCallBlock(CallId(""), "go", ""))
    )
    assert [block.id for block in assembler.blocks() if isinstance(block, ToolCallBlock)] == [
        "call-3",
        "call-5",
    ]


def test_S05_an_unknown_open_block_raises_on_assembly() -> None:
    assembler = assembled(BlockStart(0, "video"), TextDelta(1, "kept"))
    with pytest.raises(LlmError, match="video") as raised:
        assembler.blocks()
    assert raised.value.code == codes.INVALID_CHUNK_SEQUENCE
    with pytest.raises(LlmError):
        assembler.message()
    assert assembler.interrupted_blocks() == (TextBlock("kept"),)


def test_blocks_of_ones_own_types_are_closed_by_their_end() -> None:
    @attrs.frozen
    class VideoBlock:
        type: ClassVar[str] = "video"
        frames: int

    video, foreign = VideoBlock(3), UnknownBlock("hologram", freeze_object({"depth": 1}))
    assembler = assembled(BlockStart(0, "video"), BlockEnd(0, video), BlockEnd(1, foreign))
    assert assembler.blocks() == (video, foreign)
    assert assembler.interrupted_blocks() == ()


def test_S06_max_tokens_drops_open_calls_and_shows_them() -> None:
    assembler = assembled(
        TextDelta(0, "text"),
        ToolCallDelta(1, A, "mkdir", '{"path":"d"}'),
        BlockEnd(1, ToolCallBlock(A, "mkdir", '{"path":"d"}')),
        ToolCallDelta(2, B, "write", '{"path":"d/n","n":2'),
        ToolCallDelta(3, None, "late"),
        Finish(MaxTokens(), ReplayEnvelope({"v": 1}, ["t", "m", "w", "l"])),
    )
    assert assembler.blocks() == (TextBlock("text"), ToolCallBlock(A, "mkdir", '{"path":"d"}'))
    assert assembler.incomplete_calls == (
        ToolCallBlock(B, "write", '{"path":"d/n","n":2'),
        ToolCallBlock(CallId("call-3"), "late", ""),
    )
    assert assembler.replay_state == ReplayEnvelope({"v": 1}, ["t", "m"])


@pytest.mark.parametrize("reason", [MaxTokens(), Stop()])
@pytest.mark.parametrize("entries", [[], ["one"], ["one", "two", "three"]])
def test_S06_a_misaligned_envelope_is_dropped_whole(reason: FinishReason, entries: list[str]) -> None:
    assembler = assembled(
        TextDelta(0, "t"), ToolCallDelta(1, A, "n"), Finish(reason, ReplayEnvelope({}, entries))
    )
    assert assembler.replay_state is None


@pytest.mark.parametrize("entries", [None, ["t", "c"]])
def test_S06_an_envelope_with_nothing_to_prune_passes_as_it_is(entries: list[str] | None) -> None:
    envelope = ReplayEnvelope({"id": 1}, entries)
    chunks = (TextDelta(0, "t"), ToolCallDelta(1, A, "n"))
    assert assembled(*chunks, Finish(ToolCalls(), envelope)).replay_state is envelope
    if entries is None:
        assert assembled(*chunks, Finish(MaxTokens(), envelope)).replay_state is envelope


@pytest.mark.parametrize("reason", [Aborted(FAILURE), Error(FAILURE)])
def test_an_open_call_of_a_failed_response_is_never_offered(reason: FinishReason) -> None:
    assembler = assembled(ToolCallDelta(0, A, "run", '{"cmd":"rm -r bui'), Finish(reason))
    assert assembler.blocks() == ()
    assert assembler.incomplete_calls == (ToolCallBlock(A, "run", '{"cmd":"rm -r bui'),)


@pytest.mark.parametrize("reason", [Stop(), ToolCalls(), Pause()])
def test_an_open_call_of_a_response_that_ended_well_counts(reason: FinishReason) -> None:
    assembler = assembled(ToolCallDelta(0, A, "run", "{}"), Finish(reason))
    assert assembler.blocks() == (ToolCallBlock(A, "run", "{}"),)
    assert assembler.incomplete_calls == ()


def test_S07_interrupted_blocks_are_text_and_reasoning_that_is_not_blank() -> None:
    assembler = assembled(
        ReasoningDelta(0, "half a thou"),
        TextDelta(1, " \n"),
        BlockEnd(2, TextBlock("done")),
        BlockEnd(3, TextBlock("")),
        ToolCallDelta(4, A, "run", "{}"),
        BlockEnd(5, ToolCallBlock(B, "run", "{}")),
        BlockStart(6, "video"),
        Finish(Error(FAILURE)),
    )
    assert assembler.interrupted_blocks() == (ReasoningBlock("half a thou"), TextBlock("done"))


def test_S08_finish_is_stop_and_usage_unknown_until_seen() -> None:
    assembler = BlockAssembler()
    assert (assembler.finish, assembler.usage, assembler.replay_state) == (Stop(), None, None)
    usage, reason = TokenUsage(1, 2), Error(FAILURE)
    assembler.push_all([Usage(usage), Finish(reason)])
    assert assembler.usage is usage
    assert assembler.finish is reason


@given(chunks=st.lists(CORE_CHUNKS, max_size=25))
def test_S09_never_raises_for_core_types(chunks: list[StreamChunk]) -> None:
    one, other = assembled(*chunks), BlockAssembler()
    other.push_all(chunks)
    blocks = one.blocks()
    indexes = {chunk.index for chunk in chunks if not isinstance(chunk, (Usage, Finish))}
    assert len(blocks) + len(one.incomplete_calls) == len(indexes)
    assert one.blocks() == blocks == other.blocks()
    assert one.interrupted_blocks() == one.interrupted_blocks() == other.interrupted_blocks()
    envelope = one.replay_state
    assert envelope is None or envelope.blocks is None or len(envelope.blocks) == len(blocks)


@given(chunks=responses())
def test_S09_deltas_give_the_blocks_that_the_ends_give(chunks: list[StreamChunk]) -> None:
    open_ended = [chunk for chunk in chunks if not isinstance(chunk, BlockEnd)]
    assert assembled(*open_ended).blocks() == assembled(*chunks).blocks()


@pytest.mark.parametrize("chunk", [None, object(), TextBlock("x"), "text"])
def test_S10_an_unknown_chunk_type_raises(chunk: Any) -> None:
    with pytest.raises(AssertionError):
        BlockAssembler().push(chunk)


def test_message_names_its_source() -> None:
    assembler = assembled(TextDelta(0, "hi"))
    message = assembler.message()
    assert (message.role, message.content) == ("assistant", (TextBlock("hi"),))
    assert message.source == PluginSource("block-assembler")
    source = ModelSource("p", "m")
    assert assembler.message(source).source is source
    assert assembler.message().id != message.id


def test_many_deltas_are_joined_once_and_may_be_looked_at_meanwhile() -> None:
    pieces = [random.Random(index).choice(["x", "yy", ""]) for index in range(100_000)]
    assembler = BlockAssembler()
    for start in range(0, len(pieces), 100):
        assembler.push_all(ToolCallDelta(0, A, "w", piece) for piece in pieces[start : start + 100])
        if start % 10_000 == 0:
            seen: tuple[ContentBlock, ...] = assembler.blocks()
            assert seen == (ToolCallBlock(A, "w", "".join(pieces[: start + 100])),)
    assert assembler.blocks() == (ToolCallBlock(A, "w", "".join(pieces)),)
