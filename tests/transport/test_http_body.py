"""The body readers against h11: the same bytes are a body, or are not, however they are cut."""

from __future__ import annotations

import itertools
import re

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trio_llm.transport.body import (
    MAX_LINE,
    MAX_TRAILERS,
    BodyReader,
    ChunkedBody,
    EndlessBody,
    FramingError,
    SizedBody,
)

Verdict = tuple[str, bytes, bytes]
CHUNKED = b"transfer-encoding: chunked\r\n"


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


def oracle(header: bytes, reads: list[bytes], closed: bool) -> Verdict:
    parser = h11.Connection(h11.CLIENT, 1 << 20)
    parser.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(b"HTTP/1.1 200 OK\r\n" + header + b"\r\n")
    parser.next_event()
    body = b""
    try:
        for position, data in enumerate([*reads, b""] if closed else reads):
            parser.receive_data(data)
            while True:
                event = parser.next_event()
                if event is h11.NEED_DATA:
                    break
                if isinstance(event, h11.Data):
                    body += event.data
                if isinstance(event, h11.EndOfMessage):
                    return "done", body, parser.trailing_data[0] + b"".join(reads[position + 1 :])
    except h11.RemoteProtocolError:
        return "error", b"", b""
    return "more", body, b""


def ours(reader: BodyReader, reads: list[bytes], closed: bool) -> Verdict:
    body = b""
    without_body = reader.done
    if without_body:
        return "done", body, b"".join(reads)
    try:
        for position, data in enumerate(reads):
            body += reader.feed(data)
            if reader.done:
                return "done", body, reader.rest + b"".join(reads[position + 1 :])
        if closed:
            reader.end()
    except FramingError:
        return "error", b"", b""
    return ("done" if closed else "more"), body, b""


cut_lists = st.lists(st.integers(0, 200), max_size=6)
texts = st.binary(max_size=40) | st.lists(st.sampled_from([b"\r", b"\n", b"0", b";", b"data: x"])).map(
    b"".join
)


@st.composite
def chunked_bodies(draw: st.DrawFn) -> bytes:
    out = b""
    for data in draw(st.lists(st.binary(min_size=1, max_size=20), max_size=4)):
        size = draw(st.sampled_from([b"%x", b"%X", b"0%x", b"00000%x"])) % len(data)
        extension = draw(st.sampled_from([b"", b"", b" ", b"\t", b";a", b';a="b;c"', b";a\rb", b"; \t"]))
        out += size + extension + b"\r\n" + data + b"\r\n"
    out += draw(st.sampled_from([b"0", b"00", b"0;z", b"0 "])) + b"\r\n"
    out += draw(st.sampled_from([b"", b"", b"x: 1\r\n", b"x:\r\ny: 2 \r\n", b"x: \xff\r\n"])) + b"\r\n"
    return out + draw(st.sampled_from([b"", b"", b"NEXT"]))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    body = draw(chunked_bodies())
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, max(len(body) - 1, 0)))
        how = draw(st.integers(0, 2))
        junk = bytes([draw(st.sampled_from(list(b"\r\n0;x5 \t+_:\x00\x0b")))])
        body = [body[:at] + junk + body[at:], body[:at] + body[at + 1 :], body[:at]][how]
    return body


@given(chunked_bodies(), cut_lists, st.booleans())
def test_a_chunked_body_is_what_h11_says_however_it_is_cut(
    body: bytes, cuts: list[int], closed: bool
) -> None:
    reads = pieces(body, cuts)
    assert ours(ChunkedBody(), reads, closed) == oracle(CHUNKED, reads, closed)


