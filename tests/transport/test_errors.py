"""Every answer that is no stream becomes one valid failure, whatever its shape."""

import json
import pickle
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import CASES, RECORDINGS, requires_cases, requires_recordings
from trio_llm.model.codes import INVALID_REQUEST
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import ProviderRequestId
from trio_llm.model.policy import DEFAULT_RETRYABLE_CODES
from trio_llm.transport.errors import (
    ProviderResponseError,
    error_from_response,
    failure_from_error_object,
    failure_from_response,
)

JSON = {"content-type": "application/json"}
NO_API = "instead of an API error; check the base URL and any proxy"
OURS = {"BAD_REQUEST": INVALID_REQUEST}


def recorded(delivery: str) -> list[Path]:
    folders = sorted((RECORDINGS / "errors").glob("*/meta.json"))
    return [meta.parent for meta in folders if json.loads(meta.read_text())["delivery"] == delivery]


def check_class(meta: dict[str, Any], failure: LlmFailure) -> None:
    accepted = {OURS.get(name, name) for name in (meta["class"], *meta.get("alsoAcceptable", ()))}
    assert failure.code in accepted
    assert (failure.code in DEFAULT_RETRYABLE_CODES) is meta["retryable"]
    assert meta["message"] in failure.message
    if "retryAfterMs" in meta:
        assert failure.provider_retry_after_ms == pytest.approx(meta["retryAfterMs"], abs=1)
    else:
        assert failure.provider_retry_after_ms is None


@requires_recordings
@pytest.mark.parametrize("folder", recorded("http-status"), ids=lambda folder: folder.name)
def test_D08_recorded_error_answers(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    body = (folder / meta["bodyFile"]).read_bytes()
    failure = failure_from_response(meta["status"], meta["headers"], body)
    check_class(meta, failure)
    assert failure.status == meta["status"]
    named = [
        meta["headers"].get(name)
        for name in ("x-request-id", "request-id", "apim-request-id", "x-ds-trace-id")
    ]
    in_body = json.loads(body).get("request_id") if b'"request_id"' in body else None
    assert failure.request_id == next((name for name in named if name), in_body)


@requires_recordings
@pytest.mark.parametrize("folder", recorded("in-band stream event"), ids=lambda folder: folder.name)
def test_D07_recorded_errors_inside_a_stream(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    lines = (folder / meta["bodyFile"]).read_bytes().split(b"\n")
    payloads = [line[5:] for line in lines if line.startswith(b"data:") and b"[DONE]" not in line]
    events = [json.loads(payload) for payload in payloads]
    errors = [
        event
        for event in events
        if event.get("error") or (event.get("response") or {}).get("error") or event.get("type") == "error"
    ]
    assert errors
    for event in errors:
        for shape in (event, event.get("error") or event, json.dumps(event)):
            failure = failure_from_error_object(shape, status=meta["status"])
            check_class(meta, failure)
            assert failure.status in (meta["status"], meta["errorStatus"])


def case_rows() -> list[dict[str, Any]]:
    source = CASES / "35-error-body-shapes" / "case.json"
    return list(json.loads(source.read_text())["input"]["rows"]) if source.is_file() else []


@requires_cases
@pytest.mark.parametrize("row", case_rows(), ids=lambda row: row["name"])
def test_case_35_error_body_shapes(row: dict[str, Any]) -> None:
    failure = failure_from_response(row["status"], row["headers"], row["body"].encode())
    expect = row["expect"]
    assert (failure.code, failure.status) == (expect["code"], expect["status"])
    assert (failure.code in DEFAULT_RETRYABLE_CODES) is expect["retryable"]
    assert expect.get("message_contains", "") in failure.message
    assert failure.request_id == expect.get("request_id")


def answer(status: int, body: Any, **headers: str) -> LlmFailure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return failure_from_response(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, raw
    )


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "INVALID_REQUEST"),
        (401, "AUTH"),
        (402, "QUOTA"),
        (403, "AUTH"),
        (404, "INVALID_REQUEST"),
        (405, "HTTP_405"),
        (408, "HTTP_408"),
        (409, "HTTP_409"),
        (413, "INVALID_REQUEST"),
        (418, "HTTP_418"),
        (422, "INVALID_REQUEST"),
        (429, "RATE_LIMIT"),
        (500, "SERVER"),
        (502, "SERVER"),
        (503, "SERVER"),
        (529, "SERVER"),
        (599, "SERVER"),
        (302, "HTTP_302"),
        (101, "HTTP_101"),
    ],
)
def test_D08_codes_by_status_alone(status: int, code: str) -> None:
    for body in (b"", b"{}", b"null", b"[]", b'{"error":null}', b"\xff\xfe\x00", b"<html>nothing</html>"):
        failure = answer(status, body)
        assert (failure.code, failure.status) == (code, status)
        assert failure.message.startswith(f"HTTP {status}")
        assert "<" not in failure.message


