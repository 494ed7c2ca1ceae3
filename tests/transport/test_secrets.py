"""Keys that a server repeats."""

from __future__ import annotations

import json
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.model.chunks import Error, Finish, Stop, ToolCalls
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import ProviderRequestId
from trio_llm.transport.errors import error_from_response, failure_from_error_object, failure_from_response
from trio_llm.transport.secrets import blacked_out, finish_without, kept_secret, value_without

KEY = "sk-Secret/1\"2'3\\4"
PART = "sk-Secret"
SPOILT = LlmFailure(f"bad {KEY}", KEY.upper(), 401, None, ProviderRequestId(KEY))
CLEAN = LlmFailure("bad [redacted]", "[redacted]", 401, None, ProviderRequestId("[redacted]"))


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_key_is_found_in_any_case_and_in_json_in_json(times: int) -> None:
    text = f"x {KEY} y {KEY.upper()} z"
    for _ in range(times):
        text = json.dumps(text)
    assert PART.lower() not in blacked_out(text, [KEY]).lower()
    assert blacked_out(text.replace("/", "\\/"), [KEY]).count("[redacted]") == 2


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=6, max_size=80))
def test_any_key_goes_and_the_rest_stays(key: str) -> None:
    assert blacked_out(f"\u00e4 {key} \u00f6", [key]) == "\u00e4 [redacted] \u00f6"


def test_short_ones_and_none_leave_the_text() -> None:
    assert blacked_out("a b abcde", ["a", "abcde", ""]) == "a b abcde"
    assert blacked_out("a", []) == "a"


def test_a_megabyte_of_backslashes_takes_no_time_to_speak_of() -> None:
    text = "\\" * 1_000_000 + KEY
    assert blacked_out(text, [KEY]).endswith("[redacted]")


def test_values_keep_their_shape() -> None:
    value = {"a": [KEY, 1, None, True, {"b": f"<{KEY}>"}], "c": (KEY,)}
    assert value_without(value, [KEY]) == {
        "a": ["[redacted]", 1, None, True, {"b": "<[redacted]>"}],
        "c": ["[redacted]"],
    }
    deep: object = KEY
    for _ in range(100_000):
        deep = [deep]
    assert KEY not in str(value_without(deep, [KEY]))


def test_the_end_of_a_response() -> None:
    assert finish_without(Finish(Error(SPOILT, raw=KEY)), [KEY]) == Finish(Error(CLEAN, raw="[redacted]"))
    assert finish_without(Finish(Stop(raw=KEY)), [KEY]) == Finish(Stop(raw="[redacted]"))
    sound = Finish(ToolCalls(raw="tool_calls"))
    assert finish_without(sound, [KEY]) is sound


def test_errors_on_their_way_stay_the_same_object() -> None:
    error = LlmError.of(SPOILT)
    with pytest.raises(LlmError) as raised, kept_secret([KEY]):
        raise error
    assert raised.value is error
    assert error.failure == CLEAN
    assert PART.lower() not in (repr(error) + str(error)).lower()


def test_a_cause_that_repeats_a_key_is_left_out_and_others_stay() -> None:
    inner = ExceptionGroup("g", [ValueError("harmless"), ValueError(KEY)])
    middle = OSError("broken")
    middle.__cause__ = inner
    inner.__context__ = middle  # a circle
    for cause, left in ((middle, None), (OSError("broken"), OSError)):
        error = LlmError("no", "TRANSPORT")
        with pytest.raises(LlmError) as raised, kept_secret([KEY]):
            raise error from cause
        assert raised.value is error
        assert left is None or isinstance(error.__cause__, left)
        assert (error.__cause__ is None) is (left is None)
        assert PART not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "shape", ['{{"error": {{"message": "{}"}}}}', "{}", "<html><title>{}</title></html>", '"{}"']
)
@pytest.mark.parametrize("status", [200, 401, 404, 500])
def test_a_key_that_a_limit_would_cut_leaves_no_part_behind(shape: str, status: int) -> None:
    key = "sk-Secret-1234567890"
    for length in [*range(175, 205), *range(1975, 2005)]:
        body = shape.format("x" * (length - 1) + " " + key).encode()
        error = error_from_response(status, {"content-type": f"text/{key}"}, body, secrets=[key])
        assert PART not in str(error) + str(error.__cause__) + repr(error.__cause__)
        failure = failure_from_error_object(
            json.loads(body) if shape[0] in '{"' and shape != "{}" else body.decode(), secrets=[key]
        )
        assert PART not in failure.message


def test_request_ids_that_are_keys() -> None:
    said = {"error": {"message": "no", "request_id": KEY}}
    for failure in (
        failure_from_response(500, {"x-request-id": KEY}, b"", secrets=[KEY]),
        failure_from_response(500, {}, json.dumps(said).encode(), secrets=[KEY]),
        failure_from_error_object(said, secrets=[KEY]),
        failure_from_error_object("no", headers={"request-id": KEY}, secrets=[KEY]),
    ):
        assert failure.request_id == "[redacted]"
