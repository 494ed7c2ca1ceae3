"""A runtime with one session over a WebSocket server, and a count of everything a call could leave behind."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from trio_websocket import ConnectionClosed, WebSocketRequest

from trio_llm.model.chunks import ToolCalls
from trio_llm.model.identifiers import CallId, SessionId
from trio_llm.model.messages import create_tool_result_message
from trio_llm.model.requests import GenerateOptions
from trio_llm.providers.openai_responses import ResponsesAdapter, ResponsesConfig
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.transport.websocket import WebSocket, WebSocketClient

from ..runtime.test_leaks import tasks_below
from ..transport.http_parts import client_tls, open_descriptors
from ..transport.websocket_server import Peer, SocketServer
from .house import QUIET, pass_through
from .shapes import SHAPES

_TLS = client_tls()

(HTTP,) = (shape for shape in SHAPES if shape.name == "openai_responses")
SHAPE = attrs.evolve(HTTP, name="openai_responses_websocket", fields={"session_id": SessionId("s")})

EVENTS: list[dict[str, Any]] = [json.loads(event.removeprefix(b"data: ")) for event in SHAPE.events]
EVENTS[-1]["response"]["id"] = "r"
"""The answer to a request; the next one can go on from it."""

REFUSED = attrs.evolve(
    SHAPE,
    name="openai_responses_refused",
    adapter=lambda url, transport: ResponsesAdapter(
        ResponsesConfig(api_key="key", base_url=url, websocket=True),
        websockets=WebSocketClient(ssl_context=_TLS),
        transport=transport,
    ),
)
"""A server that answers an upgrade as it answers any request, so that the call goes over HTTP."""

TASKS_OF_A_SOCKET = 2
"""What an open WebSocket lives in: a task of this library, and one of trio-websocket's."""

Answer: TypeAlias = Callable[[Peer, Any], Awaitable[None]]
"""Answers a request, given the connection and the request."""


async def good_answer(peer: Peer, request: Any) -> None:
    """The events, in messages of one each."""
    await peer.send(*EVENTS)


@attrs.define(eq=False)
class Server(SocketServer):
    """Answers each request. Clients may go away in the middle of the handshake.

    Attributes:
        answer: what each request gets.
        owed: how many requests on connections that are open have not been answered in full.
    """

    answer: Answer = good_answer
    owed: int = 0

    def __attrs_post_init__(self) -> None:
        self.script = [self.serve]

    async def serve(self, peer: Peer) -> None:
        """Serve a connection."""
        while True:
            request = await peer.receive()
            self.owed += 1
            try:
                await self.answer(peer, request)
            finally:
                self.owed -= 1

    async def _handle(self, request: WebSocketRequest) -> None:
        try:
            await super()._handle(request)
        except ConnectionClosed:
            pass


class SocketHouse:
    """A runtime over one server, with one session. The server runs outside the task that makes this."""

    def __init__(self, server: Server, layers: int = 0) -> None:
        self.server = server
        self._descriptors = open_descriptors()
        self._adapter = ResponsesAdapter(
            ResponsesConfig(api_key="key", base_url=server.url, websocket=True),
            websockets=WebSocketClient(ssl_context=_TLS),
        )
        self.runtime = LlmRuntime()
        self.runtime.register_adapter(["p"], self._adapter)
        for _ in range(layers):
            self.runtime.use(pass_through)

    @property
    def kept(self) -> list[WebSocket]:
        """The idle sockets."""
        return [connection.socket for connection in self._adapter._sockets._idle.values()]

    async def good_call(self) -> GenerateOptions:
        """A call that nobody cancels; it leaves its connection to the next. Gives what goes on from it."""
        options = SHAPE.request()
        async with self.runtime.stream(options) as stream:
            async for _ in stream:
                pass
        assert isinstance(stream.finish, ToolCalls)
        assert stream.message is not None
        assert len(stream.settlements) == 1, "the connection it found was no good"
        assert len(self.kept) == 1
        result = create_tool_result_message(CallId("t"), "x")
        following: GenerateOptions = attrs.evolve(
            options, messages=[*options.messages, stream.message, result]
        )
        return following

    async def check_after_stream(self, tasks: int) -> None:
        """Nothing of a call is left but a socket that is kept, and it is usable.

        Args:
            tasks: how many there were below the present task when there was no socket.
        """
        await wait_all_tasks_blocked(QUIET)
        kept = len(self.kept)
        assert all(socket.usable for socket in self.kept), "a socket is kept with half a response in it"
        assert not self.server.owed, "a socket is kept whose response is not whole"
        present = len(tasks_below(trio.lowlevel.current_task()))
        assert present == tasks + TASKS_OF_A_SOCKET * kept, "a task is left"
        await self._check_descriptors(2 * kept)
        asked = self.server.asked
        await self.good_call()
        assert self.server.asked == asked + 1 - kept, "a socket that was kept is not used"

    async def check_after_runtime(self) -> None:
        """Nothing is left at all."""
        await self._check_descriptors(0)
        assert all(peer.gone.is_set() for peer in self.server.peers)
        self.server.peers.clear()

    async def _check_descriptors(self, sockets: int) -> None:
        """Both ends of each connection count; the server may need its time to see that one is gone."""
        for _ in range(20):
            await wait_all_tasks_blocked(QUIET)
            if open_descriptors() == self._descriptors + sockets:
                return
            await trio.sleep(5)  # trio-websocket gives up a handshake after a minute
        pytest.fail("a descriptor is left")
