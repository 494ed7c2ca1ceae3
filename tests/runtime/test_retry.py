"""Retry arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.model import codes
from trio_llm.model.failures import LlmFailure
from trio_llm.model.policy import DEFAULT_RETRYABLE_CODES, AlwaysRetry, NormalRetry, RetryPolicy
from trio_llm.runtime.retry import Retry, backoff_ms, policy_retry

EVEN = NormalRetry(initial_delay_ms=100, max_delay_ms=1000, jitter_ratio=0.5)


def middle() -> float:
    return 0.5


def failed(code: str = codes.SERVER, asked: float | None = None) -> LlmFailure:
    return LlmFailure("failed", code, provider_retry_after_ms=asked)


def test_R02_delays_double_and_are_capped() -> None:
    delays = [backoff_ms(EVEN, number, middle) for number in (1, 2, 3, 4, 5, 6, 5000)]
    assert delays == [100, 200, 400, 800, 1000, 1000, 1000]


def test_R02_jitter_is_symmetric_and_capped_again() -> None:
    assert backoff_ms(EVEN, 1, lambda: 0.0) == 50
    assert backoff_ms(EVEN, 1, lambda: 1.0) == 150
    assert backoff_ms(EVEN, 4, lambda: 1.0) == 1000
    assert backoff_ms(EVEN, 9, lambda: 0.0) == 500


def test_R02_a_delay_of_zero_is_legal() -> None:
    policy = AlwaysRetry(initial_delay_ms=100, jitter_ratio=1)
    assert policy_retry(policy, failed(), 0, lambda: 0.0) == Retry(1, 0, "backoff")


@given(
    number=st.integers(1, 10**6),
    initial=st.floats(1e-300, 1e6),
    factor=st.floats(1, 1e6),
    ratio=st.floats(0, 1),
    drawn=st.floats(0, 1, exclude_max=True),
)
def test_R02_delays_are_finite_and_within_bounds(
    number: int, initial: float, factor: float, ratio: float, drawn: float
) -> None:
    policy = AlwaysRetry(initial_delay_ms=initial, max_delay_ms=initial * factor, jitter_ratio=ratio)
    delay = backoff_ms(policy, number, lambda: drawn)
    assert math.isfinite(delay)
    assert 0 <= delay <= policy.max_delay_ms


@pytest.mark.parametrize("policy", [EVEN, AlwaysRetry(initial_delay_ms=100, max_delay_ms=1000)])
def test_R03_a_provider_delay_up_to_the_maximum_is_verbatim(policy: RetryPolicy) -> None:
    for asked in (0.5, 3, 1000):
        assert policy_retry(policy, failed(asked=asked), 3, lambda: 0.9) == Retry(4, asked, "provider")


def test_R03_above_the_maximum_normal_gives_up_and_always_uses_its_own() -> None:
    assert policy_retry(EVEN, failed(asked=1000.5), 0, middle) is None
    always = AlwaysRetry(initial_delay_ms=100, max_delay_ms=1000)
    assert policy_retry(always, failed(asked=1000.5), 2, middle) == Retry(3, 400, "backoff")


def test_R04_unlisted_codes_are_not_retried() -> None:
    for code in DEFAULT_RETRYABLE_CODES:
        assert policy_retry(EVEN, failed(code), 0, middle) is not None
    for code in (
        codes.AUTH,
        codes.QUOTA,
        codes.CONTEXT_WINDOW_EXCEEDED,
        codes.INVALID_REQUEST,
        codes.UNKNOWN,
    ):
        assert policy_retry(EVEN, failed(code), 0, middle) is None
        assert policy_retry(AlwaysRetry(), failed(code), 0, middle) is not None


def test_R05_the_budget_is_bounded_for_normal_alone() -> None:
    policy = NormalRetry(max_retries=2)
    assert [policy_retry(policy, failed(), used, middle) is None for used in (0, 1, 2, 3)] == [
        False,
        False,
        True,
        True,
    ]
    assert policy_retry(NormalRetry(max_retries=0), failed(), 0, middle) is None
    assert policy_retry(AlwaysRetry(), failed(), 10**6, middle) is not None


def test_R05_policies_that_list_the_same_codes_are_one_budget() -> None:
    one = NormalRetry(retryable_codes=("A", "B"))
    other = NormalRetry(retryable_codes=("B", "A"))
    assert {("p", one): 1} == {("p", other): 1}
    assert hash(one) == hash(other)
    assert one != NormalRetry(retryable_codes=("A",))
    normal: RetryPolicy = NormalRetry()
    assert normal != AlwaysRetry()
