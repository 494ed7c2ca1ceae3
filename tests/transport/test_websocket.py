"""WebSockets over real sockets: opened, closed at once, broken in every way a server can."""

from __future__ import annotations

import gc
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from socket import SO_LINGER, SOL_SOCKET
from struct import pack
from typing import Any

import pytest
import trio
import trio.testing

from trio_llm.model.failures import LlmError
from trio_llm.model.identity import AppIdentity
from trio_llm.testing.wire_script import Cut, Hold, Raw, Reset, Response
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.upgrade import UpgradeRefused
from trio_llm.transport.watcher import UNWATCHED, CallWatcher
from trio_llm.transport.websocket import BACKLOG, WebSocket, WebSocketClient

from .http_parts import SCHEMES, Marks, client_tls, open_descriptors, serve
from .websocket_server import Peer, Reject, SocketServer, frame

HANDSHAKE = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"


def client(**settings: Any) -> WebSocketClient:
    return WebSocketClient(ssl_context=client_tls(), **settings)


@asynccontextmanager
async def opened(
    url: str, watcher: CallWatcher = UNWATCHED, size: int | None = None, **headers: str
) -> AsyncIterator[WebSocket]:
    async with trio.open_nursery() as nursery:
        try:
            socket = await client().connect(
                nursery, url, headers=list(headers.items()), watcher=watcher, max_message_size=size
            )
        except LlmError as error:
            refused = error
        else:
            try:
                yield socket
            finally:
                socket.close()
            return
    raise refused  # outside, where no nursery wraps it


async def echo(peer: Peer) -> None:
    while True:
        await peer.send(await peer.receive())


async def failure_of(answer: Reject | Response | Callable[[Peer], Awaitable[None]]) -> LlmError:
    """What opening raises; nothing stays open."""
    server: Any = WireServer(answer) if isinstance(answer, Response) else SocketServer([answer])
    async with server:
        with pytest.raises(LlmError) as caught:
            async with opened(getattr(server, "base_url", None) or server.url):
                raise AssertionError("there was no handshake")
    return caught.value


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_messages_go_both_ways(scheme: str) -> None:
    marks = Marks()
    async with SocketServer([echo], scheme) as server:
        async with opened(server.url + "/v1/responses?a=b", marks, authorization="Bearer k") as socket:
            assert socket.usable
            assert socket.request_id == "req_ws"
            await socket.send('{"a": "ü"}'.encode())
            assert await socket.receive() == [b'{"a": "\\u00fc"}']
        [peer] = server.peers
        with trio.fail_after(5):
            await peer.gone.wait()
    assert peer.path == "/v1/responses?a=b"
    assert peer.headers["authorization"] == "Bearer k"
    assert peer.headers["user-agent"].startswith("trio-llm/")
    assert marks.phases == ["connecting", "connected", "sent"]
    assert "alive" in marks.seen


async def test_attribution_is_replaced_and_never_switched_off() -> None:
    async with SocketServer([echo]) as server, trio.open_nursery() as nursery:
        opener = client(identity=AppIdentity("app", "2", "https://h"))
        socket = await opener.connect(nursery, server.url, headers=[("User-Agent", "me")])
        socket.close()
        assert server.peers[0].headers["user-agent"] == "app/2 (+https://h)"


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_10_a_message_of_sixteen_mebibytes(scheme: str) -> None:
    large = "x" * (16 * 2**20)

    async def answer(peer: Peer) -> None:
        await peer.send(large)
        await peer.hold()

    async with SocketServer([answer], scheme) as server, opened(server.url) as socket:
        [message] = await socket.receive()
    assert len(message) == len(large)


async def test_10_a_message_beyond_the_limit_says_so() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send("x" * 101)
        await peer.hold()

    async with SocketServer([answer]) as server, opened(server.url, size=100) as socket:
        with pytest.raises(LlmError, match="100 bytes") as caught:
            await socket.receive()
        assert caught.value.code == "MALFORMED_RESPONSE"
        assert not socket.usable


async def test_a_large_message_is_sent_in_slices_with_signs_of_life() -> None:
    marks = Marks()
    async with SocketServer([echo]) as server, opened(server.url, marks) as socket:
        before = marks.seen.count("alive")
        await socket.send(b'"' + b"x" * 1_000_000 + b'"')
        assert marks.seen.count("alive") - before >= 16
        assert sum(map(len, await socket.receive())) == 1_000_000


