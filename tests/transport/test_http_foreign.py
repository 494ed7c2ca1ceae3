"""HttpClient over a caller's own client or transport: the same attribution and failures, an orderly stop."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import Any

import httpx
import pytest
import trio

from trio_llm.model import codes
from trio_llm.model.failures import LlmError
from trio_llm.model.identity import attribution_headers
from trio_llm.testing.wire_script import Cut, Gate, Hold, Raw, Repeat, Reset, Response, event_stream
from trio_llm.testing.wire_server import unused_port
from trio_llm.transport.client import HttpClient

from .http_parts import LIBRARIES, SCHEMES, Marks, client_tls, serve
from .test_http_client import assert_nowhere, failure_of, fetch, read_all

both = pytest.mark.parametrize("library", LIBRARIES)
schemes = pytest.mark.parametrize("scheme", SCHEMES)
HELLO = event_stream(b"hello ", b"world")
Make = Callable[[ModuleType], tuple[HttpClient, Any]]


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def with_client(library: ModuleType) -> tuple[HttpClient, Any]:
    client = library.AsyncClient(verify=client_tls(), headers={"user-agent": "mine"}, follow_redirects=True)
    return HttpClient(client=client), client


def with_transport(library: ModuleType) -> tuple[HttpClient, Any]:
    transport = library.AsyncHTTPTransport(verify=client_tls())
    return HttpClient(transport=transport), transport


kinds = pytest.mark.parametrize("make", [with_client, with_transport], ids=["client", "transport"])


@both
@schemes
@kinds
async def test_a_good_call_and_who_asks_P02(library: ModuleType, scheme: str, make: Make) -> None:
    client, theirs = make(library)
    marks = Marks()
    async with serve(scheme, always=HELLO) as server, theirs, client:
        assert await fetch(client, server, watcher=marks) == b"hello world"
        assert await fetch(client, server, headers={"User-Agent": "other"}) == b"hello world"
        assert len(server.connections) == 1
        for request in server.requests:
            sent = [value for name, value in request.headers if name == "user-agent"]
            assert sent == [attribution_headers()["user-agent"]]
            assert request.header("accept-encoding") == "identity"
    assert marks.phases == ["connecting", "connected", "sent", "socket_closed"]
    assert marks.seen.count("alive") >= 3


@both
async def test_the_phases_are_told_as_they_happen(library: ModuleType) -> None:
    client, theirs = with_client(library)
    marks = Marks()
    gate = Gate()
    async with (
        serve("http", Response(200, before=(gate,))) as server,
        theirs,
        client,
        trio.open_nursery() as nursery,
    ):

        async def look() -> None:
            await gate.reached.wait()
            assert marks.phases == ["connecting", "connected", "sent"]
            gate.open()

        nursery.start_soon(look)
        await fetch(client, server, watcher=marks)


@both
@schemes
@kinds
async def test_an_upload_is_a_sign_of_life_every_64_KiB(library: ModuleType, scheme: str, make: Make) -> None:
    client, theirs = make(library)
    marks = Marks()
    content = bytes(range(256)) * 4096 + b"the rest"
    async with serve(scheme, always=HELLO) as server, theirs, client:
        for _ in range(2):
            async with client.request("POST", server.base_url, content=content, watcher=marks) as response:
                await read_all(response)
        assert [request.body for request in server.requests] == [content] * 2
        assert server.requests[0].header("content-length") == str(len(content))
        assert server.requests[0].header("transfer-encoding") is None
        assert len(server.connections) == 1
    assert marks.seen[: marks.seen.index("sent")].count("alive") >= len(content) // 65536 + 1


@both
async def test_an_upload_that_is_cut_short_leaves_no_generator(library: ModuleType) -> None:
    client, theirs = with_client(library)
    async with serve("http", always=HELLO, read_bodies=False) as server, theirs, client:
        with trio.move_on_after(0.1) as scope:
            async with client.request("POST", server.base_url, content=bytes(50_000_000)) as response:
                await read_all(response)
                await trio.sleep_forever()
        assert scope.cancelled_caught
        gc.collect()


@both
async def test_hooks_and_authentication_of_a_callers_client_see_the_whole_body(library: ModuleType) -> None:
    seen: list[bytes] = []

    class Twice(library.Auth):  # type: ignore[misc,name-defined]  # one base for either library
        requires_request_body = True

        def auth_flow(self, request: Any) -> Any:
            seen.append(request.content)
            yield request
            yield request

    async def look(request: Any) -> None:
        seen.append(request.content)

    content = bytes(200_000)
    theirs = library.AsyncClient(auth=Twice(), event_hooks={"request": [look]})
    async with serve("http", always=HELLO) as server, theirs, HttpClient(client=theirs) as client:
        async with client.request("POST", server.base_url, content=content):
            pass
        assert [request.body for request in server.requests] == [content] * 2
    assert seen == [content] * 3


@both
@kinds
@pytest.mark.parametrize("cancelled", [False, True])
async def test_leaving_early_closes_the_socket_and_leaves_no_generator(
    library: ModuleType, make: Make, cancelled: bool
) -> None:
    flood = event_stream(Repeat(b"data: x\n\n"))
    client, theirs = make(library)
    marks = Marks()
    async with serve("http", flood) as server, theirs, client:
        with trio.CancelScope() as scope:
            async with client.request("POST", server.base_url, watcher=marks) as response:
                assert (await response.receive()).startswith(b"data: x")
                if cancelled:
                    scope.cancel()
                    await trio.sleep_forever()
        with trio.fail_after(5):
            await server.connections[0].gone.wait()
        gc.collect()  # a generator left suspended would warn here, and warnings are errors
        assert marks.phases[-1] == "socket_closed"


@both
@kinds
@pytest.mark.parametrize("ending", [Cut(), Reset(), Raw(b"SECRET\r\n")], ids=["cut", "reset", "junk"])
async def test_a_broken_body_is_TRANSPORT(library: ModuleType, make: Make, ending: Any) -> None:
    client, theirs = make(library)
    async with serve("http", event_stream(b"x", ending)) as server, theirs, client:
        error = await failure_of(client, server)
        assert error.code == codes.TRANSPORT
        assert f"127.0.0.1:{server.port}" in error.failure.message
        assert_nowhere("SECRET", error)


@both
@kinds
async def test_a_bad_head_is_told_without_its_bytes(library: ModuleType, make: Make) -> None:
    client, theirs = make(library)
    answer = Response(head=b"HTTP/1.1 200 OK\r\nset-cookie SECRET\r\n\r\n", framing="none")
    async with serve("http", answer) as server, theirs, client:
        error = await failure_of(client, server)
        assert error.code == codes.TRANSPORT
        assert_nowhere("SECRET", error)


@both
@kinds
async def test_a_refused_connection(library: ModuleType, make: Make) -> None:
    client, theirs = make(library)
    port = unused_port()
    async with theirs, client:
        with pytest.raises(LlmError, match=f"127.0.0.1:{port}: ConnectError") as caught:
            async with client.request("POST", f"http://127.0.0.1:{port}/"):
                raise AssertionError
    assert caught.value.code == codes.TRANSPORT
    assert isinstance(caught.value.__cause__, library.ConnectError)


@both
async def test_cookies_of_a_response_do_not_travel_but_the_callers_own_do(library: ModuleType) -> None:
    answer = event_stream(b"x", headers=(("set-cookie", "track=1; path=/"),))
    async with serve("http", always=answer) as server:
        for own, expected in (({}, None), ({"gate": "open"}, "gate=open")):
            async with library.AsyncClient(cookies=own) as theirs, HttpClient(client=theirs) as client:
                for _ in range(2):
                    await fetch(client, server)
                    assert server.requests[-1].header("cookie") == expected
                await fetch(client, server, headers={"cookie": "this=one"})
                assert server.requests[-1].header("cookie") == "this=one"


@both
async def test_a_callers_client_stays_open_and_follows_no_redirect(library: ModuleType) -> None:
    client, theirs = with_client(library)
    async with serve("http", Response(307, {"location": "/other"}, b"moved"), HELLO) as server, theirs:
        async with client, client.request("POST", server.base_url) as response:
            assert response.status == 307
            assert await read_all(response) == b"moved"
        assert (await theirs.get(server.base_url)).text == "hello world"
        await theirs.aclose()
        client = HttpClient(client=theirs)
        assert (await failure_of(client, server)).code == codes.INVALID_CONFIG


@both
async def test_a_response_that_a_hook_has_read_already(library: ModuleType) -> None:
    async def read(response: Any) -> None:
        await response.aread()

    theirs = library.AsyncClient(event_hooks={"response": [read]})
    async with serve("http", HELLO) as server, theirs, HttpClient(client=theirs) as client:
        assert await fetch(client, server) == b"hello world"


class Rude(httpx.AsyncByteStream):
    """A body of a caller's transport whose end is as bad as can be."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"x"
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("SECRET")

    async def aclose(self) -> None:
        await trio.sleep_forever()


async def test_a_callers_body_that_will_not_stop_is_left_after_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Transport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, stream=Rude())

    async with HttpClient(transport=Transport()) as client:
        before = trio.current_time()
        async with client.request("POST", "http://host/") as response:
            assert await response.receive() == b"x"
        assert trio.current_time() - before <= 1


async def test_what_is_no_failure_of_a_transport_is_raised_as_it_is() -> None:
    class Broken(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise ZeroDivisionError

    async with HttpClient(transport=Broken()) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.request("POST", "http://host/"):
                raise AssertionError


@both
async def test_a_held_response_can_be_drained(
    library: ModuleType, autojump_clock: trio.testing.MockClock
) -> None:
    client, theirs = with_client(library)
    async with (
        serve("http", event_stream(b"x", Hold())) as server,
        theirs,
        client,
        client.request("POST", server.base_url) as response,
    ):
        await response.receive()
        await response.drain()
