"""The list of what is measured: which measure, how much of it, by which drivers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .drivers import DRIVERS, Driver
from .measures.cancellation_kinds import PHASES, WAYS

_ESSENTIAL = frozenset({"raw-socket", "ceiling", "library"})
_OURS = frozenset(driver.name for driver in DRIVERS.values() if driver.kind != "peer")
_PEERS = DRIVERS.keys() - _OURS
_TRIO_PEERS = frozenset({"openai-sdk", "anthropic-sdk", "pydantic-ai"})
_PEER_TURNS = 3
"""Peers are far from every target, and slow: they have as many turns, or a few more, over the rounds."""


@dataclass(frozen=True)
class Job:
    """One line of the plan.

    Attributes:
        key: names it in the results and on the command line.
        measure: a module of ``benchmarks.measures``.
        quick, full: its parameters in either mode.
        rounds: how many turns each driver gets, in quick and in full mode.
        divided: the parameter that a heavy driver gets less of.
        drivers: who takes part; None means everybody.
        quick_drivers: the same in quick mode.
        fresh: each turn is in a new worker (what the process did before would show).
    """

    key: str
    measure: str
    quick: dict[str, Any]
    full: dict[str, Any]
    rounds: tuple[int, int]
    divided: str | None = None
    drivers: frozenset[str] | None = None
    quick_drivers: frozenset[str] | None = field(default=None)
    fresh: bool = False

    def takes(self, driver: Driver, *, full: bool) -> bool:
        """Whether a driver takes part."""
        if driver.measures is not None and self.measure not in driver.measures:
            return False
        allowed = [self.drivers] if full else [self.drivers, self.quick_drivers]
        return all(names is None or driver.name in names for names in allowed)

    def has_turn(self, driver: Driver, number: int, *, full: bool) -> bool:
        """Whether a driver that takes part has a turn in the round of this number."""
        return driver.kind != "peer" or number % max(1, self.rounds[full] // _PEER_TURNS) == 0

    def params(self, driver: Driver, *, full: bool) -> dict[str, Any]:
        """The parameters for a driver."""
        params = dict(self.full if full else self.quick)
        if self.divided is not None:
            params[self.divided] = max(10, params[self.divided] // driver.heavy)
        if self.key == "spaced" and driver.heavy > 1:
            params["interval"] = 0.003  # it must have done with one event before the next one comes
        return params


def _throughput() -> list[Job]:
    quick, full = {"events": 10_000}, {"events": 60_000}
    return [
        Job(kind, "throughput", {"kind": kind, **quick}, {"kind": kind, **full}, (5, 11), "events")
        for kind in ("burst", "varied", "chunks")
    ] + [
        Job(
            "spaced",
            "throughput",
            {"kind": "spaced", "events": 500, "interval": 0.0005},
            {"kind": "spaced", "events": 1000, "interval": 0.0005},
            (3, 9),
            "events",
        )
    ]


def _requests() -> list[Job]:
    return [
        Job("request", "requests", {"requests": 200}, {"requests": 1000}, (5, 15), "requests"),
        Job(
            "request-200-idle",
            "requests",
            {"requests": 200, "idle": 200},
            {"requests": 200, "idle": 200},
            (3, 5),
            drivers=_ESSENTIAL | {"expert"},
            quick_drivers=_ESSENTIAL,
        ),
    ]


def _streams() -> list[Job]:
    paced_200 = {"streams": 200, "interval": 0.02}
    paced_1000 = {"streams": 1000, "interval": 0.1}
    few, many = {"events": 20}, {"events": 50}
    quick_200, full_200 = paced_200 | few, paced_200 | many
    quick_1000, full_1000 = paced_1000 | few, paced_1000 | many
    return [
        Job("streams-200", "concurrent", quick_200, full_200, (3, 6), quick_drivers=_ESSENTIAL),
        Job("streams-1000", "concurrent", quick_1000, full_1000, (1, 5), drivers=_ESSENTIAL),
        Job(
            "memory",
            "concurrent",
            quick_200,
            quick_200,
            (2, 3),
            drivers=_OURS | _TRIO_PEERS,
            quick_drivers=_ESSENTIAL,
            fresh=True,
        ),
    ]


def _cancelled(phase: str, way: str, scheme: str) -> frozenset[str]:
    """Who is cancelled like that.

    The peers take most of the time. What TLS changes shows when a handshake is cancelled; in a flood those
    under asyncio need a fifth of a second for each cancel.
    """
    if way == "abort":
        return frozenset({"library"})
    if way == "leave":
        return _ESSENTIAL
    if way == "deadline":
        return _ESSENTIAL if phase == "flooded" or scheme == "https" else _ESSENTIAL | _TRIO_PEERS
    if phase == "connecting":
        return _OURS | _PEERS
    if scheme == "https":
        return _OURS
    return _OURS | _TRIO_PEERS if phase == "flooded" else _OURS | _PEERS


def _cancellations() -> list[Job]:
    jobs = []
    for way in WAYS:
        for phase in PHASES:
            if way == "leave" and phase not in ("flowing", "flooded"):
                continue  # only who has received something can leave the loop over it
            for scheme in ("http", "https"):
                params = {"phase": phase, "way": way, "scheme": scheme}
                jobs.append(
                    Job(
                        f"cancel-{phase}-{scheme}-{way}",
                        "cancellation",
                        params | {"trials": 15},
                        params | {"trials": 100},
                        (2, 5),
                        drivers=_cancelled(phase, way, scheme),
                        quick_drivers=_ESSENTIAL if way == "scope" or scheme == "http" else frozenset(),
                    )
                )
    busy = {"phase": "flowing", "busy": 50}
    jobs.append(
        Job(
            "cancel-busy",
            "cancellation",
            busy | {"trials": 30},
            busy | {"trials": 100},
            (3, 5),
            drivers=_OURS | {"anthropic-sdk"},  # the other peers cannot keep up with the busy streams
            quick_drivers=_ESSENTIAL,
        )
    )
    return jobs


JOBS = {
    job.key: job
    for job in (
        *_throughput(),
        *_requests(),
        *_streams(),
        Job("import", "startup", {}, {}, (15, 21)),
        Job(
            "middleware",
            "middleware",
            {"reads": 2000, "rounds": 5},
            {"reads": 10_000, "rounds": 5},
            (1, 3),
            drivers=frozenset({"library"}),
        ),
        Job(
            "tool-loop",
            "tool_loop",
            {"turns": 20, "result_size": 2000, "loops": 5},
            {"turns": 20, "result_size": 2000, "loops": 25},
            (1, 3),
            drivers=frozenset({"library"}),
        ),
        *_cancellations(),
    )
}
"""Everything, in the order it is run and shown."""
