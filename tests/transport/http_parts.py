"""Shared by the HTTP tests: certificates, both libraries, watchers, and a count of what is open."""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Sequence
from types import ModuleType

import httpx
import httpx2
import pytest
import trustme

from trio_llm.testing.wire_script import Response, Step
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.client import HttpClient
from trio_llm.transport.transport import TrioTransport

LIBRARIES = [pytest.param(httpx, id="httpx"), pytest.param(httpx2, id="httpx2")]
SCHEMES = ["http", "https"]


@functools.cache
def authority() -> trustme.CA:
    return trustme.CA()


@functools.cache
def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


def client_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority().configure_trust(context)
    return context


def serve(
    scheme: str,
    *answers: Response,
    always: Response | None = None,
    on_connect: Sequence[Step] = (),
    read_bodies: bool = True,
) -> WireServer:
    return WireServer(
        answers if always is None else always,
        tls=server_tls() if scheme == "https" else None,
        on_connect=on_connect,
        read_bodies=read_bodies,
    )


def transport_on(
    library: ModuleType, *, max_connections: int | None = None, idle_expiry: float = 50
) -> TrioTransport:
    return TrioTransport(
        library=library, ssl_context=client_tls(), max_connections=max_connections, idle_expiry=idle_expiry
    )


def client_on(transport: TrioTransport) -> HttpClient:
    return HttpClient(transport=transport)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Marks:
    """A watcher that writes down what it is told."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def connecting(self) -> None:
        self.seen.append("connecting")

    def connected(self) -> None:
        self.seen.append("connected")

    def sent(self) -> None:
        self.seen.append("sent")

    def alive(self) -> None:
        self.seen.append("alive")

    def socket_closed(self) -> None:
        self.seen.append("socket_closed")

    @property
    def phases(self) -> list[str]:
        return [mark for mark in self.seen if mark != "alive"]
