"""Under cancellation no socket, descriptor, slot or task is lost. The stock pool shows what could be."""

from __future__ import annotations

import gc
import math
import random
import socket
import warnings
from types import ModuleType
from typing import Any

import httpx
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_llm.model.failures import LlmError
from trio_llm.testing.wire_script import Gate, Hold, Pause, Repeat, Response, event_stream
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.client import HttpClient
from trio_llm.transport.transport import TrioTransport

from .http_parts import (
    LIBRARIES,
    SCHEMES,
    client_on,
    client_tls,
    open_descriptors,
    serve,
    server_tls,
    transport_on,
)

CANCELS = 1000
TASKS = 20
SLOTS = 5


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_thousand_random_cancels_lose_nothing(library: ModuleType, scheme: str) -> None:
    chance = random.Random(7)
    answers = [
        event_stream(b"data: 1\n\n", b"data: [DONE]\n\n"),
        event_stream(b"data: 1\n\n", Hold()),
        event_stream(Repeat(b"data: x\n\n")),
        Response(before=(Hold(),)),
        Response(before=(Pause(0.001),)),
    ]
    answers = [Response(a.status, a.headers, a.body, before=a.before, settle=False) for a in answers]
    server = WireServer(
        lambda request: answers[int(request.target[1:])], tls=server_tls() if scheme == "https" else None
    )
    transport = transport_on(library, max_connections=SLOTS)
    cancels = ended = 0

    async def call(client: HttpClient) -> None:
        nonlocal cancels, ended
        while cancels < CANCELS:
            kind = chance.randrange(len(answers))
            patient = kind == 0 and chance.random() < 0.5
            with trio.move_on_after(math.inf if patient else chance.expovariate(1 / 0.01)) as scope:
                async with client.request("POST", f"{server.base_url}/{kind}", content=b"{}") as response:
                    while b"DONE" not in (data := await response.receive()) and data:
                        pass
                    await response.drain()
                    ended += 1
            cancels += scope.cancelled_caught

    async with client_on(transport) as client:
        before = open_descriptors()
        tasks = trio.lowlevel.current_statistics().tasks_living
        async with server:
            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    for _ in range(TASKS):
                        nursery.start_soon(call, client)
            assert transport.open_connections == transport.idle_connections <= SLOTS
            with trio.fail_after(5):
                while server.open_connections > transport.idle_connections:  # noqa: ASYNC110  # no event for it
                    await trio.sleep(0.01)
                for _ in range(SLOTS):  # every slot still serves
                    async with client.request("POST", server.base_url + "/0") as response:
                        assert response.status == 200
        await transport.aclose()
        assert transport.open_connections == 0
        assert trio.lowlevel.current_statistics().tasks_living == tasks
    gc.collect()
    assert open_descriptors() <= before
    assert ended > 0


# The three leaks of the stock pool (httpx 0.28 on httpcore 1.0), each with the same thing done to ours.


async def test_A_the_stock_pool_loses_a_slot_to_a_request_cancelled_in_line() -> None:
    scope = trio.CancelScope()

    async def as_the_slot_becomes_free(event: str, info: object) -> None:
        if event == "http11.response_closed.complete":
            scope.cancel()

    gate = Gate()
    async with serve("http", always=Response(200, before=(gate,), settle=False)) as server:
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(limits=limits, timeout=httpx.Timeout(None, pool=0.2)) as client:

            async def first() -> None:
                headers = {"connection": "close"}
                trace = {"trace": as_the_slot_becomes_free}
                await client.get(server.base_url, headers=headers, extensions=trace)

            async def second() -> None:
                with scope:
                    await client.get(server.base_url)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(first)
                await server.wait_request()
                nursery.start_soon(second)
                await wait_all_tasks_blocked()
                gate.open()
            assert scope.cancelled_caught
            with pytest.raises(httpx.PoolTimeout):
                await client.get(server.base_url)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("cancel_first", [True, False])
