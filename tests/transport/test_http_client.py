"""HttpClient over the own transport, on loopback sockets: what is reused, what fails, and how."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import h11
import httpx
import pytest
import trio

from trio_llm.model import codes
from trio_llm.model.failures import LlmError
from trio_llm.model.identity import AppIdentity
from trio_llm.testing.wire_script import Cut, Hold, Raw, Reset, Response, event_stream, json_response
from trio_llm.testing.wire_server import WireServer, unused_port
from trio_llm.transport.client import HttpClient, HttpResponse
from trio_llm.transport.head import MAX_HEAD, MAX_HEADERS, MAX_INTERIM
from trio_llm.transport.transport import TrioTransport

from .http_parts import LIBRARIES, SCHEMES, Marks, client_on, client_tls, serve, server_tls, transport_on

both = pytest.mark.parametrize("library", LIBRARIES)
schemes = pytest.mark.parametrize("scheme", SCHEMES)
HELLO = event_stream(b"hello ", b"world")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def read_all(response: HttpResponse) -> bytes:
    pieces = []
    while data := await response.receive():
        pieces.append(data)
    return b"".join(pieces)


async def fetch(client: HttpClient, server: WireServer, **options: Any) -> bytes:
    async with client.request("POST", server.base_url + "/v1", content=b"{}", **options) as response:
        return await read_all(response)


async def failure_of(client: HttpClient, server: WireServer) -> LlmError:
    with pytest.raises(LlmError) as caught:
        await fetch(client, server)
    return caught.value


# Reuse


@both
@schemes
@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_a_drained_response_leaves_its_connection(
    library: ModuleType, scheme: str, framing: Any
) -> None:
    answer = event_stream(b"hello ", b"world", framing=framing)
    async with serve(scheme, always=answer) as server, client_on(transport_on(library)) as client:
        for _ in range(3):
            assert await fetch(client, server) == b"hello world"
        assert len(server.connections) == 1
        assert [request.body for request in server.requests] == [b"{}"] * 3


@both
@schemes
async def test_drain_after_the_terminal_marker_reuses_the_connection(
    library: ModuleType, scheme: str
) -> None:
    answer = event_stream(b"data: [DONE]\n\n")
    async with serve(scheme, always=answer) as server, client_on(transport_on(library)) as client:
        for _ in range(2):
            async with client.request("POST", server.base_url) as response:
                assert await response.receive() == b"data: [DONE]\n\n"
                await response.drain()
        assert len(server.connections) == 1


async def test_drain_gives_up_after_50_ms(autojump_clock: trio.testing.MockClock) -> None:
    transport = transport_on(httpx)
    async with serve("http", event_stream(b"x", Hold())) as server, client_on(transport) as client:
        async with client.request("POST", server.base_url) as response:
            await response.receive()
            before = trio.current_time()
            await response.drain()
            assert trio.current_time() - before == pytest.approx(0.05)
        assert transport.open_connections == 0


@schemes
async def test_a_read_takes_32_KiB_at_most(scheme: str) -> None:
    answer = event_stream(b"x" * 262_144, framing="length")
    async with (
        serve(scheme, answer) as server,
        client_on(transport_on(httpx)) as client,
        client.request("POST", server.base_url) as response,
    ):
        await response.receive()  # what came with the head
        await trio.testing.wait_all_tasks_blocked(0.01)  # the rest has been sent
        sizes = []
        while data := await response.receive():
            sizes.append(len(data))
    assert max(sizes) <= 32_768
    assert scheme == "https" or max(sizes) == 32_768


@pytest.mark.parametrize("ending", [Cut(), Reset(), Raw(b"nonsense\r\n")])
async def test_drain_never_raises_a_broken_end(ending: Any) -> None:
    async with (
        serve("http", event_stream(b"x", ending)) as server,
        client_on(transport_on(httpx)) as client,
        client.request("POST", server.base_url) as response,
    ):
        assert await response.receive() == b"x"
        await response.drain()


@both
@schemes
async def test_an_unfinished_response_is_closed_at_once(library: ModuleType, scheme: str) -> None:
    transport = transport_on(library)
    async with serve(scheme, event_stream(b"x", Hold()), HELLO) as server, client_on(transport) as client:
        async with client.request("POST", server.base_url) as response:
            await response.receive()
        assert transport.open_connections == 0
        await server.connections[0].gone.wait()
        assert await fetch(client, server) == b"hello world"
        assert len(server.connections) == 2


@pytest.mark.parametrize(
    "answer",
    [
        event_stream(b"hello ", b"world", framing="close"),
        Response(200, {"connection": "close"}, b"hello world"),
        Response(200, {"content-length": "11"}, b"hello world"),
        Response(head=b"HTTP/1.0 200 OK\r\ncontent-length: 11\r\n\r\n", body=b"hello world", framing="none"),
        Response(200, (), (b"hello world", Raw(b"0\r\n\r\nLEFT OVER"), Cut())),
        Response(200, {"content-length": "11"}, (b"hello worldLEFT OVER",), framing="none"),
    ],
    ids=[
        "close-delimited",
        "connection-close",
        "length-and-chunked",
        "http-1.0",
        "rest-chunked",
        "rest-sized",
    ],
)
async def test_no_reuse(answer: Response) -> None:
    transport = transport_on(httpx)
    async with serve("http", answer, HELLO) as server, client_on(transport) as client:
        assert await fetch(client, server) == b"hello world"
        assert transport.open_connections == 0
        await fetch(client, server)
        assert len(server.connections) == 2


async def test_an_idle_connection_that_the_server_closed_is_not_used() -> None:
    transport = transport_on(httpx)
    answer = Response(200, {"content-length": "2"}, (b"ok", Cut()), framing="none")
    async with serve("http", answer, HELLO) as server, client_on(transport) as client:
        assert await fetch(client, server) == b"ok"
        assert transport.idle_connections == 1
        await server.connections[0].ended.wait()
        assert await fetch(client, server) == b"hello world"


async def test_an_idle_connection_on_which_the_server_speaks_is_not_used() -> None:
    late = Raw(b"HTTP/1.1 408 Too Late\r\n\r\n")
    answer = Response(200, {"content-length": "2"}, (b"ok", late, Hold()), framing="none")
    async with serve("http", answer, HELLO) as server, client_on(transport_on(httpx)) as client:
        assert await fetch(client, server) == b"ok"
        while server.connections[0].bytes_sent < len(answer.encode_head()) + 2 + len(late.data):  # noqa: ASYNC110  # the server tells no event
            await trio.sleep(0.001)
        assert await fetch(client, server) == b"hello world"


async def test_a_connection_that_died_on_its_way_to_who_waits_is_not_used() -> None:
    transport = transport_on(httpx, max_connections=1)
    answers = (event_stream(b"1", Cut(), framing="length"), event_stream(b"2", framing="length"))
    async with (
        serve("http", *answers) as server,
        client_on(transport) as client,
        trio.open_nursery() as nursery,
        client.request("POST", server.base_url) as response,
    ):
        nursery.start_soon(fetch, client, server)
        await trio.testing.wait_all_tasks_blocked(0.01)  # it waits, and the server has closed
        assert await read_all(response) == b"1"
    assert len(server.connections) == 2


async def test_idle_connections_expire(autojump_clock: trio.testing.MockClock) -> None:
    transport = transport_on(httpx, idle_expiry=10)
    async with serve("http", always=HELLO) as server, client_on(transport) as client:
        await fetch(client, server)
        await trio.sleep(9)
        await fetch(client, server)
        await trio.sleep(10)
        await fetch(client, server)
        assert len(server.connections) == 2
        assert transport.open_connections == 1


@both
async def test_closing_the_client_closes_what_is_idle_and_nothing_more_is_sent(library: ModuleType) -> None:
    transport = transport_on(library)
    async with serve("http", event_stream(b"x"), event_stream(b"y")) as server:
        client = client_on(transport)
        await fetch(client, server)
        async with client.request("POST", server.base_url) as response:
            await client.aclose()
            await client.aclose()
            assert await read_all(response) == b"y"  # a call in flight goes on
        assert transport.open_connections == 0
        assert (await failure_of(client, server)).code == codes.INVALID_CONFIG
        with pytest.raises(trio.ClosedResourceError):
            await transport.handle_async_request(library.Request("GET", server.base_url))


# Framing without a body, interim responses


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", Response(200, {"content-length": "5"}, framing="none")),
        ("HEAD", Response(200, {"transfer-encoding": "chunked"}, framing="none")),
        ("GET", Response(204, framing="none")),
        ("GET", Response(304, {"content-length": "5"}, framing="none")),
        ("GET", Response(200, {"content-length": "0"}, framing="none")),
    ],
)
async def test_responses_without_a_body(method: str, answer: Response) -> None:
    async with serve("http", always=answer) as server, client_on(transport_on(httpx)) as client:
        for _ in range(2):
            async with client.request(method, server.base_url) as response:
                assert response.status == answer.status
                assert await response.receive() == b""
        assert len(server.connections) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS", "POST", "PUT", "PATCH"])
async def test_a_length_is_told_where_a_body_is_expected_or_there_is_one(method: str) -> None:
    answer = Response(204, framing="none")
    async with serve("http", always=answer) as server, client_on(transport_on(httpx)) as client:
        for content in (b"", b"ab"):
            async with client.request(method, server.base_url, content=content) as response:
                assert response.status == 204
        lengths = [dict(request.headers).get("content-length") for request in server.requests]
    assert lengths == ["0" if method in ("POST", "PUT", "PATCH") else None, "2"]


async def test_interim_responses_are_skipped_up_to_a_cap() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    few = event_stream(b"ok")
    for count in (MAX_INTERIM, MAX_INTERIM + 1):
        answer = Response(few.status, few.headers, few.body, before=(Raw(early * count),))
        async with serve("http", answer) as server, client_on(transport_on(httpx)) as client:
            if count == MAX_INTERIM:
                assert await fetch(client, server) == b"ok"
            else:
                assert "interim" in (await failure_of(client, server)).failure.message


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "not a valid HTTP/1.1 response"),
        (b"<html>SECRET</html>\r\n\r\n", "not a valid HTTP/1.1 response"),
        (b"HTTP/1.1 200 OK\r\nset-cookie SECRET\r\n\r\n", "not a valid HTTP/1.1 response"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, SECRET\r\n\r\n", "not a valid HTTP/1.1 response"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: SECRET\r\n\r\n", "not a valid HTTP/1.1 response"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * MAX_HEAD, "head is too long"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * MAX_HEAD + b"\r\n\r\n", "head is too long"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * (MAX_HEADERS + 1) + b"\r\n", "too many headers"),
    ],
    ids=["101", "html", "no-colon", "coding", "length", "endless-head", "long-head", "many-headers"],
)
@both
async def test_a_bad_head_is_told_without_its_bytes(library: ModuleType, head: bytes, told: str) -> None:
    transport = transport_on(library)
    answer = Response(head=head, body=(Hold(),), framing="none")
    async with serve("http", answer) as server, client_on(transport) as client:
        error = await failure_of(client, server)
        assert error.code == codes.TRANSPORT
        assert told in error.failure.message
        assert f"127.0.0.1:{server.port}" in error.failure.message
        assert_nowhere("SECRET", error)
        assert transport.open_connections == 0


def assert_nowhere(secret: str, error: BaseException) -> None:
    """Not in an error, nor in anything it hangs on to."""
    queue: list[BaseException | None] = [error]
    while queue:
        one = queue.pop()
        if one is not None:
            assert secret not in repr(one)
            assert secret not in str(one)
            queue += [one.__cause__, one.__context__]


async def test_an_unasked_switch_is_refused_even_where_upgrade_was_offered() -> None:
    answer = Response(
        head=b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", body=(Hold(),), framing="none"
    )
    async with serve("http", answer) as server, client_on(transport_on(httpx)) as client:
        with pytest.raises(LlmError, match="protocol that was not asked for"):
            async with client.request(
                "GET", server.base_url, headers={"upgrade": "x", "connection": "upgrade"}
            ):
                raise AssertionError


# Failures


async def test_a_refused_connection() -> None:
    port = unused_port()
    marks = Marks()
    async with client_on(transport_on(httpx)) as client:
        with pytest.raises(LlmError, match=f"127.0.0.1:{port}: cannot connect: .*refused") as caught:
            async with client.request("POST", f"http://127.0.0.1:{port}/", watcher=marks):
                raise AssertionError
    assert caught.value.code == codes.TRANSPORT
    assert isinstance(caught.value.__cause__, httpx.ConnectError)
    assert marks.seen == ["connecting"]


async def test_an_unknown_host() -> None:
    async with client_on(transport_on(httpx)) as client:
        with pytest.raises(LlmError, match=r"host\.invalid:80: cannot connect") as caught:
            async with client.request("POST", "http://host.invalid/"):
                raise AssertionError
    assert caught.value.code == codes.TRANSPORT


@both
@schemes
@pytest.mark.parametrize("ending", [Cut(), Reset()], ids=["cut", "reset"])
@pytest.mark.parametrize("where", ["head", "partial-head", "chunked", "mid-chunk", "length"])
async def test_a_broken_connection_is_TRANSPORT_D07(
    library: ModuleType, scheme: str, where: str, ending: Any
) -> None:
    answer = {
        "head": Response(before=(ending,)),
        "partial-head": Response(before=(Raw(b"HTTP/1.1 200 OK\r\nconte"), ending)),
        "chunked": Response(200, (), (b"whole", ending)),
        "mid-chunk": Response(200, (), (b"whole", Raw(b"ff\r\ncut"), ending)),
        "length": Response(200, (), (b"short", ending), framing="length", content_length=100),
    }[where]
    transport = transport_on(library)
    marks = Marks()
    async with serve(scheme, answer) as server, client_on(transport) as client:
        got = b""
        with pytest.raises(LlmError) as caught:
            async with client.request("POST", server.base_url, watcher=marks) as response:
                while data := await response.receive():
                    got += data
        assert caught.value.code == codes.TRANSPORT
        assert f"127.0.0.1:{server.port}" in caught.value.failure.message
        assert isinstance(caught.value.__cause__, library.TransportError)
        assert got == {"chunked": b"whole", "mid-chunk": b"wholecut", "length": b"short"}.get(where, b"")
        assert transport.open_connections == 0
        assert marks.phases == ["connecting", "connected", "sent", "socket_closed"]


@pytest.mark.parametrize("junk", [b"nonsense\r\n", b"3\r\nabcd\r\n", b"2\r\nab\nX"])
async def test_malformed_chunks_are_TRANSPORT(junk: bytes) -> None:
    transport = transport_on(httpx)
    async with (
        serve("http", Response(200, (), (b"ok", Raw(junk), Hold()))) as server,
        client_on(transport) as client,
        client.request("POST", server.base_url) as response,
    ):
        assert await response.receive() == b"ok"
        with pytest.raises(LlmError, match="malformed"):
            while await response.receive():
                pass
        with pytest.raises(LlmError, match="closed before its end"):  # never a clean end after that
            await response.receive()
    assert transport.open_connections == 0


@schemes
@both
async def test_the_answer_to_a_request_the_server_would_not_read(library: ModuleType, scheme: str) -> None:
    refusal = json_response({"error": "too large"}, 413)
    transport = transport_on(library)
    marks = Marks()
    async with serve(scheme, refusal, read_bodies=False) as server, client_on(transport) as client:
        content = bytes(8 << 20)
        async with client.request("POST", server.base_url, content=content, watcher=marks) as response:
            assert response.status == 413
            assert await response.read(1000) == b'{"error": "too large"}'
        assert transport.open_connections == 0  # never reused
        assert marks.phases == ["connecting", "connected", "sent", "socket_closed"]


async def test_a_request_that_cannot_be_sent_and_has_no_answer() -> None:
    transport = transport_on(httpx)
    async with (
        serve("http", Response(before=(Reset(),)), read_bodies=False) as server,
        client_on(transport) as client,
    ):
        with pytest.raises(LlmError, match="while the request was sent") as caught:
            async with client.request("POST", server.base_url, content=bytes(8 << 20)):
                raise AssertionError
    assert isinstance(caught.value.__cause__, httpx.WriteError)
    assert transport.open_connections == 0


@both
async def test_untrusted_certificates_are_refused(library: ModuleType) -> None:
    transport = TrioTransport(library=library, ssl_context=ssl.create_default_context())
    async with serve("https", HELLO) as server, client_on(transport) as client:
        error = await failure_of(client, server)
        assert "certificate of the server does not verify" in error.failure.message
        assert transport.open_connections == 0


async def test_verification_is_on_by_default_and_heeds_SSL_CERT_FILE(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from .http_parts import authority

    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    async with serve("https", HELLO) as server:
        async with HttpClient() as client:
            assert "does not verify" in (await failure_of(client, server)).failure.message
        authority().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        async with HttpClient() as client:
            assert await fetch(client, server) == b"hello world"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
        async with HttpClient() as client:
            assert (await failure_of(client, server)).code == codes.INVALID_CONFIG
        assert len(server.requests) == 1


@pytest.mark.parametrize("ending", [Cut(), Reset(), Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")])
async def test_a_failed_handshake(ending: Any) -> None:
    transport = transport_on(httpx)
    async with WireServer(on_connect=(ending,)) as server, client_on(transport) as client:
        with pytest.raises(LlmError, match="TLS handshake") as caught:
            async with client.request("POST", f"https://127.0.0.1:{server.port}/"):
                raise AssertionError
    assert caught.value.code == codes.TRANSPORT
    assert transport.open_connections == 0


async def test_only_http_1_1_is_offered() -> None:
    server_side = server_tls()
    server_side.set_alpn_protocols(["h2", "http/1.1"])
    context = client_tls()
    context.set_alpn_protocols(["h2"])
    async with serve("https", HELLO) as server, HttpClient(ssl_context=context) as client:
        assert await fetch(client, server) == b"hello world"


# What is sent


@both
async def test_the_wire_shows_who_asks_and_carries_nothing_over_P02(library: ModuleType) -> None:
    answer = event_stream(b"x", headers=(("set-cookie", "track=1; path=/"),))
    async with serve("http", always=answer) as server:
        identity = AppIdentity("app", "2", "https://app.example")
        async with HttpClient(transport=transport_on(library), identity=identity) as client:
            for _ in range(2):
                headers = [("User-Agent", "other"), ("Accept-Encoding", "gzip"), ("x-one", "1")]
                await fetch(client, server, headers=headers)
        for request in server.requests:
            assert [value for name, value in request.headers if name == "user-agent"] == [
                "app/2 (+https://app.example)"
            ]
            assert request.header("accept-encoding") == "identity"
            assert request.header("x-one") == "1"
            assert request.header("cookie") is None


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"authorization": "Bearer sk-SECRET\n"}, codes.INVALID_CREDENTIAL),
        ({"authorization": "Bearer sk-SECRET\u2026"}, codes.INVALID_CREDENTIAL),
        ({"X-Api-Key": " sk-SECRET"}, codes.INVALID_CREDENTIAL),
        ({"x-other": "SECRET\0"}, codes.INVALID_CONFIG),
        ({"x other": "SECRET"}, codes.INVALID_CONFIG),
    ],
)
async def test_a_header_that_cannot_be_sent_is_named_and_never_told(headers: Any, code: str) -> None:
    async with HttpClient() as client:
        with pytest.raises(LlmError) as caught:
            client.request("POST", "http://127.0.0.1:1/", headers=headers)
    assert caught.value.code == code
    assert next(iter(headers)) in caught.value.failure.message
    assert_nowhere("SECRET", caught.value)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1/v1", "ftp://host/", "http://", "http://host:99999/", "http://user:SECRET@host/"]
)
async def test_a_url_that_is_none_is_told_before_anything_is_sent(url: str) -> None:
    async with HttpClient() as client:
        with pytest.raises(LlmError) as caught:
            client.request("POST", url)
    assert caught.value.code == codes.INVALID_BASE_URL
    assert_nowhere("SECRET", caught.value)


async def test_redirects_are_not_followed_and_errors_are_read_up_to_a_limit() -> None:
    answer = Response(307, {"location": "/elsewhere"}, (b"moved ", b"over there"))
    async with serve("http", always=answer) as server, client_on(transport_on(httpx)) as client:
        async with client.request("POST", server.base_url) as response:
            assert (response.status, response.headers["location"]) == (307, "/elsewhere")
            assert await response.read(8) == b"moved ov"
        assert len(server.requests) == 1


async def test_the_request_id_and_the_phases_of_a_good_call() -> None:
    marks = Marks()
    answer = json_response({}, headers=(("X-Request-Id", "req-1"),))
    async with (
        serve("http", answer) as server,
        client_on(transport_on(httpx)) as client,
        client.request("POST", server.base_url, content=b"{}", watcher=marks) as response,
    ):
        assert response.request_id == "req-1"
        await read_all(response)
        assert marks.phases == ["connecting", "connected", "sent", "socket_closed"]
    assert marks.seen.index("alive") < marks.seen.index("sent")


async def test_an_upload_is_a_sign_of_life_every_64_KiB() -> None:
    marks = Marks()
    content = bytes(range(256)) * 4096
    async with serve("http", HELLO) as server, client_on(transport_on(httpx)) as client:
        async with client.request("POST", server.base_url, content=content, watcher=marks):
            pass
        assert server.requests[0].body == content
    assert marks.seen[: marks.seen.index("sent")].count("alive") == len(content) // 65536 + 1


async def test_a_compressed_stream_is_refused_but_a_compressed_error_keeps_its_status() -> None:
    packed = {"content-encoding": "gzip"}
    answers = Response(200, packed, b"\x1f\x8b"), Response(503, packed, b"\x1f\x8b")
    transport = transport_on(httpx)
    async with serve("http", *answers) as server, client_on(transport) as client:
        assert (await failure_of(client, server)).code == codes.MALFORMED_RESPONSE
        assert transport.open_connections == 0
        async with client.request("POST", server.base_url) as response:
            assert response.status == 503


# The transport as httpx sees it


@both
async def test_it_serves_under_the_librarys_own_client(library: ModuleType) -> None:
    async def upload() -> AsyncIterator[bytes]:
        yield b"one, "
        yield b"two"

    transport = transport_on(library)
    answers = [HELLO, event_stream(b"x", Cut()), event_stream(b"x", Hold())]
    async with serve("http", *answers) as server, library.AsyncClient(transport=transport) as client:
        response = await client.post(server.base_url, content=upload())
        assert (response.text, response.http_version, response.reason_phrase) == (
            "hello world",
            "HTTP/1.1",
            "OK",
        )
        assert server.requests[0].body == b"one, two"
        with pytest.raises(library.RemoteProtocolError, match="incomplete"):
            await client.get(server.base_url)
        async with client.stream("GET", server.base_url) as streamed:
            assert streamed.status_code == 200
        assert transport.open_connections == 0


@both
async def test_a_request_that_contradicts_itself_opens_no_connection(library: ModuleType) -> None:
    async with serve("http") as server, transport_on(library) as transport:
        request = library.Request("POST", server.base_url, headers={"content-length": "9"}, content=b"short")
        with pytest.raises(library.LocalProtocolError) as caught:
            await transport.handle_async_request(request)
        assert not isinstance(caught.value.__context__, h11.LocalProtocolError)
        assert (server.connections, transport.open_connections) == ([], 0)


def test_a_client_or_a_transport_not_both() -> None:
    transport = TrioTransport()
    with pytest.raises(ValueError, match="one or the other"):
        HttpClient(client=httpx.AsyncClient(), transport=transport)
    with pytest.raises(ValueError, match="own transport"):
        HttpClient(transport=transport, max_connections=1)
