"""CPU per event of one stream: in bursts, one HTTP chunk per event, one event per network read."""

from __future__ import annotations

import itertools
import time

from ..drivers import Driver
from ..endpoint import Endpoint
from ..provider.scenarios import Scenario
from ..provider.wires import TOKENS

_TEXTS = [token.decode() for token in TOKENS]


async def measure(
    driver: Driver, endpoint: Endpoint, *, kind: str, events: int, interval: float = 0.0
) -> dict[str, float]:
    """Read one long answer.

    Args:
        kind: ``burst``, ``varied``, ``chunks`` or ``spaced``.
        interval: seconds between two events, for ``spaced``.
    """
    async with driver.open_client(endpoint.url(), endpoint.ca_file) as client:
        for _ in range(3):
            await client.consume(str(Scenario(kind="tiny")), lambda piece: None)
        pieces: list[str | bytes] = []
        scenario = str(Scenario(kind=kind, events=events, interval=interval))
        begin, began = time.process_time(), time.perf_counter()
        await client.consume(scenario, pieces.append)
        cpu, wall = time.process_time() - begin, time.perf_counter() - began
    if driver.pieces == "text":
        expect_text(pieces, events)
    return {
        "us": cpu / events * 1e6,
        "wall_us": wall / events * 1e6,
        "pieces_per_event": len(pieces) / events,
    }


def expect_text(pieces: list[str | bytes], events: int) -> None:
    """Check that the whole answer came.

    Raises:
        RuntimeError: it did not; the driver or the measure is broken.
    """
    if "".join(pieces) != "".join(itertools.islice(itertools.cycle(_TEXTS), events)):
        raise RuntimeError(f"the answer is not the one of {events} events")
