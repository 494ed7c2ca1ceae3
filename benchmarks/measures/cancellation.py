"""How long a cancellation takes: until the caller has control again, and until the provider sees it."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import anyio.lowlevel

from ..drivers import Client, Driver
from ..endpoint import Control, Endpoint, control_of
from ..provider.scenarios import Scenario
from .cancellation_kinds import PHASES

_tags = itertools.count(random.randrange(1, 2**30) * 1000)
_FLOW_INTERVAL = 0.002
_BUSY_INTERVAL = 0.01
_ENOUGH_LEAKS = 2


async def measure(
    driver: Driver,
    endpoint: Endpoint,
    *,
    phase: str,
    way: str = "scope",
    scheme: str = "http",
    trials: int,
    busy: int = 0,
) -> dict[str, float | list[float]]:
    """Cancel a stream again and again. The times are given one by one, for percentiles over all rounds.

    Args:
        phase: one of ``PHASES``.
        way: one of ``WAYS``.
        busy: so many other streams flow meanwhile, an event each 10 ms in each.
    """
    returned: list[float] = []
    closed: list[float] = []
    never_closed = 0
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(control_of(endpoint))
        url = endpoint.url(scheme, connecting=phase == "connecting")
        client = await stack.enter_async_context(driver.open_client(url, endpoint.ca_file))
        group = await stack.enter_async_context(anyio.create_task_group())
        if busy:
            await _start_busy(group, client, busy)
        for _ in range(trials):
            trial = Trial(control, phase, way, scheme)
            await trial.run(client)
            returned.append(trial.returned - trial.stopped)
            if not trial.is_known_to_provider or never_closed == _ENOUGH_LEAKS:
                continue
            if (at := await trial.seen_closed()) is not None:
                closed.append(at - trial.stopped)
            else:
                never_closed += 1  # after some of them no more is waited for
        group.cancel_scope.cancel()
    return {
        "returned_ms": [seconds * 1e3 for seconds in returned],
        "closed_ms": [seconds * 1e3 for seconds in closed],
        "never_closed": never_closed,
    }


async def _start_busy(group: anyio.abc.TaskGroup, client: Client, count: int) -> None:
    scenario = str(Scenario(kind="flow", interval=_BUSY_INTERVAL))
    flowing = [anyio.Event() for _ in range(count)]

    def notes(event: anyio.Event) -> Callable[[object], None]:
        return lambda piece: event.set()

    for event in flowing:
        group.start_soon(client.consume, scenario, notes(event))
    for event in flowing:
        await event.wait()


class Trial:
    """One stream and its cancellation.

    Attributes:
        stopped: when it was cancelled, on the clock of ``time.perf_counter``.
        returned: when the code around it went on.
    """

    def __init__(self, control: Control, phase: str, way: str, scheme: str) -> None:
        self._control = control
        self._phase = phase
        self._way = way
        self._scheme = scheme
        self._tag = next(_tags)
        self._pieces = 0
        self._wanted = {"flowing": 3, "flooded": 50}.get(phase, 0)
        self._flowing = anyio.Event()
        self._scope = anyio.CancelScope()
        self._abort: Callable[[], Any] | None = None
        self.stopped = self.returned = 0.0

    @property
    def is_known_to_provider(self) -> bool:
        """Whether the provider knows of the connection: not if it hung in the kernel."""
        return self._phase != "connecting" or self._scheme == "https"

    async def run(self, client: Client) -> None:
        scenario = Scenario(kind=PHASES[self._phase], interval=_FLOW_INTERVAL, tag=self._tag)
        if self._phase == "connecting" and self._scheme == "https":
            self._tag = -int((await self._control.counts())["held"]) - 1
        async with anyio.create_task_group() as group:
            if self._way != "leave":
                group.start_soon(self._stop)
            with self._scope:
                await client.consume(str(scenario), self._seen, self._arm)
            self.returned = time.perf_counter()
            if not self.stopped:
                raise RuntimeError("the answer ended before it was cancelled")

    def _arm(self, abort: Callable[[], Any]) -> None:
        self._abort = abort

    def _seen(self, piece: object) -> bool:
        self._pieces += 1
        if self._pieces == self._wanted:
            self._flowing.set()
            if self._way == "leave":
                self.stopped = time.perf_counter()
                return True
        return False

    async def _stop(self) -> None:
        await self._in_phase()
        if self._way == "deadline":
            wait = 0.002
            self.stopped = time.perf_counter() + wait
            self._scope.deadline = anyio.current_time() + wait
            return
        self.stopped = time.perf_counter()
        if self._way == "abort":
            assert self._abort is not None, "this driver has no abort"
            self._abort()
        else:
            self._scope.cancel()

    async def _in_phase(self) -> None:
        """Wait until the stream is where it shall be cancelled."""
        if self._wanted:
            await self._flowing.wait()
            await anyio.sleep(random.uniform(0, 0.002))
        elif self._phase == "connecting" and self._scheme == "http":
            await anyio.sleep(0.003)  # nobody can say that a connection is being attempted
        else:
            await self._control.started(self._tag)
            await anyio.sleep(0.001)

    async def seen_closed(self) -> float | None:
        """When the provider saw the connection closed; None if not within a second: a leak."""
        return await self._control.closed(self._tag, within=1.0)
