"""Where the provider listens, and the control connection to it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Endpoint:
    """The provider's ports on 127.0.0.1.

    Attributes:
        plain: http.
        tls: https, with a certificate of ``ca_file``.
        held: accepts, and never answers: a TLS handshake hangs there.
        full: its queue is full: connecting hangs there.
        control: answers questions about the others, one JSON line each.
    """

    plain: int
    tls: int
    held: int
    full: int
    control: int
    ca_file: str

    def url(self, scheme: str = "http", *, connecting: bool = False) -> str:
        """The base URL to hand to a client; with ``connecting``, one that never lets it connect."""
        if connecting:
            port = self.full if scheme == "http" else self.held
        else:
            port = self.plain if scheme == "http" else self.tls
        return f"{scheme}://127.0.0.1:{port}/v1"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@contextmanager
def running_provider() -> Iterator[Endpoint]:
    """The provider in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.provider.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Endpoint(**json.loads(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


class Control:
    """Asks the provider what it saw. One question at a time."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def _ask(self, **question: object) -> dict[str, Any]:
        await self._stream.send(json.dumps(question).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += await self._stream.receive()
        return json.loads(answer)

    async def started(self, tag: int) -> float:
        """Wait until the request has arrived; when that was, on the clock of ``time.perf_counter``."""
        return (await self._ask(ask="started", tag=tag))["at"]

    async def closed(self, tag: int, *, within: float) -> float | None:
        """Wait until the request's connection is seen closed; when that was, None if not in time."""
        return (await self._ask(ask="closed", tag=tag, within=within))["at"]

    async def counts(self) -> dict[str, float]:
        """How many connections, open ones, requests, held ones and received bytes there are (have been)."""
        return await self._ask(ask="counts")


@asynccontextmanager
async def control_of(endpoint: Endpoint) -> AsyncIterator[Control]:
    """A control connection; anyio, because the measures run under Trio and under asyncio."""
    import anyio

    async with await anyio.connect_tcp("127.0.0.1", endpoint.control) as stream:
        yield Control(stream)
