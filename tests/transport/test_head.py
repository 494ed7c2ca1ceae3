"""Heads of requests: what is written here is what h11 reads and would have written, or is left to h11."""

from __future__ import annotations

from collections.abc import Sequence

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.transport.head import Exchange, plain_post
from trio_llm.transport.wire_error import WireError

ANY = st.binary(max_size=12)
NAMES = st.sampled_from([b"x-a", b"X-A", b"Accept", b"connection", b"transfer-encoding", b"expect", b"x: y"])
NAMES |= ANY
VALUES = (
    st.sampled_from([b"a b", b"a\tb", b" a", b"a ", b"", b"close", b"chunked", b"\xff", b"a\r\nx: b"]) | ANY
)


def read_by_h11(data: bytes) -> tuple[h11.Request, bytes] | None:
    """The request that a server reads from ``data``; None if it reads none, or more than one."""
    server = h11.Connection(h11.SERVER)
    try:
        server.receive_data(data)
        request = server.next_event()
        body = b""
        while isinstance(event := server.next_event(), h11.Data):
            body += bytes(event.data)
    except h11.RemoteProtocolError:
        return None
    whole = isinstance(request, h11.Request) and isinstance(event, h11.EndOfMessage)
    return (request, body) if whole and not server.trailing_data[0] else None  # type: ignore[return-value]  # a Request


@given(
    target=st.sampled_from([b"/", b"/v1/chat", b"/a b", b"", b"/\xff", b"/x HTTP/1.1\r\nevil: 1"]) | ANY,
    others=st.lists(st.tuples(NAMES, VALUES), max_size=3),
    body=ANY,
)
def test_what_is_written_is_what_h11_reads(
    target: bytes, others: list[tuple[bytes, bytes]], body: bytes
) -> None:
    headers = [(b"Host", b"h:80"), *others, (b"content-length", b"%d" % len(body))]
    written = plain_post(b"POST", target, headers, body)
    if written is None:
        return
    read = read_by_h11(written)
    assert read is not None
    request, got = read
    assert (request.method, request.target, got) == (b"POST", target, body)
    assert list(request.headers) == [(name.lower(), value) for name, value in headers]


@given(others=st.lists(st.tuples(NAMES, VALUES), max_size=3))
def test_what_h11_refuses_is_not_written(others: list[tuple[bytes, bytes]]) -> None:
    headers = [(b"host", b"h"), *others, (b"content-length", b"2")]
    try:
        h11.Request(method=b"POST", target=b"/", headers=headers)
    except h11.LocalProtocolError:
        assert plain_post(b"POST", b"/", headers, b"ab") is None


HOST = (b"host", b"h")
LENGTH = (b"content-length", b"2")


@pytest.mark.parametrize(
    "headers",
    [
        [LENGTH],
        [HOST],
        [HOST, (b"content-length", b"3")],
        [HOST, LENGTH, LENGTH],
        [HOST, HOST, LENGTH],
        [HOST, LENGTH, (b"Connection", b"close")],
        [HOST, (b"Transfer-Encoding", b"chunked")],
        [HOST, LENGTH, (b"x", b"a\r\nevil: 1")],
        [HOST, LENGTH, (b"Transfer-Encoding: chunked, x", b"y")],
    ],
    ids=str,
)
def test_anything_unusual_is_left_to_h11(headers: Sequence[tuple[bytes, bytes]]) -> None:
    assert plain_post(b"POST", b"/", headers, b"ab") is None


def test_a_body_of_another_length_than_said_is_refused() -> None:
    with pytest.raises(WireError):
        Exchange(b"POST", b"/", [HOST, (b"content-length", b"3")], b"ab")


@pytest.mark.parametrize("method", [b"POST", b"GET", b"HEAD"])
@pytest.mark.parametrize("closes", [True, False])
def test_the_response_of_either_way_to_write_is_read_alike(method: bytes, closes: bool) -> None:
    headers = [HOST, LENGTH, *([(b"connection", b"close")] if closes else [])]
    exchange = Exchange(method, b"/p", headers, b"ab")
    assert exchange.begin.startswith(method + b" /p HTTP/1.1\r\n")
    assert exchange.begin.endswith(b"\r\n\r\nab")
    response = exchange.receive(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc")
    assert response is not None
    body, reusable = exchange.body_of(response)
    assert reusable is not closes
    assert body.done is (method == b"HEAD")
    assert exchange.trailing_data == b"abc"
