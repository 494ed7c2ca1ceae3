"""The counts of the chat wire: what they mean, and what counts nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.model.chunks import TokenUsage
from trio_llm.providers.openai_chat.usage import token_usage, usage_facts


def test_D06_input_is_disjoint_from_the_cache() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 64},
    }
    assert token_usage(usage) == TokenUsage(36, 12, cache_read_tokens=64)


def test_D06_deepseek_counts_hits_at_the_top() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 12,
        "prompt_cache_hit_tokens": 64,
        "prompt_cache_miss_tokens": 36,
    }
    assert token_usage(usage) == TokenUsage(36, 12, cache_read_tokens=64)


def test_D06_details_come_before_the_top() -> None:
    usage = {
        "prompt_tokens": 9,
        "prompt_cache_hit_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    assert token_usage(usage) == TokenUsage(5, 0, cache_read_tokens=4)


def test_D06_reasoning_is_optional() -> None:
    usage = {
        "prompt_tokens": 1,
        "completion_tokens": 5,
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert token_usage(usage) == TokenUsage(1, 5, reasoning_tokens=3)


def test_reasoning_that_is_counted_apart_is_added_to_the_output() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 18,
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert token_usage(usage) == TokenUsage(10, 8, reasoning_tokens=3)


def test_more_cached_than_prompt_tokens_are_counted_apart_already() -> None:
    assert token_usage({"prompt_tokens": 3, "cached_tokens": 90}) == TokenUsage(3, 0, cache_read_tokens=90)


@pytest.mark.parametrize(
    "usage", [None, 5, [], {}, {"prompt_tokens": None}, {"prompt_tokens": -1}, {"prompt_tokens": True}]
)
def test_what_counts_nothing_is_no_usage(usage: Any) -> None:
    assert token_usage(usage) is None


def test_whole_floats_are_counts() -> None:
    assert token_usage({"prompt_tokens": 3.0, "completion_tokens": 1.5}) == TokenUsage(3, 0)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "prompt_tokens",
                        "completion_tokens",
                        "total_tokens",
                        "prompt_tokens_details",
                        "cached_tokens",
                        "reasoning_tokens",
                        "completion_tokens_details",
                    ]
                ),
                inner,
            )
        ),
    )
)
def test_no_usage_object_breaks_it(usage: Any) -> None:
    token_usage(usage)
    usage_facts(usage)
