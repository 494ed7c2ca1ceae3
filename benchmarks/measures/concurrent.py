"""Many paced streams at once: CPU, how late each event reaches the application, peak memory."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from ..drivers import Client, Driver
from ..endpoint import Endpoint
from ..provider.scenarios import Scenario
from ..statistics import percentile

_STAMP = re.compile(r"@(\d+)@")
_STAMP_BYTES = re.compile(rb"@(\d+)@")


async def measure(
    driver: Driver, endpoint: Endpoint, *, streams: int, events: int, interval: float
) -> dict[str, float]:
    """Read ``streams`` answers of ``events`` events each, one every ``interval`` seconds in each.

    The streams begin spread over one interval, so that the events come evenly.
    """
    lags: list[float] = []
    seen = _note_lags(lags, _STAMP if driver.pieces == "text" else _STAMP_BYTES)
    scenario = str(Scenario(kind="paced", events=events, interval=interval))
    async with driver.open_client(endpoint.url(), endpoint.ca_file) as client:
        await client.consume(str(Scenario(kind="tiny")), lambda piece: None)
        base = _resident()
        _reset_peak()
        begin = time.process_time()
        async with anyio.create_task_group() as group:
            for number in range(streams):
                group.start_soon(_one, client, scenario, seen, interval * number / streams)
        cpu = time.process_time() - begin
        peak = _peak()
    if len(lags) != streams * events:
        raise RuntimeError(f"{len(lags)} events came of {streams * events}")
    return {
        "cpu_s": cpu,
        "us": cpu / len(lags) * 1e6,
        "lag_p50_ms": percentile(lags, 50) * 1e3,
        "lag_p99_ms": percentile(lags, 99) * 1e3,
        "peak_mib": peak / 2**20,
        "growth_mib": (peak - base) / 2**20,
    }


async def _one(client: Client, scenario: str, seen: Callable[[object], None], delay: float) -> None:
    await anyio.sleep(delay)
    await client.consume(scenario, seen)


def _note_lags(lags: list[float], stamp: re.Pattern) -> Callable[[object], None]:
    """What notes the time since each event's stamp; events split between two reads are not expected."""

    def seen(piece: object) -> None:
        now = time.perf_counter()
        lags.extend(now - int(sent) * 1e-9 for sent in stamp.findall(piece))

    return seen


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _resident() -> int:
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")
