"""The few statistics that are shown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile; NaN of nothing."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[min(len(ordered) - 1, max(0, math.ceil(len(ordered) * percent / 100) - 1))]


def summary(results: Sequence[dict[str, float | list[float]]]) -> dict[str, float]:
    """One figure of each kind over some runs.

    A number becomes its median; what leaked, or never closed, its sum. A list is pooled, and gives
    its 50th and 99th percentile (``x_ms`` becomes ``x_p50_ms`` and ``x_p99_ms``) and a count.
    """
    figures: dict[str, float] = {}
    for name, first in results[0].items():
        values = [result[name] for result in results]
        if isinstance(first, list):
            pooled = [value for run in values for value in run]
            stem, _, unit = name.rpartition("_")
            figures[f"{stem}_count"] = len(pooled)
            for percent in (50, 99):
                figures[f"{stem}_p{percent}_{unit}"] = percentile(pooled, percent)
        elif name.startswith(("leaked_", "never_")):
            figures[name] = sum(values)
        else:
            figures[name] = statistics.median(values)
    return figures
