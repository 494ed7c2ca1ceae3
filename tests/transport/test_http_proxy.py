"""Proxies of the environment: which one is chosen (httpx as oracle), and what goes over the wire."""

from __future__ import annotations

import base64
import ssl
from types import ModuleType
from typing import Any

import h11
import httpx
import httpx2
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_llm.model import codes
from trio_llm.model.failures import LlmError
from trio_llm.model.identity import attribution_headers
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import unused_port
from trio_llm.transport.client import HttpClient
from trio_llm.transport.connection import Endpoint, Proxy
from trio_llm.transport.proxy import EnvironmentProxies, SocksProxy

from .http_parts import LIBRARIES, client_on, client_tls, serve, server_tls, transport_on
from .test_http_client import assert_nowhere, fetch

both = pytest.mark.parametrize("library", LIBRARIES)
HELLO = event_stream(b"hello ", b"world")
NO_TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
BASIC = "Basic " + base64.b64encode(b"me:p@ss").decode()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


class Tunnel:
    """A CONNECT proxy: answers ``reply`` and, where that is a 200, carries bytes to and fro."""

    def __init__(self, reply: bytes = b"HTTP/1.1 200 OK\r\n\r\n", tls: bool = False) -> None:
        self.reply = reply
        self.tls = tls
        self.requests: list[dict[str, str]] = []

    async def __call__(self, raw: trio.SocketStream) -> None:
        near: Any = trio.SSLStream(raw, server_tls(), server_side=True) if self.tls else raw
        try:
            await self.serve(near)
        except trio.BrokenResourceError:
            pass
        finally:
            raw.socket.close()

    async def serve(self, near: Any) -> None:
        parser = h11.Connection(h11.SERVER)
        while (event := parser.next_event()) is h11.NEED_DATA:
            data = await near.receive_some(65536)
            if not data:
                return
            parser.receive_data(data)
        assert isinstance(event, h11.Request)
        seen = {name.decode(): value.decode() for name, value in event.headers}
        self.requests.append({"target": event.target.decode(), "method": event.method.decode(), **seen})
        await near.send_all(self.reply)
        if b" 200 " not in self.reply or self.reply.endswith(b"EXTRA"):
            return
        host, _, port = event.target.decode().rpartition(":")
        far = await trio.open_tcp_stream(host, int(port))
        async with far, trio.open_nursery() as nursery:

            async def carry(source: Any, sink: Any) -> None:
                try:
                    while data := await source.receive_some(65536):
                        await sink.send_all(data)
                except trio.BrokenResourceError:
                    pass
                nursery.cancel_scope.cancel()

            nursery.start_soon(carry, near, far)
            nursery.start_soon(carry, far, near)


class Serving:
    """Runs a tunnel on a port of its own."""

    def __init__(self, tunnel: Tunnel) -> None:
        self.tunnel = tunnel

    async def __aenter__(self) -> int:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(trio.serve_listeners, self.tunnel, listeners)
        port: int = listeners[0].socket.getsockname()[1]
        return port

    async def __aexit__(self, *exc: object) -> None:
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)


@both
async def test_plain_requests_go_to_the_proxy_in_absolute_form(
    library: ModuleType, environment: pytest.MonkeyPatch
) -> None:
    async with serve("http", always=HELLO) as proxy:
        environment.setenv("HTTP_PROXY", f"http://me:p%40ss@127.0.0.1:{proxy.port}")
        async with client_on(transport_on(library)) as client:
            for host in ("one.example", "two.example:8080"):
                async with client.request("GET", f"http://{host}/v1?a=b") as response:
                    assert await response.read(100) == b"hello world"
                    await response.drain()
        assert [request.target for request in proxy.requests] == [
            "http://one.example/v1?a=b",
            "http://two.example:8080/v1?a=b",
        ]
        assert len(proxy.connections) == 1  # one connection serves every host
        for request in proxy.requests:
            assert request.header("proxy-authorization") == BASIC
            assert request.header("user-agent") == attribution_headers()["user-agent"]
        assert proxy.requests[1].header("host") == "two.example:8080"


