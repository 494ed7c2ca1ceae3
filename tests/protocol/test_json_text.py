"""JSON text: what is taken, what is refused, what is sent."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import CASES, requires_cases
from tests.strategies import PLACES, cut
from trio_llm.model import codes
from trio_llm.model.failures import LlmError
from trio_llm.model.json_value import freeze_json
from trio_llm.protocol.json_text import (
    SurrogateJoiner,
    arguments_object,
    compact,
    decode_lenient,
    encode_body,
    is_complete_json,
    outgoing_arguments,
)

ANY_TEXT = st.text(st.sampled_from(["a", "é", "\ud83c", "\udf63", "\\", '"', "\U0001f363", "\u2028"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=10,
)


def whole(text: str) -> str:
    """``text`` with halves that stand together joined, as JSON itself joins their escapes."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":[1,2.5,null,true]}', {"a": [1, 2.5, None, True]}),
        (b'"\\ud83c"', "\ud83c"),
        (b'"\\ud83c\\udf63"', "\U0001f363"),
        (b'"\xff"', "\ufffd"),
        (b"\xef\xbb\xbf{}", {}),
        ('"\ud83c"', "\ud83c"),
        (b"1e400", float("inf")),
    ],
)
def test_decode_takes_what_is_met_in_the_wild(text: bytes | str, value: object) -> None:
    assert decode_lenient(text) == value


@pytest.mark.parametrize("text", [b"", b"{", b"{}{}", b": keepalive", b"[" * 200_000, b"9" * 5000 + b"x"])
def test_decode_refuses_what_is_no_json(text: bytes) -> None:
    with pytest.raises(LlmError) as raised:
        decode_lenient(text)
    assert raised.value.code == codes.MALFORMED_RESPONSE


def test_an_undecodable_text_is_not_repeated_in_the_failure() -> None:
    with pytest.raises(LlmError) as raised:
        decode_lenient(b'{"key": "sk-secret"')
    assert "sk-secret" not in raised.value.failure.message


@pytest.mark.parametrize("text", ["{}", "[]", "0", '"\\ud83c"', '"\ud83c"', " {} ", "1e400"])
def test_complete(text: str) -> None:
    assert is_complete_json(text)


@pytest.mark.parametrize(
    "text", ["", "{", '{"a":2', '{"a":"x', "NaN", "[Infinity]", "{} x", "{'a':1}", "[" * 200_000]
)
def test_incomplete(text: str) -> None:
    assert not is_complete_json(text)


@given(value=VALUES)
def test_outgoing_body_is_utf8_json_without_lone_halves(value: Any) -> None:
    body = encode_body({"v": freeze_json(value)})
    text = body.decode("utf-8")
    assert json.loads(text) == json.loads(
        json.dumps({"v": value}).encode().decode(), object_pairs_hook=_replaced_pairs
    )


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in whole(value))
    return [_replaced(item) for item in value] if isinstance(value, list) else value


def _replaced_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {_replaced(key): _replaced(item) for key, item in pairs}


def test_body_is_compact_and_takes_frozen_values_and_structs() -> None:
    class Part(msgspec.Struct):
        text: str

    assert encode_body({"a": (1, Part("\udc97")), "b": freeze_json({"c": [1]})}) == (
        '{"a":[1,{"text":"\ufffd"}],"b":{"c":[1]}}'.encode()
    )


def test_a_lone_half_takes_nothing_with_it() -> None:
    assert encode_body(["\ud83cab", "ab\ud83c", "\udf63\ud83c", "\ud83c\ud83c\udf63"]) == (
        '["\ufffdab","ab\ufffd","\ufffd\ufffd","\ufffd\U0001f363"]'.encode()
    )


@given(value=VALUES)
def test_compact_loses_nothing(value: Any) -> None:
    text = compact(freeze_json(value))
    assert json.loads(text) == json.loads(json.dumps(value, ensure_ascii=False))
    assert is_complete_json(text)


@pytest.mark.parametrize(
    ("raw", "sent"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ('{"v":1}', '{"v":1}'),
        (r'{"v":"\ud83c\udf63"}', r'{"v":"\ud83c\udf63"}'),
        (r'{"v":"x\udf63"}', r'{"v":"x\ufffd"}'),
        (r'{"v":"\ud83cx"}', r'{"v":"\ufffdx"}'),
        (r'{"v":"\uD83C\ud83c\uDF63"}', r'{"v":"\ufffd\ud83c\uDF63"}'),
        (r'{"v":"\\udf63"}', r'{"v":"\\udf63"}'),
        (r'{"v":"\\\udf63 \u00e9"}', r'{"v":"\\\ufffd \u00e9"}'),
    ],
)
def test_outgoing_arguments(raw: str, sent: str) -> None:
    assert outgoing_arguments(raw) == sent


@pytest.mark.parametrize(
    ("raw", "sent"),
    [("", {}), (" \n", {}), ('{"v":[1]}', {"v": [1]}), ("[1]", {}), ("null", {}), ('"v"', {})],
)
def test_arguments_object(raw: str, sent: dict[str, Any]) -> None:
    assert arguments_object(raw) == sent


def test_arguments_that_are_no_json_have_no_object() -> None:
    with pytest.raises(LlmError) as caught:
        arguments_object('{"v":')
    assert caught.value.code == codes.MALFORMED_RESPONSE


@requires_cases
def test_case_63_lone_surrogates_do_not_reach_the_wire() -> None:
    case = json.loads((CASES / "63-lone-surrogate-in-the-next-request" / "case.json").read_text())
    history = json.loads(case["input"]["history_escaped"])
    call = history[1]["content"][0]
    call["arguments"] = outgoing_arguments(json.dumps(call["arguments"]))
    text = encode_body(history).decode("utf-8")
    json.loads(text)
    assert not any(half in text.lower() for half in (r"\ud83c", r"\udc97", r"\udf63"))
    assert text.count("\ufffd") + text.count(r"\\ufffd") == 3
    assert "\U0001f363" in text


@given(text=ANY_TEXT, places=PLACES)
def test_joiner_gives_whole_characters_however_they_are_cut(text: str, places: list[int]) -> None:
    joiner = SurrogateJoiner()
    shown = [joiner.push(whole(piece)) for piece in cut(text, places)]
    assert "".join(shown) + joiner.flush() == whole(text)
    assert joiner.flush() == ""


def test_joiner_holds_a_trailing_high_half_only() -> None:
    joiner = SurrogateJoiner()
    assert [joiner.push(part) for part in ("a\ud83c", "", "\udf63b", "\udf63", "\ud83c", "c")] == [
        *("a", "", "\U0001f363b", "\udf63", "", "\ud83cc")
    ]
