"""A runtime with one adapter over a loopback server, and a count of everything a call could leave behind."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from types import AsyncGeneratorType
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from trio_llm.model.chunks import Finish, ReasoningDelta, StreamChunk, TextDelta, ToolCalls, Usage
from trio_llm.model.content import ReasoningBlock, TextBlock
from trio_llm.model.requests import GenerateOptions
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.contract import LlmAdapter
from trio_llm.streaming.lanes import Next
from trio_llm.streaming.stream import ChunkStream
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.transport import TrioTransport

from ..runtime.test_leaks import tasks_below
from ..transport.http_parts import client_tls, open_descriptors

QUIET = 0.002
"""How long nothing may happen until everything counts as having happened, in real seconds: on a busy
machine the kernel takes its time to deliver."""

_TLS = client_tls()


async def pass_through(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
    async for chunk in next(options):
        yield chunk


class House:
    """A runtime over one server, whose adapter owns a transport of its own.

    Args:
        make: the adapter, as :attr:`.shapes.Shape.adapter`.
    """

    def __init__(
        self,
        server: WireServer,
        make: Callable[[str, TrioTransport], LlmAdapter],
        layers: int,
        max_connections: int | None = None,
    ) -> None:
        self.server = server
        self.transport = TrioTransport(ssl_context=_TLS, max_connections=max_connections)
        self._descriptors = open_descriptors()
        self.runtime = LlmRuntime()
        self.runtime.register_adapter(["p"], make(server.base_url, self.transport))
        for _ in range(layers):
            self.runtime.use(pass_through)

    async def good_call(self, options: GenerateOptions) -> None:
        """A call that nobody cancels; it leaves its connection to another."""
        async with self.runtime.stream(options) as stream:
            async for _ in stream:
                pass
        assert isinstance(stream.finish, ToolCalls)

    async def check_after_stream(self, tasks: int) -> None:
        """Nothing of a call is left but idle connections.

        Args:
            tasks: how many there were below the present task before it.
        """
        assert len(tasks_below(trio.lowlevel.current_task())) == tasks, "a task is left"
        idle = self.transport.idle_connections
        assert self.transport.open_connections == idle, "a slot is left"
        await self._server_is_done(idle)
        assert open_descriptors() == self._descriptors + idle + self.server.open_connections, (
            "a descriptor is left"
        )

    async def check_after_runtime(self) -> None:
        """Nothing is left at all."""
        assert self.transport.open_connections == 0, "a slot is left after the runtime"
        await self._server_is_done(0)
        assert open_descriptors() == self._descriptors, "a descriptor is left after the runtime"

    async def _server_is_done(self, idle: int) -> None:
        await wait_all_tasks_blocked(QUIET)
        with trio.fail_after(100):
            while self.server.open_connections > idle:  # noqa: ASYNC110  # it has no event for that
                await trio.sleep(0.01)
        self.server.connections[:] = [each for each in self.server.connections if not each.ended.is_set()]
        self.server.requests.clear()


@contextmanager
def every_generator_ends() -> Iterator[None]:
    """Every async generator that starts in the body has ended after it. Inside a Trio run."""
    started: list[AsyncGeneratorType[Any, Any]] = []
    hooks = sys.get_asyncgen_hooks()

    def on_start(generator: AsyncGenerator[Any, Any]) -> None:
        assert isinstance(generator, AsyncGeneratorType)
        started.append(generator)
        if hooks.firstiter is not None:
            hooks.firstiter(generator)

    sys.set_asyncgen_hooks(firstiter=on_start)
    try:
        yield
    finally:
        sys.set_asyncgen_hooks(*hooks)
    left = [generator for generator in started if generator.ag_frame is not None]
    assert not left, f"generators are left: {left}"


def substance(chunks: list[StreamChunk]) -> list[StreamChunk]:
    """The chunks of blocks, without counts and finish."""
    return [chunk for chunk in chunks if not isinstance(chunk, (Usage, Finish))]


def texts(chunks: list[StreamChunk]) -> list[str]:
    """Text and reasoning of each block, in order."""
    found: dict[int, str] = {}
    for chunk in chunks:
        if isinstance(chunk, (TextDelta, ReasoningDelta)):
            found[chunk.index] = found.get(chunk.index, "") + chunk.text
    return list(found.values())


def partial_texts(stream: ChunkStream) -> list[str]:
    """The same of what the stream kept."""
    return [block.text for block in stream.partial if isinstance(block, (TextBlock, ReasoningBlock))]