async def test_pings_are_answered_while_nobody_reads(autojump_clock: trio.testing.MockClock) -> None:
    answered = trio.Event()

    async def answer(peer: Peer) -> None:
        await peer.send(*range(2000))
        await peer.socket.ping()
        answered.set()
        await peer.hold()

    async with SocketServer([answer]) as server, opened(server.url) as socket:
        with trio.fail_after(60):
            await answered.wait()
        messages: list[bytes] = []
        while len(messages) < 2000:
            messages.extend(await socket.receive())
    assert messages == [str(number).encode() for number in range(2000)]


async def test_what_nobody_reads_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    sent = 0

    async def answer(peer: Peer) -> None:
        nonlocal sent
        while True:
            await peer.send("x" * 4_000_000)
            sent += 4_000_000

    async with SocketServer([answer]) as server, opened(server.url) as socket:
        for _ in range(500):
            await trio.sleep(1)
        assert BACKLOG <= sent < 4 * BACKLOG
        while sent < 8 * BACKLOG:
            assert await socket.receive()


async def test_the_servers_close_comes_after_its_messages() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send("last")
        await peer.socket.aclose(1001, "going away")

    async with SocketServer([answer]) as server, opened(server.url) as socket:
        assert await socket.receive() == [b"last"]
        for _ in range(2):
            with pytest.raises(LlmError, match="1001: going away") as caught:
                await socket.receive()
            assert caught.value.code == "STREAM_CLOSED"
        with pytest.raises(LlmError):
            await socket.send(b"{}")


@pytest.mark.parametrize("said", ["too big", "Exceeded maximum message size: 5 bytes"])
async def test_a_request_that_is_too_large_for_the_server(said: str) -> None:
    async def answer(peer: Peer) -> None:
        await peer.socket.aclose(1009, said)

    async with SocketServer([answer]) as server, opened(server.url) as socket:
        with pytest.raises(LlmError, match=said) as caught:
            await socket.receive()
    assert caught.value.code == "INVALID_REQUEST"


async def test_what_the_server_said_before_sending_failed_is_not_lost() -> None:
    """It closes and hangs up while the request is still on its way."""

    async def answer(peer: Peer) -> None:
        raw: Any = peer.socket._stream
        await raw.send_all(frame(8, pack("!H", 1009) + b"too big"))
        raw.socket.close()

    async with SocketServer([answer]) as server, opened(server.url) as socket:
        with pytest.raises(LlmError, match="too big") as caught:
            while True:
                await socket.send(b"[" + b" " * 8_000_000 + b"]")
    assert caught.value.code == "INVALID_REQUEST"


async def test_a_connection_that_is_reset() -> None:
    async def answer(peer: Peer) -> None:
        raw: Any = peer.socket._stream
        raw.socket.setsockopt(SOL_SOCKET, SO_LINGER, pack("ii", 1, 0))
        await peer.cut()

    async with SocketServer([answer]) as server, opened(server.url) as socket:
        with pytest.raises(LlmError) as caught:
            await socket.receive()
        assert caught.value.code == "TRANSPORT"


@pytest.mark.parametrize(
    ("garbage", "code"),
    [
        (b"\xff" * 64, "TRANSPORT"),
        (frame(0, b"a continuation of nothing"), "TRANSPORT"),
        (b"\x81\x85mask" + b"hello", "TRANSPORT"),
        (frame(8, pack("!H", 5)), "TRANSPORT"),
        (frame(8, pack("!H", 1000) + b"\xff"), "MALFORMED_RESPONSE"),
        (frame(1, b"\xff"), "MALFORMED_RESPONSE"),
        (frame(1, b"half\xc3"), "MALFORMED_RESPONSE"),
    ],
    ids=["no-frame", "continuation", "masked", "reserved-code", "reason", "no-utf-8", "half-a-character"],
)
async def test_what_cannot_be_read_comes_after_what_can_and_is_not_the_servers_close(
    garbage: bytes, code: str
) -> None:
    async def answer(peer: Peer) -> None:
        await peer.socket._stream.send_all(frame(1, b"one") + frame(1, b"two") + garbage)
        await peer.hold()

    async with SocketServer([answer]) as server, opened(server.url) as socket:
        messages: list[bytes] = []
        with pytest.raises(LlmError) as caught:
            while True:
                messages += await socket.receive()
        assert messages == [b"one", b"two"]
        assert caught.value.code == code
        assert "the server closed" not in caught.value.failure.message
        assert not socket.usable
        with trio.fail_after(5):
            await server.peers[0].gone.wait()


async def test_sending_into_a_connection_that_is_gone(autojump_clock: trio.testing.MockClock) -> None:
    async with SocketServer([lambda peer: peer.cut()]) as server, opened(server.url) as socket:
        with pytest.raises(LlmError) as caught:
            while True:
                await socket.send(b"[" + b" " * 1_000_000 + b"]")
        assert caught.value.code == "TRANSPORT"