def test_D08_a_status_HTTP_does_not_have_is_kept_in_the_text() -> None:
    failure = answer(999, b"")
    assert (failure.code, failure.status, failure.message) == ("SERVER", None, "HTTP 999")


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"error": {"code": "invalid_api_key", "message": "no"}}, "AUTH"),
        (400, {"error": {"message": "API key expired. Please renew the API key."}}, "AUTH"),
        (400, {"error": {"type": "authentication_error"}}, "AUTH"),
        (404, {"error": {"type": "permission_error", "message": "model"}}, "INVALID_REQUEST"),
        (404, {"error": {"message": "no API key route here"}}, "INVALID_REQUEST"),
        (400, {"error": {"code": "content_filter", "message": "filtered"}}, "CONTENT_FILTER"),
        (
            400,
            {"error": {"code": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
            "CONTENT_FILTER",
        ),
        (
            400,
            {"error": {"message": "Content Exists Risk", "type": "invalid_request_error"}},
            "CONTENT_FILTER",
        ),
        (400, {"code": "DataInspectionFailed", "message": "Input data may contain it"}, "CONTENT_FILTER"),
        (
            401,
            {"error": {"code": "account_deactivated", "message": "for violating our usage policies"}},
            "AUTH",
        ),
        (429, {"error": {"code": "billing_not_active", "message": "inactive"}}, "QUOTA"),
        (400, {"error": {"message": "Your credit balance is too low to access the API."}}, "QUOTA"),
        (403, {"error": {"message": "Key limit exceeded (total limit)."}}, "QUOTA"),
        (400, {"error": {"code": "rate_limit_exceeded", "message": "slow"}}, "RATE_LIMIT"),
        (
            503,
            {"__type": "com.amazon#ThrottlingException", "Message": "Too many tokens, please wait"},
            "RATE_LIMIT",
        ),
        (
            400,
            {"message": {"detail": [{"msg": "bad", "loc": ["body"]}]}, "type": "invalid_request_error"},
            "INVALID_REQUEST",
        ),
        (
            500,
            {"error": {"message": "litellm: maximum context length is 5 tokens"}},
            "CONTEXT_WINDOW_EXCEEDED",
        ),
        (500, {"error": {"type": "invalid_request_error", "message": "?"}}, "SERVER"),
        (429, {"error": {"type": "engine_overloaded_error", "message": "busy"}}, "SERVER"),
        (408, {"__type": "ModelTimeoutException"}, "SERVER"),
        (
            413,
            {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
            "INVALID_REQUEST",
        ),
        (
            502,
            {
                "error": {
                    "code": 502,
                    "message": "Provider returned error",
                    "metadata": {"raw": '{"code":"context_length_exceeded"}'},
                }
            },
            "CONTEXT_WINDOW_EXCEEDED",
        ),
        (
            400,
            [{"error": {"status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}],
            "AUTH",
        ),
    ],
)
def test_D08_structured_fields_before_wording_before_status(status: int, error: Any, code: str) -> None:
    failure = answer(status, error)
    assert (failure.code, failure.status) == (code, status)


def test_D08_the_class_of_an_error_may_stand_in_a_header() -> None:
    assert answer(400, {"message": "no"}, x_amzn_errortype="AccessDeniedException:http://x/").code == "AUTH"
    assert answer(400, {"message": "no"}, X_Amzn_ErrorType="ThrottlingException").code == "RATE_LIMIT"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "SERVER"),
        ({"type": "api_error", "message": "Internal server error"}, "SERVER"),
        ({"message": "out of memory while decoding", "type": "server_error"}, "SERVER"),
        ({"code": 502, "message": "upstream worker limit reached"}, "SERVER"),
        ({"code": 429, "message": "Provider returned error"}, "RATE_LIMIT"),
        ({"code": "429", "message": "slow"}, "RATE_LIMIT"),
        ({"error": "an error was encountered while running the model"}, "SERVER"),
        ("an error was encountered while running the model", "SERVER"),
        ({"code": "insufficient_system_resource"}, "SERVER"),
        ({"type": "invalid_request_error", "message": "bad"}, "INVALID_REQUEST"),
        ({"code": "tool_use_failed", "message": "bad"}, "INVALID_REQUEST"),
        ({"code": "previous_response_not_found"}, "INVALID_REQUEST"),
        ({"code": "internal_server_error", "type": "invalid_request_error"}, "SERVER"),
        ({"message": "Incorrect API key provided"}, "AUTH"),
        ({"code": "rate_limit_exceeded"}, "RATE_LIMIT"),
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}},
            "SERVER",
        ),
        (None, "SERVER"),
        ([], "SERVER"),
        (7, "SERVER"),
    ],
)
def test_D07_in_band_errors(error: Any, code: str) -> None:
    assert failure_from_error_object(error).code == code
    assert failure_from_error_object(error, status=200).code == code


