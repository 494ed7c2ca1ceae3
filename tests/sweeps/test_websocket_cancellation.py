"""A call over a session's WebSocket, cancelled at every step: the same promises as over HTTP.

Afterwards a connection whose response was not read to its end is closed, and one that is kept serves the
session's next call.
"""

from __future__ import annotations

import itertools
import json
import math

import attrs
import pytest
import trio
from trio._core import _run as scheduler
from trio.testing import MockClock, wait_all_tasks_blocked
from trio_websocket import ConnectionClosed, WebSocketRequest

from trio_llm.model.chunks import Aborted, ToolCalls
from trio_llm.model.identifiers import SessionId
from trio_llm.providers.openai_responses import ResponsesAdapter, ResponsesConfig
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.transport.websocket import WebSocket, WebSocketClient

from ..runtime.test_leaks import tasks_below
from ..transport.http_parts import client_tls, open_descriptors
from ..transport.websocket_server import Peer, SocketServer
from .cancelling import Act, AtStep, Call, Cell, Start, judge
from .extent import FULL
from .house import QUIET, every_generator_ends
from .shapes import SCHEMES, SHAPES

(HTTP,) = (shape for shape in SHAPES if shape.name == "openai_responses")
SHAPE = attrs.evolve(HTTP, name="openai_responses_websocket", fields={"session_id": SessionId("s")})
EVENTS = [json.loads(event.removeprefix(b"data: ")) for event in SHAPE.events]

ACTS: tuple[Act, ...] = ("abort", "cancel", "deadline")
STARTS: tuple[Start, ...] = ("fresh", "reused")
CELLS = [
    Cell(SHAPE, scheme, 0, start, act) for scheme, start, act in itertools.product(SCHEMES, STARTS, ACTS)
]

TASKS_OF_A_SOCKET = 2
"""What an open WebSocket lives in: a task of this library, and one of trio-websocket's."""

_TLS = client_tls()


@attrs.define(eq=False)
class Server(SocketServer):
    """Answers each request in messages of one event. Clients may go away in the middle of the handshake.

    Attributes:
        owed: how many requests on connections that are open have not been answered in full.
    """

    owed: int = 0

    async def answer(self, peer: Peer) -> None:
        """Serve a connection."""
        while True:
            await peer.receive()
            self.owed += 1
            try:
                await peer.send(*EVENTS)
            finally:
                self.owed -= 1

    async def _handle(self, request: WebSocketRequest) -> None:
        try:
            await super()._handle(request)
        except ConnectionClosed:
            pass


class SocketHouse:
    """A runtime over one server, with one session, and a count of everything a call could leave behind.

    The server runs outside the task that makes this.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._descriptors = open_descriptors()
        self._adapter = ResponsesAdapter(
            ResponsesConfig(api_key="key", base_url=server.url, websocket=True),
            websockets=WebSocketClient(ssl_context=_TLS),
        )
        self.runtime = LlmRuntime()
        self.runtime.register_adapter(["p"], self._adapter)

    @property
    def kept(self) -> list[WebSocket]:
        """The idle sockets."""
        return [connection.socket for connection in self._adapter._sockets._idle.values()]

    async def good_call(self) -> None:
        """A call that nobody cancels; it leaves its connection to the next."""
        async with self.runtime.stream(SHAPE.request()) as stream:
            async for _ in stream:
                pass
        assert isinstance(stream.finish, ToolCalls)
        assert len(stream.settlements) == 1, "the connection it found was no good"
        assert len(self.kept) == 1

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


async def run(cell: Cell, seed: int, server: Server, clock: MockClock, step: float) -> tuple[Call, AtStep]:
    """One call in a runtime of its own, cancelled at ``step``; checks that nothing is left of either."""
    scheduler._r.seed(seed)  # trio shuffles the tasks of a pass
    house = SocketHouse(server)
    around_stream = trio.CancelScope()
    call: Call | None = None

    def act() -> None:
        assert call is not None
        match cell.act:
            case "abort":
                call.stream.abort("because")
            case "cancel":
                around_stream.cancel()
            case "deadline":
                around_stream.deadline = trio.current_time()

    instrument = AtStep(clock, step, act)
    with every_generator_ends():
        async with house.runtime as runtime:
            tasks = len(tasks_below(trio.lowlevel.current_task()))
            if cell.start == "reused":
                await house.good_call()
            call = Call(runtime.stream(SHAPE.request()))
            trio.lowlevel.add_instrument(instrument)
            with around_stream:
                try:
                    async with call.stream as stream:
                        async for chunk in stream:
                            call.seen.append(chunk)
                        call.looped = True
                finally:
                    call.left_at = trio.current_time()
            trio.lowlevel.remove_instrument(instrument)
            if not isinstance(call.stream.finish, Aborted):
                assert len(house.kept) == 1, "a clean connection is not kept"
            await house.check_after_stream(tasks)
    await house.check_after_runtime()
    call.cancelled = around_stream.cancelled_caught
    return call, instrument


async def run_steps(cell: Cell, seed: int, clock: MockClock, stride: int) -> int:
    """Cancel at step 1, 1 + stride, ... until the call is over before; returns how many steps it has."""
    steps = 0
    server = Server([], cell.scheme)
    server.script = [server.answer]

    async def client() -> None:
        nonlocal steps
        whole, instrument = await run(cell, seed, server, clock, math.inf)
        steps = instrument.steps
        for step in itertools.count(1, stride):
            try:
                call, instrument = await run(cell, seed, server, clock, step)
                judge(cell, call, instrument.acted_at, whole.seen)
            except BaseException as error:
                error.add_note(f"{cell}, seed {seed}, cancelled at step {step} of {steps}")
                raise
            if instrument.acted_at is None:
                break

    async with server, trio.open_nursery() as nursery:
        nursery.start_soon(client)
    return steps


@pytest.mark.parametrize("seed", range(3 if FULL else 1))
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_cancelled_at_every_step(cell: Cell, seed: int) -> None:
    clock = MockClock(autojump_threshold=QUIET)
    steps = trio.run(run_steps, cell, seed, clock, 1 if FULL else 3, clock=clock)
    assert steps > 15
