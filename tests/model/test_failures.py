"""Failures as facts."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
from hypothesis import given

from tests.strategies import FAILURES
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import ProviderRequestId

BAD_FACTS: list[dict[str, Any]] = [
    {"message": ""},
    {"message": None},
    {"code": ""},
    {"code": 5},
    *({"status": status} for status in (99, 600, 0, -200, True, 200.0, "200", math.nan)),
    *(
        {"provider_retry_after_ms": delay}
        for delay in (0, -1, -0.5, math.inf, -math.inf, math.nan, True, "5")
    ),
    {"request_id": ""},
    {"request_id": 7},
]


@pytest.mark.parametrize("facts", BAD_FACTS, ids=str)
def test_L23_bad_facts_are_refused(facts: dict[str, Any]) -> None:
    complete = {"message": "m", "code": "C", **facts}
    (name,) = facts
    with pytest.raises(ValueError, match=name):
        LlmFailure(**complete)
    with pytest.raises(ValueError, match=name):
        LlmError(**complete)


@pytest.mark.parametrize("status", [100, 200, 429, 599])
@pytest.mark.parametrize("delay", [0.001, 1, 1e12])
def test_L23_good_facts_pass(status: int, delay: float) -> None:
    error = LlmError(
        "m", "C", status=status, provider_retry_after_ms=delay, request_id=ProviderRequestId("r")
    )
    assert error.failure == LlmFailure("m", "C", status, delay, ProviderRequestId("r"))
    assert error.code == "C"
    assert str(error) == "C: m"


@given(failure=FAILURES)
def test_an_error_carries_the_very_failure_it_was_made_of(failure: LlmFailure) -> None:
    error = LlmError.of(failure)
    assert error.failure is failure
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is LlmError
        assert again.failure == failure
        assert str(again) == str(error)


def test_a_failure_cannot_be_changed() -> None:
    failure = LlmFailure("m", "C")
    with pytest.raises(AttributeError):
        failure.code = "D"  # type: ignore[misc]  # the point of the test
    assert hash(failure) == hash(LlmFailure("m", "C"))