def test_D07_the_stream_s_status_does_not_classify_and_the_error_s_own_does() -> None:
    event = {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Overloaded"},
        "request_id": "req_t2",
    }
    expected = LlmFailure("Overloaded", "SERVER", 200, None, ProviderRequestId("req_t2"))
    assert failure_from_error_object(event, status=200) == expected
    assert failure_from_error_object({"code": 503, "message": "m"}, status=200).status == 503
    assert failure_from_error_object({"message": "m"}, headers={"X-Request-Id": "r"}).request_id == "r"
    assert failure_from_error_object({"message": "m"}, status=999).status is None
    assert failure_from_error_object({"code": "odd_thing"}).message.endswith("without a message: odd_thing")
    assert failure_from_error_object({"type": "error"}).message.endswith("without a message")
    assert failure_from_error_object({"message": "Please try again in 2s"}).provider_retry_after_ms == 2000


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error_msg":"Authentication Fails"}', "Authentication Fails"),
        (b'{"error":"Bad Request","message":"the field is wrong"}', "the field is wrong"),
        (b'{"error":{"message":"a","metadata":{"raw":"b"}}}', "a: b"),
        (b'{"error":{"message":"a b","metadata":{"raw":"b"}}}', "a b"),
        (b'{"errors":[{"message":"a"},{"message":"b"},{"message":"a"}]}', "a; b"),
        (b'{"detail":[{"loc":["body","model"],"msg":"field required"}]}', "body.model: field required"),
        (b'{"error":"{\\"error\\":{\\"message\\":\\"inner\\"}}"}', "inner"),
        (b'"just a text"', "just a text"),
        (b'\xef\xbb\xbf{"message":"with a BOM"}', "with a BOM"),
        (b'{"message":"\\ud83d\\ude00 \\ud83d"}', "\U0001f600 \ufffd"),
        (b'{"message":"  a\x1b[31m\\u0000b\x07 "}', "a [31m b"),
        (b'{"message":"caf\xe9"}', "caf\ufffd"),
        (b'id:1\nevent:error\n:HTTP_STATUS/400\ndata:{"message":"in a stream"}\n\n', "in a stream"),
        (b"upstream connect\n error", "HTTP 400 Bad Request: upstream connect error"),
        (b'{"broken', "HTTP 400 Bad Request"),
        (b'{"error":{"code":"odd_thing"}}', "HTTP 400 Bad Request: odd_thing"),
        (b'{"error":{"message":"","code":400}}', "HTTP 400 Bad Request"),
        (b"<html><title>\n Sign  in </title>", "HTTP 400 Bad Request: a web page ('Sign in') " + NO_API),
        (b" <!DOCTYPE HTML><p>prompt is too long", "HTTP 400 Bad Request: a web page " + NO_API),
    ],
)
def test_D08_messages(body: bytes, message: str) -> None:
    failure = answer(400, body)
    assert failure.message == message
    assert failure.code == "INVALID_REQUEST"


