"""Chunks, finish reasons and token counts."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given

from tests.strategies import CHUNKS, USAGES
from trio_llm.model.chunks import (
    CHUNK_TYPES,
    FINISH_REASONS,
    ReasoningDelta,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
)
from trio_llm.model.identifiers import CallId


@given(usage=USAGES)
def test_billed_input_is_the_sum_of_its_disjoint_parts(usage: TokenUsage) -> None:
    parts = (usage.input_tokens, usage.cache_read_tokens or 0, usage.cache_write_tokens or 0)
    assert usage.billed_input_tokens == sum(parts)


@pytest.mark.parametrize("count", [-1, 1.0, True, "1", None, float("nan")])
@pytest.mark.parametrize("place", range(5))
def test_counts_are_counts(place: int, count: Any) -> None:
    counts: list[Any] = [1, 1, 1, 1, 1]
    counts[place] = count
    if count is None and place >= 2:
        assert TokenUsage(*counts)
        return
    with pytest.raises(ValueError, match="tokens"):
        TokenUsage(*counts)


@given(chunk=CHUNKS)
def test_chunks_are_immutable_and_carry_their_tag(chunk: StreamChunk) -> None:
    assert CHUNK_TYPES[chunk.type] is type(chunk)
    with pytest.raises(AttributeError):
        chunk.type = "other"  # type: ignore[misc]  # the point of the test


def test_tags_are_kebab_case() -> None:
    for tag in [*CHUNK_TYPES, *FINISH_REASONS]:
        assert tag == tag.lower().replace("_", "-")


@pytest.mark.parametrize(
    "delta", [TextDelta(1, "a"), ReasoningDelta(1, "a"), ToolCallDelta(1, CallId("c"), "f", "{")]
)
def test_deltas_are_values_that_attrs_knows_too(delta: Any) -> None:
    kind = type(delta)
    assert attrs.evolve(delta) == delta
    assert attrs.evolve(delta, index=2) == kind(2, *attrs.astuple(delta)[1:])
    assert hash(delta) == hash(attrs.evolve(delta))
    assert delta != attrs.evolve(delta, index=2)
    assert not hasattr(delta, "__dict__")
    for field in attrs.fields(kind):
        with pytest.raises(AttributeError):
            setattr(delta, field.name, getattr(delta, field.name))
    fields_of: Any = attrs.fields_dict  # typed for classes that attrs made
    assert fields_of(ToolCallDelta)["arguments_delta"].default == ""
    assert fields_of(TextDelta)["text"].default is attrs.NOTHING