@both
@pytest.mark.parametrize("proxy_tls", [False, True], ids=["http-proxy", "https-proxy"])
async def test_https_requests_go_through_a_tunnel(
    library: ModuleType, proxy_tls: bool, environment: pytest.MonkeyPatch
) -> None:
    tunnel = Tunnel(tls=proxy_tls)
    async with serve("https", always=HELLO) as server, Serving(tunnel) as port:
        scheme = "https" if proxy_tls else "http"
        environment.setenv("HTTPS_PROXY", f"{scheme}://me:p%40ss@127.0.0.1:{port}")
        async with client_on(transport_on(library)) as client:
            for _ in range(2):
                assert await fetch(client, server) == b"hello world"
        assert len(server.connections) == 1
        assert server.requests[0].target == "/v1"
        assert server.requests[0].header("proxy-authorization") is None
        assert server.requests[0].header("user-agent") == attribution_headers()["user-agent"]
    assert tunnel.requests == [
        {
            "method": "CONNECT",
            "target": f"127.0.0.1:{server.port}",
            "host": f"127.0.0.1:{server.port}",
            "user-agent": attribution_headers()["user-agent"],
            "proxy-authorization": BASIC,
        }
    ]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b"HTTP/1.1 407 SECRET\r\nproxy-authenticate: SECRET\r\n\r\n", "refused a tunnel with status 407"),
        (b"HTTP/1.1 200 OK\r\n\r\nEXTRA", "bytes of its own"),
        (b"SECRET\r\n\r\n", "did not open a tunnel"),
        (b"", "did not open a tunnel"),
    ],
    ids=["407", "extra", "junk", "closed"],
)
async def test_a_tunnel_that_does_not_open(reply: bytes, told: str, environment: pytest.MonkeyPatch) -> None:
    transport_port = unused_port()
    async with Serving(Tunnel(reply)) as port:
        environment.setenv("ALL_PROXY", f"http://me:SECRET@127.0.0.1:{port}")
        transport = transport_on(httpx)
        async with client_on(transport) as client:
            with pytest.raises(LlmError) as caught:
                async with client.request("GET", f"https://127.0.0.1:{transport_port}/"):
                    raise AssertionError
            assert transport.open_connections == 0
    assert caught.value.code == codes.TRANSPORT
    assert told in caught.value.failure.message
    assert f"through the proxy 127.0.0.1:{port}" in caught.value.failure.message
    assert_nowhere("SECRET", caught.value)


@pytest.mark.parametrize("at", range(12))
async def test_a_cancel_anywhere_in_a_tunnel_closes_it(at: int, environment: pytest.MonkeyPatch) -> None:
    tunnel = Tunnel(tls=True)
    async with serve("https", always=HELLO) as server, Serving(tunnel) as port:
        environment.setenv("HTTPS_PROXY", f"https://127.0.0.1:{port}")
        transport = transport_on(httpx)
        async with client_on(transport) as client:
            with trio.move_on_after(at * 0.001):
                await fetch(client, server)
            assert transport.open_connections == transport.idle_connections


async def test_a_socks_proxy_is_left_to_httpx(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("ALL_PROXY", "socks5://me:SECRET@127.0.0.1:1")
    async with HttpClient(ssl_context=client_tls()) as client:
        with pytest.raises(LlmError) as caught:
            async with client.request("GET", "http://host.example/"):
                raise AssertionError
    assert caught.value.code in (codes.INVALID_CONFIG, codes.TRANSPORT)  # as socksio is there, or is not
    assert_nowhere("SECRET", caught.value)
    assert "SECRET" not in repr(SocksProxy("socks5://me:SECRET@host"))


@pytest.mark.parametrize("value", ["ftp://me:SECRET@host", "http://", "http://me:SECRET@host:x"])
async def test_a_variable_without_a_proxy_is_a_fault_of_the_configuration(
    value: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("HTTPS_PROXY", value)
    with pytest.raises(LlmError, match="HTTPS_PROXY") as caught:
        HttpClient()
    assert caught.value.code == codes.INVALID_CONFIG
    assert_nowhere("SECRET", caught.value)


HOSTS = [
    "example.com",
    "www.example.com",
    "wwwexample.com",
    "localhost",
    "a.localhost",
    "10.1.2.3",
    "::1",
    "x",
]
ENTRIES = [
    "example.com", ".example.com", "*.example.com", "www.example.com", "localhost", "LOCALHOST", "10.1.2.3",
    "::1", "[::1]", "example.com:8080", "example.com:443", "http://example.com", "https://*.example.com",
    "all://example.com:8080", "10.0.0.0/8", "10.1.2.3/32", "::/64", "", "*", "x y", "10.0.0.0/99",
]  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from(NAMES[:3]), st.sampled_from(["http://p1:1", "p2:2", "https://p3"]), min_size=1
    ),
    st.lists(st.sampled_from(ENTRIES), max_size=3),
    st.sampled_from(["http", "https"]),
    st.sampled_from(HOSTS),
    st.sampled_from([None, 8080, 443, 80]),
)
@settings(max_examples=150)
def test_the_choice_is_that_of_httpx(
    proxies: dict[str, str], exceptions: list[str], scheme: str, host: str, port: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.delenv(name, raising=False)
            patch.delenv(name.lower(), raising=False)
        for name, value in {**proxies, "NO_PROXY": ",".join(exceptions)}.items():
            patch.setenv(name, value)
        in_url = f"[{host}]" if ":" in host else host
        url = httpx2.URL(f"{scheme}://{in_url}" + ("" if port is None else f":{port}"))
        theirs = httpx2.AsyncClient(verify=NO_TRUST)
        chosen: Any = theirs._transport_for_url(url)
        expected = getattr(chosen._pool, "_proxy_url", None)
        got = EnvironmentProxies(httpx).proxy_for(url.scheme, url.host, url.port)
        assert not isinstance(got, SocksProxy)
        assert (got and got.endpoint.host) == (expected and expected.host.decode())


def test_no_proxy_shows_its_password() -> None:
    proxy = Proxy(Endpoint("http", "host", 1), Proxy.basic("me", "p@ss"))
    assert proxy.authorization == BASIC.encode()
    assert BASIC not in repr(proxy)