def test_D08_long_messages_are_cut() -> None:
    failure = answer(400, {"message": "x" * 100_000})
    assert len(failure.message) == 2000
    assert failure.message.endswith("…")
    assert len(answer(400, b"word " * 100_000).message) < 300


def test_D08_a_huge_page_is_read_in_bounded_time() -> None:
    for piece in (b"<", b"<title", b"<title>", b"\n", b"data:", b'{"error":'):
        for status in (200, 500):
            assert len(answer(status, b"<html>" + piece * 200_000).message) < 400
            assert len(answer(status, piece * 200_000).message) < 400


def test_D08_nested_beyond_reason() -> None:
    deep: Any = {"message": "at the bottom"}
    for _ in range(50):
        deep = {"error": deep}
    assert answer(400, deep).message == "HTTP 400 Bad Request"
    assert answer(400, b"[" * 200_000).code == "INVALID_REQUEST"
    assert answer(400, [{"message": str(n)} for n in range(5000)]).message == "0; 1; 2; 3; 4"
    assert answer(400, {"errors": [{"error": {}}] * 400}).code == "INVALID_REQUEST"
    assert answer(400, b"9" * 10_000).code == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("headers", "body_id", "found"),
    [
        ({"x-request-id": "a", "request-id": "b", "x-deepseek-request-id": "c"}, "d", "a"),
        ({"request-id": "b", "x-deepseek-request-id": "c"}, "d", "b"),
        ({"x-deepseek-request-id": "c", "apim-request-id": "e"}, "d", "c"),
        ({"apim-request-id": "e", "x-goog-request-id": "f"}, "d", "e"),
        ({"x-goog-request-id": "f", "cf-ray": "g"}, "d", "f"),
        ({"cf-ray": "g"}, "d", "d"),
        ({"cf-ray": "g"}, None, "g"),
        ({"X-Request-ID": " a "}, None, "a"),
        ({"x-request-id": " ", "request-id": "b"}, None, "b"),
        ({"x-request-id": f" {'x' * 256} "}, None, "x" * 256),
        ({"x-request-id": "x" * 257}, None, None),
        ({"x-request-id": "a\x01"}, None, None),
        ({}, None, None),
    ],
)
def test_D08_request_ids(headers: dict[str, str], body_id: str | None, found: str | None) -> None:
    body = json.dumps({"error": {"message": "m"}, "request_id": body_id}).encode()
    assert failure_from_response(500, headers, body).request_id == found
    assert failure_from_response(500, httpx.Headers(headers), body).request_id == found


def test_D08_a_404_names_the_url_without_secrets() -> None:
    failure = failure_from_response(404, {}, b'{"detail":"Not Found"}', url="https://u:pw@h/v1/v2?key=SECRET")
    assert failure.message == "Not Found (HTTP 404 from https://h/v1/v2?key=***)"
    assert "http" not in failure_from_response(400, {}, b'{"detail":"no"}', url="https://h").message


def test_API_keys_are_blacked_out_of_messages() -> None:
    body = b'{"error":{"message":"Received=sk-secret-1, expected another; or sk-ab*****cret, not a ** b"}}'
    failure = failure_from_response(401, {}, body, secrets=("sk-secret-1", "a"))
    assert failure.message == "Received=[redacted], expected another; or [redacted], not a ** b"
    assert (
        "sk-secret-1" not in failure_from_error_object("sk-secret-1 is bad", secrets=["sk-secret-1"]).message
    )


