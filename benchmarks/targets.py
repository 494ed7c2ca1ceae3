"""What the library must reach, as ratios: absolute numbers are the machine's, ratios are the code's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Literal

from .harness import Results
from .measures.cancellation_kinds import PHASES

LIBRARY, CEILING, RAW = "library", "ceiling", "raw-socket"


class Missing(Exception):
    """A figure was not measured in this run."""


@dataclass(frozen=True)
class Figures:
    """Looks figures up in the results of a run."""

    results: Results

    def get(self, job: str, driver: str, figure: str) -> float:
        """One figure.

        Raises:
            Missing: the job did not run, or failed for that driver.
        """
        try:
            return self.results[job][driver]["figures"][figure]
        except KeyError:
            raise Missing(f"{job}/{driver}/{figure}") from None

    def ratio(self, job: str, figure: str, other: str, driver: str = LIBRARY) -> float:
        """The library's figure over another driver's: the median of the turns' ratios.

        Two turns of one round see the same machine; their ratio is steadier than that of two medians. A
        percentile is of all turns together, and who has unlike numbers of turns has no rounds to compare.
        """
        value, base = self.get(job, driver, figure), self.get(job, other, figure)
        ours, theirs = self.results[job][driver]["turns"], self.results[job][other]["turns"]
        if figure not in ours[0] or len(ours) != len(theirs):
            return value / base
        return median(mine[figure] / its[figure] for mine, its in zip(ours, theirs, strict=True))


@dataclass(frozen=True)
class Target:
    """One thing to reach.

    Attributes:
        value: computes it from the results.
        sense: whether ``limit`` is the most or the least it may be.
    """

    name: str
    limit: float
    value: Callable[[Figures], float]
    sense: Literal["most", "least"] = "most"

    def met(self, value: float) -> bool:
        """Whether a value reaches it."""
        return value <= self.limit if self.sense == "most" else value >= self.limit


def _times(name: str, limit: float, job: str, figure: str, other: str = CEILING) -> Target:
    return Target(f"{name} / {other}", limit, lambda run: run.ratio(job, figure, other))


def _cheaper(peer: str, limit: float) -> Target:
    return Target(
        f"burst, {peer} / library", limit, lambda run: run.ratio("burst", "us", LIBRARY, peer), "least"
    )


def _first_layer(run: Figures) -> float:
    """What a first layer adds to a read, less its 0.3 us a chunk, in hops."""
    added = run.get("middleware", LIBRARY, "first_layer_us")
    return (added - 0.3) / run.get("middleware", LIBRARY, "hop_us")


def _leaks(run: Figures) -> float:
    """Everything the library left behind in any job: tasks, sockets, files, connections never closed."""
    if not any("figures" in job.get(LIBRARY, {}) for job in run.results.values()):
        raise Missing("the library did not run")
    return sum(
        figure
        for job in run.results.values()
        for name, figure in job.get(LIBRARY, {}).get("figures", {}).items()
        if name.startswith(("leaked_", "never_"))
    )


def _cancellations() -> Iterable[Target]:
    for scheme in ("http", "https"):
        for phase in PHASES:
            if phase == "flooded":
                continue
            job = f"cancel-{phase}-{scheme}-scope"
            yield _times(f"cancel p50, {phase}, {scheme}", 1.5, job, "returned_p50_ms", RAW)
    for scheme in ("http", "https"):
        job = f"cancel-flooded-{scheme}-scope"
        yield _times(f"cancel p50, flooded, {scheme}", 1.5, job, "returned_p50_ms")
    yield _times("cancel p99, 50 busy streams", 1.5, "cancel-busy", "returned_p99_ms")


TARGETS = (
    _times("burst, CPU per event", 1.4, "burst", "us"),
    _cheaper("openai-sdk", 25),
    _cheaper("pi-ai", 2.5),
    _times("one HTTP chunk per event, CPU per event", 1.4, "chunks", "us"),
    _times("one HTTP chunk per event, CPU per event", 0.30, "chunks", "us", "expert"),
    _times("CPU per request", 1.3, "request", "us"),
    Target(
        "CPU per request, 200 idle / none idle",
        1.15,
        lambda run: run.get("request-200-idle", LIBRARY, "us") / run.get("request", LIBRARY, "us"),
    ),
    _times("200 streams, CPU", 1.5, "streams-200", "cpu_s"),
    _times("200 streams, lag p99", 2.0, "streams-200", "lag_p99_ms"),
    Target(
        "CPU per event, 1,000 streams / 200",
        1.3,
        lambda run: run.get("streams-1000", LIBRARY, "us") / run.get("streams-200", LIBRARY, "us"),
    ),
    _times("200 streams, peak memory", 1.3, "memory", "peak_mib"),
    _times("200 streams, memory growth", 1.3, "memory", "growth_mib"),
    Target("first pass-through layer, per read, in channel hops", 1.2, _first_layer),
    Target(
        "pass-through layer, us per chunk",
        0.3,
        lambda run: run.get("middleware", LIBRARY, "layer_per_chunk_us"),
    ),
    *_cancellations(),
    Target("import / trio + httpx + attrs", 1.3, lambda run: run.ratio("import", "import_ms", "httpx-bytes")),
    Target("leaks (tasks, sockets, files, connections)", 0, _leaks),
)
