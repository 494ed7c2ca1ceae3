"""The wire server itself: what its scripts put on the wire, and what it records."""

import math
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h11
import pytest
import trio
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_llm.testing.wire_script import (
    LAST_CHUNK,
    Cut,
    Gate,
    Hold,
    Pause,
    Raw,
    Repeat,
    Reset,
    Response,
    encode_chunk,
    event_stream,
    json_response,
)
from trio_llm.testing.wire_server import WireServer, unused_port

GET = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"


@asynccontextmanager
async def connected(server: WireServer) -> AsyncIterator[trio.SocketStream]:
    stream = await trio.open_tcp_stream(server.host, server.port)
    async with stream:
        yield stream


async def reads_to_end(stream: trio.abc.ReceiveStream) -> list[bytes]:
    reads = []
    while data := await stream.receive_some(65536):
        reads.append(bytes(data))
    return reads


async def exchange(server: WireServer, request: bytes = GET) -> list[bytes]:
    """Every read until the server closes."""
    async with connected(server) as stream:
        await stream.send_all(request)
        return await reads_to_end(stream)


@pytest.fixture
def autojump(autojump_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    return autojump_clock


async def test_each_piece_is_one_chunk_and_one_read(autojump: object) -> None:
    async with WireServer(event_stream(b"a", b"bc", Cut())) as server:
        head, *pieces = await exchange(server)
    assert head == b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    assert pieces == [b"1\r\na\r\n", b"2\r\nbc\r\n"]


async def test_without_settle_writes_may_arrive_together(autojump: object) -> None:
    async with WireServer(Response(body=(b"a", b"b", Cut()), settle=False)) as server:
        assert b"".join(await exchange(server)).endswith(b"1\r\na\r\n1\r\nb\r\n")


async def test_connection_stays_for_the_next_request(autojump: object) -> None:
    async with (
        WireServer([json_response({"n": 1}), json_response([2])]) as server,
        connected(server) as stream,
    ):
        for body in (b'{"n": 1}', b"[2]"):
            await stream.send_all(GET)
            reads = [await stream.receive_some(), await stream.receive_some()]
            assert b"content-length: %d\r\n" % len(body) in reads[0]
            assert reads[1] == body
        assert [request.connection for request in server.requests] == [0, 0]
        assert server.connections[0].requests == server.requests
        assert server.open_connections == 1


async def test_pipelined_requests_are_answered_in_turn(autojump: object) -> None:
    async with WireServer([Response(204, framing="none"), Response(200, framing="close")]) as server:
        reads = await exchange(server, GET + GET)
    assert [read.split(b"\r\n")[0] for read in reads] == [b"HTTP/1.1 204 No Content", b"HTTP/1.1 200 OK"]


async def test_request_is_recorded(autojump: object) -> None:
    async with WireServer(Response(framing="close")) as server:
        await trio.sleep(3)
        started = trio.current_time()
        async with connected(server) as stream:
            await stream.send_all(
                b"POST /p?q=1 HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nX-A: \xe9\r\ncontent-length: 7\r\n\r\n{"
            )
            await trio.sleep(2)
            await stream.send_all(b'"a":1}')
            await reads_to_end(stream)
        request = await server.wait_request()
    assert (request.method, request.target) == ("POST", "/p?q=1")
    assert request.headers == (("host", "a"), ("x-a", "1"), ("x-a", "\xe9"), ("content-length", "7"))
    assert request.json() == {"a": 1}
    assert request.header("X-A") == "1"
    assert request.header("none") is None
    assert request.received_at == started + 2


async def test_chunked_request_body_is_decoded(autojump: object) -> None:
    async with WireServer(Response(framing="close")) as server:
        await exchange(
            server,
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
            + encode_chunk(b"ab", b";x=1")
            + LAST_CHUNK,
        )
    assert server.requests[0].body == b"ab"


async def test_close_delimited_body(autojump: object) -> None:
    async with WireServer(Response(200, {"x": "y"}, b"all of it", framing="close")) as server:
        head, body = await exchange(server)
    assert head == b"HTTP/1.1 200 OK\r\nx: y\r\nconnection: close\r\n\r\n"
    assert body == b"all of it"
    assert server.connections[0].bytes_sent == len(head) + len(body)
    assert server.connections[0].ended.is_set()


@pytest.mark.parametrize(
    "request_bytes",
    [b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"],
)
async def test_client_may_ask_for_the_close(request_bytes: bytes, autojump: object) -> None:
    async with WireServer(Response(204, framing="none")) as server:
        assert len(await exchange(server, request_bytes)) == 1


async def test_short_content_length(autojump: object) -> None:
    async with WireServer(Response(body=(b"four", Cut()), framing="length", content_length=504)) as server:
        head, body = await exchange(server)
    assert b"content-length: 504\r\n" in head
    assert body == b"four"


async def test_reset_reaches_the_client_after_the_data(autojump: object) -> None:
    async with WireServer(event_stream(b"a", Reset())) as server, connected(server) as stream:
        await stream.send_all(GET)
        await stream.receive_some()
        assert await stream.receive_some() == b"1\r\na\r\n"
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()


async def test_pauses_pass_on_trios_clock(autojump: object) -> None:
    response = event_stream(Pause(50), b"a", Repeat((Pause(5), b"b"), times=2), Cut())
    async with WireServer(after_silence(response, 100)) as server, connected(server) as stream:
        started = trio.current_time()
        await stream.send_all(GET)
        times = []
        while await stream.receive_some():
            times.append(trio.current_time() - started)
    assert times == [100, 150, 155, 160]


def after_silence(response: Response, seconds: float) -> Response:
    return Response(response.status, response.headers, response.body, before=(Pause(seconds),))


async def test_raw_bytes_pass_the_framing_and_the_head(autojump: object) -> None:
    response = Response(head=b"HTP/9 huh\r\n\r\n", body=(Raw(b"zz\r\n"), b"a", Cut()), before=(Raw(b"\r\n"),))
    async with WireServer(response) as server:
        assert await exchange(server) == [b"\r\n", b"HTP/9 huh\r\n\r\n", b"zz\r\n", b"1\r\na\r\n"]


async def test_empty_head_makes_everything_raw(autojump: object) -> None:
    async with WireServer(Response(head=b"", body=(Raw(b"x"), Cut()), framing="none")) as server:
        assert await exchange(server) == [b"x"]


async def test_head_request_gets_no_body(autojump: object) -> None:
    async with WireServer(Response(200, {"connection": "close"}, b"body", framing="length")) as server:
        (head,) = await exchange(server, b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n")
    assert head.endswith(b"content-length: 4\r\n\r\n")


async def test_gate_says_that_it_is_reached_and_waits(autojump: object) -> None:
    gate = Gate()
    async with WireServer(event_stream(b"a", gate, b"b", Cut())) as server, connected(server) as stream:
        await stream.send_all(GET)
        await gate.reached.wait()
        assert (await stream.receive_some()).endswith(b"\r\n\r\n1\r\na\r\n")
        with trio.move_on_after(1000) as patience:
            await stream.receive_some()
        assert patience.cancelled_caught
        gate.open()
        assert await reads_to_end(stream) == [b"1\r\nb\r\n"]


@pytest.mark.parametrize(
    "waiting", [Hold(), Gate(), Pause(math.inf), Repeat((b": still here\n\n",)), Repeat((Pause(1), b"x"))]
)
async def test_client_that_goes_is_seen_at_once(waiting: Gate | Repeat, autojump: object) -> None:
    async with WireServer(event_stream(b"a", waiting)) as server:
        async with connected(server) as stream:
            await stream.send_all(GET)
            while not (await stream.receive_some()).endswith(b"1\r\na\r\n"):
                pass
            left_at = trio.current_time()
        connection = await server.wait_connection()
        await connection.gone.wait()
        await connection.ended.wait()
        assert connection.gone_at == left_at
        assert connection.gone_how in ("eof", "reset")  # a reset where the client left data unread
        assert server.open_connections == 0


async def test_client_that_closes_with_nothing_unread_sends_eof(autojump: object) -> None:
    async with WireServer(event_stream(Hold())) as server:
        async with connected(server) as stream:
            await stream.send_all(GET)
            await stream.receive_some()
        await server.connections[0].gone.wait()
    assert server.connections[0].gone_how == "eof"


async def test_half_a_request_is_no_request(autojump: object) -> None:
    async with WireServer() as server:
        async with connected(server) as stream:
            await stream.send_all(GET[:9])
        connection = await server.wait_connection()
        await connection.ended.wait()
    assert server.requests == []
    assert connection.gone_how == "eof"


async def test_what_is_no_http_gets_400_and_is_recorded(autojump: object) -> None:
    async with WireServer() as server:
        (answer,) = await exchange(server, b"\x16\x03\x01 hello\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert server.connections[0].protocol_error is not None


async def test_flood_stops_at_a_client_that_does_not_read(autojump: object) -> None:
    async with WireServer(event_stream(Repeat((b"x" * 60000,)))) as server, connected(server) as stream:
        await stream.send_all(GET)
        await trio.sleep(60)
        sent = server.connections[0].bytes_sent
        await trio.sleep(60)
        assert server.connections[0].bytes_sent == sent > 0


async def test_handler_routes(autojump: object) -> None:
    async with WireServer(lambda request: Response(framing="close", body=request.target.encode())) as server:
        assert (await exchange(server))[1] == b"/x"


async def test_responses_can_be_added_later(autojump: object) -> None:
    async with WireServer() as server:
        server.respond(Response(418, framing="close"))
        assert (await exchange(server))[0].startswith(b"HTTP/1.1 418 I'm a Teapot\r\n")


async def test_unknown_status_has_a_phrase_all_the_same() -> None:
    assert Response(529).encode_head().startswith(b"HTTP/1.1 529 Unknown\r\n")
    assert Response(200, reason="Fine").encode_head().startswith(b"HTTP/1.1 200 Fine\r\n")


async def test_request_too_many_fails_the_test(autojump: object) -> None:
    with pytest.raises(AssertionError, match=r"request 1 \(GET /x\) has no response left"):
        async with WireServer() as server:
            await exchange(server)
            await trio.sleep_forever()


async def test_handler_that_raises_fails_the_test(autojump: object) -> None:
    def handler(request: object) -> Response:
        raise KeyError("a bug of the test")

    with pytest.raises(KeyError):
        async with WireServer(handler) as server:
            await exchange(server)


async def test_body_exception_leaves_as_itself(autojump: object) -> None:
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with WireServer(event_stream(Hold())) as server, connected(server) as stream:
            await stream.send_all(GET)
            await server.wait_request()
            raise error
    assert caught.value is error
    assert server.open_connections == 0


async def test_cancellation_passes_and_leaves_nothing(autojump: object) -> None:
    with trio.move_on_after(5) as scope:
        async with WireServer(event_stream(Hold())) as server:
            await exchange(server)
    assert scope.cancelled_caught
    assert server.open_connections == 0
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream(server.host, server.port)


async def test_silence_before_anything_is_read(autojump: object) -> None:
    async with WireServer(on_connect=[Hold()]) as server:
        async with connected(server) as stream:
            await stream.send_all(GET)
            with trio.move_on_after(100) as patience:
                await stream.receive_some()
        await server.connections[0].ended.wait()
    assert patience.cancelled_caught
    assert server.requests == []
    assert server.connections[0].gone.is_set()


async def test_reset_at_once(autojump: object) -> None:
    async with WireServer(on_connect=[Reset()]) as server, connected(server) as stream:
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()


async def test_gate_on_connect_leaves_an_upload_unread(autojump: object) -> None:
    async with WireServer(on_connect=[Gate()]) as server, connected(server) as stream:
        with trio.move_on_after(100) as patience:
            await stream.send_all(bytes(64 * 1024 * 1024))
    assert patience.cancelled_caught


async def test_answer_before_the_body_is_read(autojump: object) -> None:
    async with WireServer(Response(413, framing="close"), read_bodies=False) as server:
        reads = await exchange(server, b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5000\r\n\r\n")
    assert reads[0].startswith(b"HTTP/1.1 413 ")
    assert server.requests[0].body == b""


async def test_hold_without_reading_bodies_still_sees_the_client_go(autojump: object) -> None:
    async with WireServer(event_stream(Hold()), read_bodies=False) as server:
        async with connected(server) as stream:
            await stream.send_all(GET)
            await stream.receive_some()
        await server.connections[0].ended.wait()
    assert server.connections[0].gone_how == "eof"


async def test_client_that_goes_early_is_seen_without_reading_bodies(autojump: object) -> None:
    async with WireServer(read_bodies=False) as server:
        async with connected(server):
            await server.wait_connection()
        await server.connections[0].ended.wait()
    assert server.requests == []


async def test_sending_to_a_client_that_is_gone_ends_the_connection(autojump: object) -> None:
    async with WireServer(event_stream(Repeat((Pause(1), b"x"))), read_bodies=False) as server:
        async with connected(server) as stream:
            await stream.send_all(GET)
            await stream.receive_some()
        await server.connections[0].ended.wait()


@pytest.fixture
def tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's context."""
    ca = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    ca.configure_trust(client)
    return server, client


async def test_tls_keeps_write_boundaries_and_says_goodbye(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], autojump: object
) -> None:
    async with WireServer(Response(body=(b"a", b"b"), framing="close"), tls=tls[0]) as server:
        assert server.base_url == f"https://127.0.0.1:{server.port}"
        async with connected(server) as raw:
            # Not https_compatible: a missing close alert would be an error.
            stream = trio.SSLStream(raw, tls[1], server_hostname="127.0.0.1")
            await stream.send_all(GET)
            assert (await reads_to_end(stream))[1:] == [b"a", b"b"]


async def test_tls_cut_sends_no_close_alert(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], autojump: object
) -> None:
    async with WireServer(event_stream(Cut()), tls=tls[0]) as server, connected(server) as raw:
        stream = trio.SSLStream(raw, tls[1], server_hostname="127.0.0.1")
        await stream.send_all(GET)
        await stream.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()


async def test_tls_client_that_goes_is_seen(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], autojump: object
) -> None:
    async with WireServer(event_stream(b"a", Repeat((Pause(1), b": hi\n"))), tls=tls[0]) as server:
        async with connected(server) as raw:
            stream = trio.SSLStream(raw, tls[1], server_hostname="127.0.0.1")
            await stream.send_all(GET)
            await trio.sleep(10.5)
        connection = await server.wait_connection()
        await connection.ended.wait()
        assert connection.gone_at == trio.current_time()


async def test_tls_client_that_goes_during_the_handshake(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], autojump: object
) -> None:
    async with WireServer(tls=tls[0]) as server:
        async with connected(server) as raw:
            await raw.send_all(b"\x16\x03\x01")
        connection = await server.wait_connection()
        await connection.ended.wait()
    assert connection.gone_how == "eof"


async def test_what_is_no_tls_ends_the_connection_and_is_recorded(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], autojump: object
) -> None:
    async with WireServer(tls=tls[0]) as server:
        assert await exchange(server, GET) == []
    (connection,) = server.connections
    assert connection.protocol_error is not None
    assert "HTTP_REQUEST" in connection.protocol_error
    assert not connection.gone.is_set()
    assert server.requests == []


