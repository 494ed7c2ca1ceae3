"""Lines of JSON, however they are cut."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import CASES, requires_cases
from tests.strategies import PLACES, cut
from trio_llm.model import codes
from trio_llm.model.failures import LlmError
from trio_llm.protocol.ndjson import NdjsonDecoder
from trio_llm.protocol.sse import MAX_EVENT_SIZE, SseEvent


def decode(*reads: bytes, clean: bool = True) -> list[bytes]:
    decoder = NdjsonDecoder()
    events = [event for read in reads for event in decoder.feed(read)]
    events += decoder.close(clean)
    assert all(name == "" for name, _ in events)
    return [data for _, data in events]


@given(
    lines=st.lists(
        st.sampled_from(["{}", '{"a":"é\u2028\u0085 ☕"}', "", "  ", '{"b":[1,2]}\r', "5"]), max_size=10
    ),
    places=PLACES,
)
def test_any_split_gives_the_same_lines(lines: list[str], places: list[int]) -> None:
    expected = [line.strip().encode() for line in lines if line.strip()]
    body = "\n".join(lines).encode()
    assert decode(*cut(body, places)) == expected
    assert decode(*(body[at : at + 1] for at in range(len(body)))) == expected
    assert decode(body + b"\n", clean=False) == expected


def test_last_line_needs_a_proper_end_and_a_whole_text() -> None:
    assert decode(b'{"a":1}') == [b'{"a":1}']
    assert decode(b'{"a":1}', clean=False) == []
    assert decode(b'{"a":') == []
    assert decode(b"{}\n  ") == [b"{}"]


def test_a_cr_alone_ends_no_line() -> None:
    assert decode(b'{"a":\r1}\r\n') == [b'{"a":\r1}']


def test_invalid_utf8_becomes_the_replacement_character() -> None:
    assert decode(b'{"a":"\xff"}\n') == ['{"a":"\ufffd"}'.encode()]


@pytest.mark.parametrize("size", [1, 5, 100])
def test_oversized_line_is_malformed_and_loses_nothing_before_it(size: int) -> None:
    decoder = NdjsonDecoder(max_event_size=10)
    body, events = b"{}\n[1]\n" + b"x" * 11 + b"\n{}\n", []
    with pytest.raises(LlmError) as raised:  # the events before the failure are asserted too
        for at in range(0, len(body), size):
            events += decoder.feed(body[at : at + size])
        decoder.close(True)
    assert raised.value.code == codes.MALFORMED_RESPONSE
    assert events == [("", b"{}"), ("", b"[1]")]
    with pytest.raises(LlmError):
        decoder.close(False)


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("limit", [10, MAX_EVENT_SIZE])
def test_a_line_of_exactly_the_limit_passes_and_one_byte_more_does_not(size: int, limit: int) -> None:
    def read(line: bytes) -> list[SseEvent]:
        decoder, body = NdjsonDecoder(limit), line + b"\n"
        step = size * limit // 10
        return [event for at in range(0, len(body), step) for event in decoder.feed(body[at : at + step])]

    assert MAX_EVENT_SIZE == 16 * 1024 * 1024
    assert [len(payload) for _, payload in read(b"x" * limit)] == [limit]
    with pytest.raises(LlmError):
        read(b"x" * (limit + 1))


@requires_cases
def test_case_08_lines_cut_anywhere() -> None:
    folder = CASES / "08-ndjson-line-cut-anywhere"
    reads = [base64.b64decode(chunk) for chunk in json.loads((folder / "chunks.json").read_text())]
    body = (folder / "stream.ndjson").read_bytes()
    assert decode(*reads) == body.split(b"\n")
