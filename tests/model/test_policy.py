"""Retry policies and timeouts as values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given

from tests.strategies import TIMEOUTS, policies
from trio_llm.model import codes
from trio_llm.model.policy import (
    DEFAULT_TIMEOUTS,
    AlwaysRetry,
    NormalRetry,
    RetryPolicy,
    Timeouts,
    retry_policy,
)


def test_R_defaults_are_the_normal_policy() -> None:
    policy = retry_policy({})
    assert policy == NormalRetry() == retry_policy({"mode": "normal"})
    assert isinstance(policy, NormalRetry)
    assert (policy.max_retries, policy.initial_delay_ms, policy.max_delay_ms, policy.jitter_ratio) == (
        *(5, 500, 10_000),
        0.1,
    )
    assert set(policy.retryable_codes) == {
        codes.EMPTY_RESPONSE,
        codes.RATE_LIMIT,
        codes.SERVER,
        codes.TIMEOUT,
        codes.TRANSPORT,
        codes.STREAM_CLOSED,
    }
    always = retry_policy({"mode": "always"})
    assert always == AlwaysRetry()
    assert (always.initial_delay_ms, always.max_delay_ms, always.jitter_ratio) == (500, 10_000, 0.1)


@pytest.mark.parametrize("mode", ["normal", "always"])
@pytest.mark.parametrize(
    "settings",
    [
        *({"initial_delay_ms": value} for value in (0, -1, math.inf, math.nan, True, "500", None)),
        *({"max_delay_ms": value} for value in (0, -1, math.inf, math.nan, False, "500")),
        *({"jitter_ratio": value} for value in (-0.1, 1.1, math.nan, math.inf, True, "0")),
        {"initial_delay_ms": 500, "max_delay_ms": 499},
        {"initial_delay_ms": 10_001},
        {"maxRetries": 3},
        {"retries": 3},
    ],
    ids=str,
)
def test_R_values_outside_their_range_and_unknown_keys_are_refused(
    mode: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=min(settings)):
        retry_policy({"mode": mode, **settings})


@pytest.mark.parametrize(
    "settings",
    [
        *({"max_retries": value} for value in (-1, 1.0, True, "5", None, math.nan)),
        *({"retryable_codes": value} for value in (["A", "A"], [""], [5], ["A", None])),
    ],
    ids=str,
)
def test_R_values_of_the_normal_policy_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=min(settings)):
        retry_policy(settings)
    with pytest.raises(ValueError, match="unknown key"):
        retry_policy({"mode": "always", **settings})


@pytest.mark.parametrize("mode", ["never", "", None, 5])
def test_R_an_unknown_mode_is_refused(mode: Any) -> None:
    with pytest.raises(ValueError, match="mode"):
        retry_policy({"mode": mode})


def test_R_one_string_is_no_list_of_codes() -> None:
    with pytest.raises(TypeError, match="list of codes"):
        NormalRetry(retryable_codes="SERVER")


@pytest.mark.parametrize(
    "settings",
    [
        {"max_retries": 0, "retryable_codes": []},
        {"jitter_ratio": 0},
        {"jitter_ratio": 1},
        {"initial_delay_ms": 0.001, "max_delay_ms": 0.001},
    ],
)
def test_R_the_ends_of_the_ranges_are_inside(settings: dict[str, Any]) -> None:
    policy = retry_policy(settings)
    assert all(getattr(policy, key) == (() if value == [] else value) for key, value in settings.items())


def test_R05_equal_sets_of_codes_are_equal_policies() -> None:
    one, other = NormalRetry(retryable_codes=["B", "A"]), NormalRetry(retryable_codes=("A", "B"))
    assert one == other
    assert hash(one) == hash(other)
    assert one != NormalRetry(retryable_codes=["A"])
    assert retry_policy({"mode": "normal"}) != retry_policy({"mode": "always"})


@given(policy=policies())
def test_R_a_policy_cannot_be_changed(policy: RetryPolicy) -> None:
    with pytest.raises(AttributeError):
        policy.jitter_ratio = 0.5  # type: ignore[misc]  # the point of the test
    hash(policy)


PHASES = ["connect", "first_event", "idle", "progress", "total"]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("seconds", [0, -1, -math.inf, math.nan, True, "5"])
def test_timeouts_are_positive(phase: str, seconds: Any) -> None:
    with pytest.raises(ValueError, match=phase):
        Timeouts(**{phase: seconds})


def test_every_phase_but_idle_can_be_switched_off() -> None:
    with pytest.raises(ValueError, match=r"idle.*finite"):
        Timeouts(idle=math.inf)
    for phase in PHASES:
        if phase != "idle":
            assert getattr(Timeouts(**{phase: math.inf}), phase) == math.inf


def test_defaults_are_complete() -> None:
    assert [getattr(DEFAULT_TIMEOUTS, phase) for phase in PHASES] == [30, math.inf, 300, math.inf, math.inf]


@given(own=TIMEOUTS, base=TIMEOUTS)
def test_timeouts_override_field_by_field(own: Timeouts, base: Timeouts) -> None:
    merged = own.over(base)
    for phase in PHASES:
        expected = getattr(base, phase) if getattr(own, phase) is None else getattr(own, phase)
        assert getattr(merged, phase) == expected
    assert own.over(own) is own
    assert Timeouts().over(DEFAULT_TIMEOUTS) == DEFAULT_TIMEOUTS
