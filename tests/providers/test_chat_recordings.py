"""Every recorded chat stream gives what was recorded of it, however its bytes are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_llm.model.chunks import StreamChunk, TokenUsage
from trio_llm.protocol.grammar import Grammar

from ..shared_data import requires_recordings
from . import streams

pytestmark = requires_recordings

FOLDERS = streams.recordings("deepseek-chat", "openai-chat", "mistral")
BY_NAME = [pytest.param(folder, id=folder.name) for folder in FOLDERS]


def expected_blocks(expected: dict[str, Any]) -> list[dict[str, Any]]:
    """Refusals are text in the chunks; provider-side items are dropped."""
    kept = ("type", "text", "id", "name", "arguments")
    return [
        {key: value for key, value in block.items() if key in kept}
        | ({"type": "text"} if block["type"] == "refusal" else {})
        for block in expected["blocks"]
        if block["type"] != "other"
    ]


def usage_facts(usage: TokenUsage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    counts = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadTokens": usage.cache_read_tokens,
        "cacheWriteTokens": usage.cache_write_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }
    return {name: count for name, count in counts.items() if count is not None}


def check(chunks: list[StreamChunk], expected: dict[str, Any]) -> None:
    """Compare with an expectation, and with the grammar."""
    grammar = Grammar()
    for chunk in chunks:
        grammar.check(chunk)
    grammar.end()
    blocks = [
        {key: value for key, value in block.items() if key != "closed"} for block in streams.blocks_of(chunks)
    ]
    assert blocks == expected_blocks(expected)
    reason = streams.finish_of(chunks).reason
    assert reason.raw == expected["finish"]["raw"]
    if expected.get("emptyResponse") and expected["finish"]["kind"] == "stop":
        # A terminal stop without any block is a failure here, unlike in the expectation.
        assert streams.code_of(chunks) == "EMPTY_RESPONSE"
    else:
        assert reason.kind == expected["finish"]["kind"]
    assert usage_facts(streams.usage_of(chunks)) == expected.get("usage")


@pytest.mark.parametrize("folder", BY_NAME)
def test_D04_recorded_stream_with_its_own_reads(folder: Path) -> None:
    body = folder.joinpath("stream.sse").read_bytes()
    expected = streams.load(folder, "expected.json")
    chunks, translator = streams.translate(streams.recorded_reads(folder, body))
    check(chunks, expected)
    assert translator.failure is None
    assert translator.response_id == expected["responseId"]
    assert translator.served_model == expected["model"]


@pytest.mark.parametrize("folder", BY_NAME)
def test_recorded_stream_byte_by_byte_is_the_same_stream(folder: Path) -> None:
    body = folder.joinpath("stream.sse").read_bytes()
    whole, _ = streams.translate([body])
    assert streams.translate(body[i : i + 1] for i in range(len(body)))[0] == whole


@settings(max_examples=60)
@given(st.sampled_from(FOLDERS), st.data())
def test_any_cut_of_a_recorded_stream_is_the_same_stream(folder: Path, data: st.DataObject) -> None:
    body = folder.joinpath("stream.sse").read_bytes()
    sizes = data.draw(st.lists(st.integers(1, 4000), max_size=20))
    assert streams.translate(streams.cut(body, sizes))[0] == streams.translate([body])[0]


@settings(max_examples=60)
@given(st.sampled_from(FOLDERS), st.data())
def test_a_recorded_stream_that_stops_anywhere_is_a_success_or_a_failure_never_both(
    folder: Path, data: st.DataObject
) -> None:
    body = folder.joinpath("stream.sse").read_bytes()
    end = data.draw(st.integers(1, len(body)))
    chunks, translator = streams.translate([body[:end]])
    assert translator.terminal == (translator.failure is None)
    grammar = Grammar()
    for chunk in chunks:
        grammar.check(chunk)
    if translator.terminal:
        grammar.end()
    else:
        assert translator.failure is not None
        assert translator.failure.code == "STREAM_CLOSED"