async def test_a_broken_connection() -> None:
    closed: list[bool] = []

    async def answer(peer: Peer) -> None:
        await peer.cut()

    async with SocketServer([answer]) as server, opened(server.url) as socket:
        socket.on_close = lambda: closed.append(socket.usable)
        with pytest.raises(LlmError) as caught:
            await socket.receive()
        assert caught.value.code == "TRANSPORT"
        await trio.testing.wait_all_tasks_blocked()
        assert closed == [False]
        with pytest.raises(LlmError) as again:
            await socket.send(b"{}")
        assert again.value.code == "TRANSPORT"


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_closing_is_at_once_and_once(scheme: str) -> None:
    async with SocketServer([lambda peer: peer.hold()], scheme) as server:
        async with trio.open_nursery() as nursery:
            socket = await client().connect(nursery, server.url)
            closed: list[str] = []
            socket.on_close = lambda: closed.append("x")
            socket.close()
            socket.close()
        assert closed == ["x"]
        with pytest.raises(LlmError, match="closed"):
            await socket.receive()
        with trio.fail_after(5):
            await server.peers[0].gone.wait()


async def test_a_parked_reader_is_woken_by_the_close() -> None:
    async def read(socket: WebSocket) -> None:
        with pytest.raises(LlmError):
            await socket.receive()

    async with (
        SocketServer([lambda peer: peer.hold()]) as server,
        opened(server.url) as socket,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(read, socket)
        await trio.testing.wait_all_tasks_blocked()
        socket.close()


async def test_a_cancelled_receive_loses_nothing() -> None:
    gate = trio.Event()

    async def answer(peer: Peer) -> None:
        await gate.wait()
        await peer.send("one", "two")
        await peer.hold()

    async with SocketServer([answer]) as server, opened(server.url) as socket:
        with trio.CancelScope() as scope:
            scope.cancel()
            await socket.receive()
        gate.set()
        messages: list[bytes] = []
        while len(messages) < 2:
            messages.extend(await socket.receive())
        assert messages == [b"one", b"two"]


async def test_a_resting_socket_expires(autojump_clock: trio.testing.MockClock) -> None:
    async with SocketServer([lambda peer: peer.hold()]) as server, opened(server.url) as socket:
        socket.rest(trio.current_time() + 50)
        socket.attend(UNWATCHED)
        await trio.sleep(60)
        socket.rest(trio.current_time() + 50)
        states = []
        for seconds in (49, 2):
            await trio.sleep(seconds)
            states.append(socket.usable)
        assert states == [True, False]
        await server.peers[0].gone.wait()


async def test_a_resting_socket_answers_pings_and_closes_at_a_message() -> None:
    states: list[bool] = []

    async def answer(peer: Peer) -> None:
        await peer.socket.ping()
        states.append(socket.usable)
        await peer.send("unasked")
        await peer.hold()

    async with SocketServer([answer]) as server, opened(server.url) as socket:
        socket.rest(math.inf)
        with trio.fail_after(5):
            await server.peers[0].gone.wait()
        states.append(socket.usable)
        with pytest.raises(LlmError, match="closed"):
            await socket.receive()
    assert states == [True, False]


class TestHandshakes:
    @pytest.mark.parametrize(
        ("answer", "code", "words"),
        [
            (Reject(404), "INVALID_REQUEST", "404"),
            (Reject(426, b"upgrade what?"), "HTTP_426", "upgrade what?"),
            (Reject(401, b'{"error": {"message": "bad key"}}'), "AUTH", "bad key"),
            (Reject(503), "SERVER", "503"),
            (Reject(502, b"x" * 1_200_000), "SERVER", "502"),
            (Response(405, {}, b"no such method", framing="length"), "HTTP_405", "no such method"),
            (Response(404, {}, b"gone", framing="close"), "INVALID_REQUEST", "gone"),
            (Response(500, {}, [b"half", Cut()]), "SERVER", "500"),
            (
                Response(200, {"content-type": "text/html"}, b"<html>", framing="length"),
                "MALFORMED_RESPONSE",
                "200",
            ),
        ],
    )
    async def test_a_refused_upgrade(self, answer: Reject | Response, code: str, words: str) -> None:
        error = await failure_of(answer)
        assert isinstance(error, UpgradeRefused)
        assert error.code == code
        assert words in error.failure.message

    async def test_a_refusal_says_how_long_to_wait(self) -> None:
        error = await failure_of(Reject(429, b"slow down", ((b"retry-after", b"7"),)))
        assert (error.code, error.failure.provider_retry_after_ms) == ("RATE_LIMIT", 7000)

    @pytest.mark.parametrize(
        "steps",
        [
            (Cut(),),
            (Reset(),),
            (Raw(b"HTTP/1.1 101 Swi"), Cut()),
            (Raw(b"hello\r\n\r\n"), Hold()),
            (Raw(HANDSHAKE + b"sec-websocket-accept: wrong\r\n\r\n"), Hold()),
            (Raw(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), Hold()),
            (Raw(b"x" * 1_100_000), Hold()),
        ],
        ids=["closed", "reset", "half", "no-http", "wrong-accept", "no-websocket", "endless"],
    )
    async def test_what_is_no_handshake_is_a_failure_of_the_transport(self, steps: Any) -> None:
        with trio.fail_after(5):
            error = await failure_of(Response(before=steps, framing="none"))
        assert not isinstance(error, UpgradeRefused)
        assert error.code == "TRANSPORT"

    async def test_nobody_listens(self) -> None:
        async with SocketServer([echo]) as server:
            url = server.url
        with pytest.raises(LlmError, match="cannot connect") as caught:
            async with opened(url):
                pass
        assert caught.value.code == "TRANSPORT"

    @pytest.mark.parametrize("scheme", SCHEMES)
    async def test_cancelling_the_handshake_closes_the_connection(
        self, scheme: str, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with serve(scheme, Response(before=(Hold(),))) as server:
            with trio.move_on_after(10) as scope:
                async with opened(server.base_url):
                    pass
            assert scope.cancelled_caught
            with trio.fail_after(5):
                await (await server.wait_connection()).gone.wait()

    @pytest.mark.parametrize("url", ["ftp://h/", "http://", "nonsense"])
    async def test_urls(self, url: str) -> None:
        with pytest.raises(LlmError) as caught:
            async with opened(url):
                pass
        assert caught.value.code == "INVALID_BASE_URL"

    async def test_headers_that_http_cannot_carry_never_reach_the_wire(self) -> None:
        async with SocketServer([echo]) as server:
            with pytest.raises(LlmError) as caught:
                async with opened(server.url, authorization="a\r\nb"):
                    pass
        assert caught.value.code == "INVALID_CREDENTIAL"
        assert server.asked == 0

    async def test_an_unknown_certificate(self) -> None:
        async with SocketServer([echo], "https") as server, trio.open_nursery() as nursery:
            with pytest.raises(LlmError, match="certificate") as caught:
                await WebSocketClient().connect(nursery, server.url)
        assert caught.value.code == "TRANSPORT"

    async def test_a_ca_file_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
        async with trio.open_nursery() as nursery:
            with pytest.raises(LlmError) as caught:
                await WebSocketClient().connect(nursery, "https://127.0.0.1:1")
        assert caught.value.code == "INVALID_CONFIG"

    async def test_through_an_http_proxy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with SocketServer([echo]) as server, trio.open_nursery() as nursery:
            asked: list[bytes] = []

            async def proxy(stream: trio.SocketStream) -> None:
                asked.append(bytes(await stream.receive_some()))
                await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
                host, port = "127.0.0.1", int(server.url.rpartition(":")[2])
                async with await trio.open_tcp_stream(host, port) as other, stream:

                    async def copy(one: trio.SocketStream, two: trio.SocketStream) -> None:
                        async for data in one:
                            await two.send_all(data)
                        nursery.cancel_scope.cancel()

                    async with trio.open_nursery() as both:
                        both.start_soon(copy, stream, other)
                        both.start_soon(copy, other, stream)

            [listener] = await nursery.start(partial(trio.serve_tcp, proxy, 0, host="127.0.0.1"))
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{listener.socket.getsockname()[1]}")
            socket = await client().connect(nursery, server.url)
            await socket.send(b"[1]")
            assert await socket.receive() == [b"[1]"]
            socket.close()
        assert asked[0].startswith(b"CONNECT 127.0.0.1:")

    async def test_a_socks_proxy_has_no_websockets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
        async with trio.open_nursery() as nursery:
            with pytest.raises(UpgradeRefused):
                await client().connect(nursery, "http://example.org")


async def test_nothing_stays_open(autojump_clock: trio.testing.MockClock) -> None:
    async with SocketServer([echo, Reject(403), lambda peer: peer.cut()] * 10) as server:
        gc.collect()
        before = open_descriptors()
        for _ in range(30):
            with suppress(LlmError):
                async with opened(server.url) as socket:
                    with suppress(LlmError):
                        await socket.send(b"1")
                        await socket.receive()
        await trio.sleep(1)
        assert open_descriptors() <= before + 1