@given(mutated(), cut_lists, st.booleans())
@example(b"5\nhello\r\n0\r\n\r\n", [], True)
@example(b"5\r\nhello\n0\r\n\r\n", [], True)
@example(b"5 ;a\r\nhello\r\n0\r\n\r\n", [], True)
@example(b"0x5\r\nhello\r\n0\r\n\r\n", [], True)
@example(b"+5\r\nhello\r\n0\r\n\r\n", [], True)
@example(b"1_0\r\nhello\r\n0\r\n\r\n", [], True)
@example(b"000000000000000000005\r\nhello\r\n0\r\n\r\n", [], True)
@example(b"FFFFFFFFFFFFFFFF\r\nhello", [3, 9], True)
@example(b"0\r\nnocolon\r\n\r\n", [], True)
@example(b"0\r\n", [], True)
@example(b"5\r\nhello\r\r\n", [8, 9], False)
@settings(max_examples=400)
def test_a_broken_chunked_body_is_never_taken_where_h11_refuses(
    body: bytes, cuts: list[int], closed: bool
) -> None:
    reads = pieces(body, cuts)
    verdict, expected = ours(ChunkedBody(), reads, closed), oracle(CHUNKED, reads, closed)
    if verdict != expected:
        # Stricter in trailers alone, and sooner: LF ends no line there, and no line is folded.
        assert verdict[0] in ("error", "more")
        trailers = re.split(rb"(?:^|\r\n)0+(?:;[^\n]*)?[ \t]*\r\n", body)[1:]
        assert trailers, (verdict, expected)
        if expected[0] == "done":
            assert any(re.search(rb"(?<!\r)\n|\n[ \t]|^[ \t]", part) for part in trailers)


@given(mutated(), cut_lists)
def test_where_a_chunked_body_is_cut_never_matters(body: bytes, cuts: list[int]) -> None:
    assert ours(ChunkedBody(), pieces(body, cuts), True) == ours(ChunkedBody(), [body], True)


@given(texts, st.integers(0, 60), cut_lists, st.booleans())
def test_a_sized_body_is_what_h11_says(data: bytes, length: int, cuts: list[int], closed: bool) -> None:
    reads = pieces(data, cuts)
    got = ours(SizedBody(length), reads, closed)
    expected = oracle(b"content-length: %d\r\n" % length, reads, closed)
    if length == 0 and not reads and not closed:
        expected = ("done", b"", b"")  # h11 was not asked
    assert got == expected


@given(texts, cut_lists, st.booleans())
def test_a_close_delimited_body_is_what_h11_says(data: bytes, cuts: list[int], closed: bool) -> None:
    reads = pieces(data, cuts)
    assert ours(EndlessBody(), reads, closed) == oracle(b"", reads, closed)


def test_bytes_of_one_read_come_back_joined() -> None:
    reader = ChunkedBody()
    assert reader.feed(b"3\r\nabc\r\n2\r\nde\r\n1\r\nf") == b"abcdef"
    assert reader.feed(b"\r\n0\r\n\r\nrest") == b""
    assert (reader.done, reader.rest) == (True, b"rest")


@pytest.mark.parametrize("cut", range(-3, 4))
def test_a_size_line_is_bounded_wherever_it_is_cut(cut: int) -> None:
    def feed(length: int) -> bytes:
        line = b"3;" + b"x" * (length - 2)
        reader = ChunkedBody()
        return b"".join(map(reader.feed, pieces(line + b"\r\nabc\r\n", [length + cut])))

    assert feed(MAX_LINE) == b"abc"
    with pytest.raises(FramingError, match="too long"):
        feed(MAX_LINE + 1)


def test_a_size_line_that_never_ends_is_refused() -> None:
    reader = ChunkedBody()
    with pytest.raises(FramingError, match="too long"):
        for _ in range(3):
            reader.feed(b"1;" + b"x" * (MAX_LINE // 2))


def test_trailers_are_bounded_altogether() -> None:
    reader = ChunkedBody()
    reader.feed(b"0\r\n")
    line = b"x: " + b"y" * 1000 + b"\r\n"
    with pytest.raises(FramingError, match="trailers are too long"):
        for _ in range(MAX_TRAILERS // len(line) + 1):
            reader.feed(line)


def test_no_error_quotes_what_was_received() -> None:
    for body in (b"SECRET\r\n", b"3\r\nabcSECRET", b"0\r\nSECRET\r\n\r\n"):
        with pytest.raises(FramingError) as caught:
            ChunkedBody().feed(body)
        assert "SECRET" not in str(caught.value)


def test_a_chunk_may_be_larger_than_any_read() -> None:
    reader = ChunkedBody()
    got = reader.feed(b"186a0\r\n" + b"a" * 32768) + reader.feed(b"b" * 32768)
    got += reader.feed(b"c" * (100_000 - 65536) + b"\r") + reader.feed(b"\n0\r\n\r\n")
    assert got == b"a" * 32768 + b"b" * 32768 + b"c" * (100_000 - 65536)
    assert reader.done
