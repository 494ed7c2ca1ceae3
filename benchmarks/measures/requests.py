"""CPU per request with a tiny answer, on a connection that is used again."""

from __future__ import annotations

import time

import anyio

from ..drivers import Client, Driver
from ..endpoint import Endpoint, control_of
from ..provider.scenarios import Scenario


async def measure(driver: Driver, endpoint: Endpoint, *, requests: int, idle: int = 0) -> dict[str, float]:
    """Send requests one after another.

    Args:
        idle: so many other connections wait in the pool meanwhile.
    """
    tiny = str(Scenario(kind="tiny"))
    async with (
        control_of(endpoint) as control,
        driver.open_client(endpoint.url(), endpoint.ca_file) as client,
    ):
        if idle:
            await _fill_pool(client, idle)
        for _ in range(5):
            await client.consume(tiny, lambda piece: None)
        pieces: list[str | bytes] = []
        before = await control.counts()
        begin = time.process_time()
        for _ in range(requests):
            await client.consume(tiny, pieces.append)
        cpu = time.process_time() - begin
        after = await control.counts()
    if driver.pieces == "text" and len(pieces) != requests:
        raise RuntimeError(f"{len(pieces)} events came of {requests}")
    return {
        "us": cpu / requests * 1e6,
        "connections_per_request": (after["connections"] - before["connections"]) / requests,
        "idle": before["open"],
    }


async def _fill_pool(client: Client, count: int) -> None:
    hold = str(Scenario(kind="hold", interval=1.0))
    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(client.consume, hold, lambda piece: None)