async def test_endless_body_has_no_length() -> None:
    with pytest.raises(ValueError, match="endless body"):
        Response(body=[Repeat((b"a",))], framing="length").encode_head()
    assert (
        b"content-length: 7"
        in Response(body=[b"a", Repeat((b"ab",), 3), Pause(1)], framing="length").encode_head()
    )


async def test_waiting_for_what_has_not_come_yet(autojump: object, nursery: trio.Nursery) -> None:
    async with WireServer(Response(framing="close")) as server:
        nursery.start_soon(exchange, server)
        assert (await server.wait_connection()).id == 0
        assert (await server.wait_request()).target == "/x"


async def test_nobody_listens_on_an_unused_port() -> None:
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream("127.0.0.1", unused_port())


@settings(max_examples=25, deadline=None)
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=50), max_size=8),
    framing=st.sampled_from(["chunked", "length", "close"]),
    settle=st.booleans(),
)
def test_any_body_is_valid_http(pieces: list[bytes], framing: str, settle: bool) -> None:
    async def main() -> bytes:
        response = Response(200, (("connection", "close"),), pieces, framing=framing, settle=settle)  # type: ignore[arg-type]  # drawn from its values
        async with WireServer(response) as server:
            return b"".join(await exchange(server))

    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)))
    client.receive_data(b"")
    body = b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Data):
            body += event.data
    assert body == b"".join(pieces)
