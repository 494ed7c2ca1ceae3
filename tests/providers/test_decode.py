"""Typed decoding: strict first, then as permissive as can be."""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.model.failures import LlmError
from trio_llm.providers.decode import EventDecoder


class Thing(msgspec.Struct):
    text: str | None = None
    count: int | None = None


decode = EventDecoder(Thing)


def test_the_fast_way() -> None:
    assert decode(b'{"text": "a", "unknown": [1]}') == Thing("a")


@pytest.mark.parametrize("data", [b'{"count": "3"}', b'{"count": 3.0}'])
def test_a_number_in_another_dress(data: bytes) -> None:
    assert decode(data) == Thing(count=3)


@given(st.text(st.characters(codec=None)))
def test_any_text_survives(text: str) -> None:
    # Halves that stand together are one character, as JSON text has it.
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert decode(json.dumps({"text": text}).encode()) == Thing(joined)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"5", b'{"count": "x"}', b'{"text": {}}', b"[" * 100_000, b"\xff"]
)
def test_what_makes_no_sense_is_malformed_and_quoted(data: bytes) -> None:
    with pytest.raises(LlmError) as caught:
        decode(data)
    assert caught.value.code == "MALFORMED_RESPONSE"
    assert len(str(caught.value)) < 500


@given(st.binary(max_size=200))
def test_bytes_decode_or_are_an_llm_error(data: bytes) -> None:
    with contextlib.suppress(LlmError):
        assert isinstance(decode(data), Thing)


@pytest.mark.parametrize("data", [b'{"text": ["said"]}', b'{"text": "said"', b"said", b'["said"]'])
def test_what_cannot_be_read_is_not_quoted(data: bytes) -> None:
    with pytest.raises(LlmError) as raised:
        decode(data)
    assert "said" not in raised.value.failure.message + str(raised.value.__cause__)


def test_the_place_of_another_shape_is_told() -> None:
    with pytest.raises(LlmError, match=r"\$\.text"):
        decode(b'{"text": ["said"]}')