def test_L25_a_silent_overflow_is_one_only_where_the_provider_is_known_for_it() -> None:
    for status in (400, 413):
        assert failure_from_response(status, {}, b"").code == "INVALID_REQUEST"
        failure = failure_from_response(status, {}, b"\n", silent_overflow=True)
        assert failure.code == "CONTEXT_WINDOW_EXCEEDED"
    assert (
        failure_from_response(400, {}, b'{"message":"bad"}', silent_overflow=True).code == "INVALID_REQUEST"
    )
    assert failure_from_response(500, {}, b"", silent_overflow=True).code == "SERVER"


def test_a_200_that_is_not_the_expected_stream() -> None:
    page = b"<!doctype html><html><head><title>Sign in</title></head><body>Please sign in</body></html>"
    failure = answer(200, page, content_type="text/html; charset=utf-8")
    assert failure.code == "MALFORMED_RESPONSE"
    assert "text/html" in failure.message
    assert "Sign in" in failure.message
    assert "<" not in failure.message
    failure = answer(200, {"error": {"message": "model not loaded", "code": 503}})
    assert (failure.code, failure.message, failure.status) == ("SERVER", "model not loaded", 200)
    assert answer(200, {"error": {"code": 429}}).code == "RATE_LIMIT"
    assert answer(200, {"object": "error", "message": "top_k", "code": 400}).code == "INVALID_REQUEST"
    assert answer(200, b" ").code == "EMPTY_RESPONSE"
    assert answer(204, b"").message == "HTTP 204 No Content, but the body is empty"
    failure = answer(200, {"id": "c-1", "choices": []})
    assert failure.code == "MALFORMED_RESPONSE"
    assert "an undeclared type" in failure.message


def test_D08_the_raw_body_is_kept_as_cause_and_the_remedy_as_a_note() -> None:
    body = b'{"error":{"message":"invalid x-api-key","type":"authentication_error"}}'
    error = error_from_response(401, JSON, body, now=0.0)
    assert isinstance(error, LlmError)
    assert error.failure == failure_from_response(401, JSON, body)
    cause = error.__cause__
    assert isinstance(cause, ProviderResponseError)
    assert (cause.status, cause.content_type, cause.body) == (401, "application/json", body)
    assert str(cause) == f"HTTP 401 with {len(body)} bytes of application/json"
    assert "x-api-key" not in repr(cause)
    assert error.__notes__ == [
        "Check the API key, and that it belongs to this endpoint and may use this model."
    ]
    again = pickle.loads(pickle.dumps(cause))
    assert (again.status, again.body) == (401, body)
    plain = error_from_response(503, {}, b"")
    assert not hasattr(plain, "__notes__")
    assert str(plain.__cause__) == "HTTP 503 with 0 bytes of an undeclared type"


KEYS = [
    *("error", "errors", "message", "msg", "error_msg", "code", "type", "status", "detail", "details"),
    *("metadata", "raw", "response", "loc", "request_id", "retryDelay"),
]
JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.sampled_from(KEYS),
                st.text(max_size=5),
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["retry-after", "Retry-After-Ms", "x-request-id", "x-amzn-errortype", "content-type", "odd"]
    ),
    st.text(max_size=30),
)


@given(
    st.integers(100, 999),
    HEADERS,
    st.one_of(st.binary(max_size=200), JSON_VALUES.map(lambda v: json.dumps(v).encode())),
)
def test_D08_any_answer_gives_a_valid_failure(status: int, headers: dict[str, str], body: bytes) -> None:
    error = error_from_response(status, headers, body, url="https://h/x", secrets=("secret",))
    assert not any(ord(character) < 0x20 and character not in "\t\n" for character in error.failure.message)
    error.failure.message.encode()  # no lone surrogate


@given(JSON_VALUES, st.one_of(st.none(), st.integers(100, 599)))
def test_D07_any_in_band_error_gives_a_valid_failure(value: Any, status: int | None) -> None:
    failure_from_error_object(value, status=status).message.encode()