async def test_A_ours_does_not(library: ModuleType, cancel_first: bool) -> None:
    scope = trio.CancelScope()
    transport = transport_on(library, max_connections=1)
    answer = event_stream(b"x", Hold())
    async with serve("http", always=answer) as server, client_on(transport) as client:

        async def second() -> None:
            with scope:
                async with client.request("GET", server.base_url):
                    raise AssertionError

        async with trio.open_nursery() as nursery:
            async with client.request("GET", server.base_url) as response:
                await response.receive()
                nursery.start_soon(second)
                await wait_all_tasks_blocked()
                if cancel_first:
                    scope.cancel()
            scope.cancel()
        assert scope.cancelled_caught
        assert transport.open_connections == 0
        with trio.fail_after(5):
            async with client.request("GET", server.base_url) as response:
                assert response.status == 200


def pool_connections(client: Any) -> list[str]:
    return [repr(connection) for connection in client._transport._pool.connections]


async def cancel_as_tls_completes(send: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """B: cancel in the very tick in which the TLS handshake completes."""
    scope = trio.CancelScope()
    shake = trio.SSLStream.do_handshake

    async def shake_and_cancel(self: Any) -> None:
        await shake(self)
        if self.server_side is False:
            scope.cancel()

    monkeypatch.setattr(trio.SSLStream, "do_handshake", shake_and_cancel)
    with scope:
        await send()
    monkeypatch.undo()
    assert scope.cancelled_caught


@pytest.mark.parametrize("library", LIBRARIES)
async def test_B_the_stock_pool_loses_a_connection_cancelled_as_tls_completes(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serve("https", always=event_stream(b"x")) as server,
        library.AsyncClient(verify=client_tls(), timeout=None) as client,
    ):
        await cancel_as_tls_completes(lambda: client.get(server.base_url), monkeypatch)
        assert len(pool_connections(client)) == 1  # nobody owns it, nobody will ever close it
        assert server.open_connections == 1


@pytest.mark.parametrize("library", LIBRARIES)
async def test_B_ours_does_not(library: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = transport_on(library)
    async with (
        serve("https", always=event_stream(b"x")) as server,
        library.AsyncClient(transport=transport, timeout=None) as client,
    ):
        await cancel_as_tls_completes(lambda: client.get(server.base_url), monkeypatch)
        assert transport.open_connections == 0
        with trio.fail_after(5):
            await server.connections[0].ended.wait()


async def cancel_within_tls(send: Any, server: WireServer) -> None:
    """C: cancel while the server keeps the client waiting in the TLS handshake."""
    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:

        async def request() -> None:
            with scope:
                await send()

        nursery.start_soon(request)
        await server.wait_connection()
        await wait_all_tasks_blocked()
        scope.cancel()


@pytest.mark.parametrize("library", LIBRARIES)
async def test_C_the_stock_pool_leaves_a_socket_cancelled_within_tls_to_the_garbage_collector(
    library: ModuleType,
) -> None:
    gc.collect()
    gc.disable()
    try:
        async with (
            WireServer(on_connect=(Hold(),)) as server,
            library.AsyncClient(timeout=None) as client,
        ):
            await cancel_within_tls(lambda: client.get(f"https://127.0.0.1:{server.port}"), server)
            with trio.move_on_after(0.2):
                await server.connections[0].gone.wait()
            assert not server.connections[0].gone.is_set()
    finally:
        gc.enable()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.mark.parametrize("library", LIBRARIES)
async def test_C_ours_does_not(library: ModuleType) -> None:
    transport = transport_on(library)
    gc.collect()
    gc.disable()
    try:
        async with (
            WireServer(on_connect=(Hold(),)) as server,
            library.AsyncClient(transport=transport, timeout=None) as client,
        ):
            await cancel_within_tls(lambda: client.get(f"https://127.0.0.1:{server.port}"), server)
            assert transport.open_connections == 0
            with trio.fail_after(5):
                await server.connections[0].gone.wait()
    finally:
        gc.enable()


# The line for a slot


async def test_requests_wait_their_turn_and_count_as_connecting() -> None:
    transport = transport_on(httpx, max_connections=1)
    gate = Gate()
    order: list[str] = []
    answer = Response(200, body=(gate, b"x"))
    async with serve("http", always=answer) as server, client_on(transport) as client:
        async with trio.open_nursery() as nursery:

            async def call(name: str) -> None:
                async with client.request("GET", server.base_url) as response:
                    order.append(name)
                    while await response.receive():
                        pass

            for name in "abc":
                nursery.start_soon(call, name)
                await wait_all_tasks_blocked()
            assert order == ["a"]
            assert len(server.requests) == 1
            gate.open()
        assert order == ["a", "b", "c"]
        assert len(server.connections) == 1


async def test_a_slot_is_taken_over_from_another_host() -> None:
    transport = transport_on(httpx, max_connections=1)
    gate = Gate()
    gated_answer = Response(200, body=(gate, b"x"))
    async with (
        serve("http", always=gated_answer) as one,
        serve("http", always=event_stream(b"y")) as two,
        client_on(transport) as client,
    ):
        async with trio.open_nursery() as nursery:

            async def call(server: WireServer) -> None:
                async with client.request("GET", server.base_url) as response:
                    while await response.receive():
                        pass

            nursery.start_soon(call, one)
            await one.wait_request()
            nursery.start_soon(call, two)  # in line: gets the slot, not the connection
            await wait_all_tasks_blocked()
            gate.open()
        assert len(two.requests) == 1
        await call(one)  # the idle connection to the other host makes room
        assert len(one.connections) == 2
        assert transport.open_connections == 1


@pytest.mark.parametrize("ending", ["reusable", "closed"])
async def test_who_is_cancelled_in_line_gives_up_what_it_was_granted(ending: str) -> None:
    transport = transport_on(httpx, max_connections=1)
    gate = Gate()
    headers = {"connection": "close"} if ending == "closed" else {}
    answer = Response(200, headers, (gate, b"x"), settle=False)
    scopes = [trio.CancelScope() for _ in range(2)]
    async with serve("http", always=answer) as server, client_on(transport) as client:

        async def call() -> None:
            async with client.request("GET", server.base_url) as response:
                while await response.receive():
                    pass

        async def first() -> None:
            await call()
            scopes[0].cancel()  # in the tick in which the next in line was granted

        async def in_line(scope: trio.CancelScope) -> None:
            with scope:
                await call()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await server.wait_request()
            for scope in scopes:
                nursery.start_soon(in_line, scope)
                await wait_all_tasks_blocked()
            gate.open()
        assert len(server.requests) == 2 + (not scopes[0].cancelled_caught)
        assert transport.open_connections == transport.idle_connections


async def test_a_connect_that_fails_gives_up_its_slot() -> None:
    transport = transport_on(httpx, max_connections=1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        async with client_on(transport) as client:
            for _ in range(3):
                with pytest.raises(LlmError):
                    async with client.request("GET", f"http://127.0.0.1:{port}/"):
                        raise AssertionError
    assert transport.open_connections == 0


async def test_hosts_that_are_idle_no_more_are_forgotten(autojump_clock: trio.testing.MockClock) -> None:
    transport = TrioTransport(idle_expiry=1)
    servers = [serve("http", always=event_stream(b"x")) for _ in range(20)]
    async with client_on(transport) as client:
        for server in servers:
            async with server, client.request("GET", server.base_url) as response:
                await response.receive()
                await response.drain()
        assert transport.idle_connections == 20
        await trio.sleep(2)
        async with servers[0], client.request("GET", servers[0].base_url) as response:
            await response.receive()
            await response.drain()
        assert transport.open_connections == 1
        assert len(transport._pool._idle) == 1
