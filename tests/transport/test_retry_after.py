"""The delay a provider asks for, in every form it is told in."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import CASES, requires_cases
from trio_llm.model.failures import LlmFailure
from trio_llm.transport.error_body import read_error
from trio_llm.transport.retry_after import retry_after_ms

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC).timestamp()


def case_rows() -> list[dict[str, Any]]:
    source = CASES / "34-retry-after-in-all-forms" / "case.json"
    return list(json.loads(source.read_text())["input"]["rows"]) if source.is_file() else []


@requires_cases
@pytest.mark.parametrize("row", case_rows(), ids=lambda row: row["name"])
def test_case_34_header_forms(row: dict[str, Any]) -> None:
    expected = row["expect"]["retry_after_s"]
    got = retry_after_ms(row["headers"], now=NOON)
    assert got == (pytest.approx(expected * 1000) if expected else None)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": " 7 "}, 7000),
        ({"retry-after": "Thu Jan 15 12:00:09 2026"}, 9000),
        ({"retry-after": "Thursday, 15-Jan-26 12:00:09 GMT"}, 9000),
        ({"retry-after": "Thu, 15 Jan 2026 12:00:00 GMT"}, None),
        ({"retry-after": "Thu, 15 Jan 2026 14:00:09 +0200"}, 9000),
        ({"retry-after": "Thu, 15 Jan 2026"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "0.0"}, None),
        ({"retry-after": "1e3"}, None),
        ({"retry-after": "1_000"}, None),
        ({"retry-after": "+5"}, None),
        ({"retry-after": "٣"}, None),  # a digit, but not an HTTP one
        ({"retry-after": "5, 6"}, None),
        ({"retry-after": "Thu, 99 Jan 2026 12:00:09 GMT"}, None),
        ({"retry-after": "Thu, 15 Jan 99999 12:00:09 GMT"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after-ms": "0", "retry-after": "1"}, 1000),
        ({"retry-after-ms": "-1", "retry-after": "1"}, 1000),
        ({"retry-after-ms": "nan", "retry-after": "1"}, 1000),
        ({"Retry-After-Ms": "250.5"}, 250.5),
        ({"x-ratelimit-reset-tokens": "6m0s"}, None),
    ],
)
def test_D08_retry_after_headers(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_ms(headers, now=NOON) == (None if expected is None else pytest.approx(expected))
    from_wire = httpx.Headers([(name.encode(), value.encode()) for name, value in headers.items()])
    assert retry_after_ms(from_wire, now=NOON) == (None if expected is None else pytest.approx(expected))


def test_D08_a_date_counts_from_the_systems_clock() -> None:
    asked = retry_after_ms({"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT"})
    assert asked is not None
    assert asked > 1e9


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Limit 30000, Used 28039. Please try again in 3.89s. Visit a page.", 3890),
        ("Please try again in 6m0s.", 360_000),
        ("Please try again in 1h2m3.5s", 3_723_500),
        ("Please try again in 20ms.", 20),
        ("Please retry after 6 seconds. Please go here", 6000),
        ("Please retry in 48.939935699s.", 48_939.935699),
        ("Quota exceeded for requests per minute. Retry in 20s.", 20_000),
        ("try again in 5 minutes", 300_000),
        ("please wait 2 hours 5 minutes before", 7_500_000),
        ("try again in 1 day", 86_400_000),
        ("try again in 0s", None),
        ("try again in 5mb", None),
        ("try again in a moment", None),
        ("try again later", None),
        (
            "If you created the deployment within the last 5 minutes, please wait a moment and try again.",
            None,
        ),
    ],
)
def test_D08_worded_delays(message: str, expected: float | None) -> None:
    got = retry_after_ms({}, read_error({"error": {"message": message}}))
    assert got == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12s"}]}, 12_000),
        ({"details": [{"retryDelay": "0.5s"}]}, 500),
        ({"details": [{"retryDelay": {"seconds": 3, "nanos": 1}}]}, 3000),
        ({"message": "Please retry in 48.9s.", "details": [{"retryDelay": "48s"}]}, 48_900),
        ({"details": [{"retryDelay": "-12"}]}, None),
        ({"details": [{"retryDelay": "soon"}, {"retryDelay": "9" * 65 + "s"}, {"retryDelay": ["1s"]}]}, None),
        ({"metadata": {"retry_after_seconds": 7}}, 7000),
        ({"retry_after": "1.5"}, 1500),
        ({"retry_after_ms": 90}, 90),
        ({"resets_in_seconds": 10**400}, None),
        ({"retry_after": True}, None),
        ({"retry_after": math.nan}, None),
        ({"retry_after": -1}, None),
    ],
)
def test_D08_delays_in_the_body(error: dict[str, Any], expected: float | None) -> None:
    got = retry_after_ms({}, read_error({"error": error}))
    assert got == (None if expected is None else pytest.approx(expected))


def test_D08_the_header_outranks_the_body() -> None:
    body = read_error({"message": "try again in 9s"})
    assert retry_after_ms({"retry-after": "2"}, body) == 2000
    assert retry_after_ms({"retry-after": "0"}, body) == 9000


@given(
    st.dictionaries(
        st.sampled_from(["retry-after", "Retry-After-Ms", "other"]),
        st.one_of(
            st.text(max_size=40), st.floats().map(str), st.datetimes().map(lambda d: f"{d:%a, %d %b %Y %X}")
        ),
    ),
    st.recursive(
        st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=20), st.just("try again in 1s")),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["error", "message", "details", "retryDelay", "retry_after", "seconds"]),
                inner,
            ),
        ),
        max_leaves=10,
    ),
)
def test_D08_a_delay_is_always_valid(headers: dict[str, str], body: Any) -> None:
    LlmFailure("m", "RATE_LIMIT", None, retry_after_ms(headers, read_error(body), now=NOON))
