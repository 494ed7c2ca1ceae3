"""The results on the terminal and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .harness import Results
from .targets import TARGETS, Figures, Missing

_COLUMNS = (
    ("burst", "us", "burst", "us/event"),
    ("varied", "us", "varied", "us/event"),
    ("chunks", "us", "chunk each", "us/event"),
    ("spaced", "us", "read each", "us/event"),
    ("request", "us", "request", "us"),
    ("request-200-idle", "us", "200 idle", "us"),
    ("streams-200", "cpu_s", "200 str.", "CPU s"),
    ("streams-200", "lag_p50_ms", "lag p50", "ms"),
    ("streams-200", "lag_p99_ms", "lag p99", "ms"),
    ("streams-1000", "us", "1000 str.", "us/event"),
    ("streams-1000", "lag_p99_ms", "lag p99", "ms"),
    ("memory", "peak_mib", "peak", "MiB"),
    ("memory", "growth_mib", "growth", "MiB"),
    ("import", "import_ms", "import", "ms"),
)


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = map(str.rjust, rest, widths[1:])
        lines.append("  ".join((first.ljust(widths[0]), *cells)).rstrip())
    return "\n".join(lines)


def _cell(results: Results, job: str, driver: str, name: str) -> str:
    result = results[job].get(driver, {})
    return "failed" if "error" in result else _number(result.get("figures", {}).get(name))


def cost_table(results: Results, drivers: Sequence[str]) -> str:
    """CPU, lag, memory and import time, a row for each driver."""
    columns = [column for column in _COLUMNS if column[0] in results]
    rows = [["driver", *(title for *_, title, _ in columns)], ["", *(unit for *_, unit in columns)]]
    for driver in drivers:
        cells = [_cell(results, job, driver, name) for job, name, _, _ in columns]
        if any(cell != "-" for cell in cells):
            rows.append([driver, *cells])
    return _table(rows)


def cancel_table(results: Results, drivers: Sequence[str]) -> str:
    """Cancellations: a row for each kind, p50/p99 until control returned and until the provider saw it."""
    jobs = [job for job in results if job.startswith("cancel-")]
    present = [driver for driver in drivers if any(driver in results[job] for job in jobs)]
    rows = [["cancel to control returned | to close seen, p50/p99 ms", *present]]
    for job in jobs:
        cells = (_cancel_cell(results[job].get(driver, {})) for driver in present)
        rows.append([job.removeprefix("cancel-"), *cells])
    return _table(rows)


def _cancel_cell(result: dict[str, Any]) -> str:
    if "figures" not in result:
        return "failed" if "error" in result else "-"
    figures = result["figures"]
    pairs = (
        "/".join(_number(figures[f"{what}_p{percent}_ms"]) for percent in (50, 99))
        for what in ("returned", "closed")
    )
    never = figures["never_closed"]
    return " | ".join(pairs) + (f" ({never:.0f} NEVER)" if never else "")


def library_table(results: Results, job: str, title: str) -> str:
    """The figures of a job that only the library takes part in, a row for each."""
    figures = results[job].get("library", {}).get("figures", {})
    rows = [[title, ""]]
    rows += [
        [name.replace("_", " "), _number(value)] for name, value in figures.items() if "leaked" not in name
    ]
    return _table(rows)


def leak_lines(results: Results) -> list[str]:
    """Every leak of every driver."""
    return [
        f"{driver} {name.replace('_', ' ')}: {value:.0f} in {job}"
        for job, by_driver in results.items()
        for driver, result in by_driver.items()
        for name, value in result.get("figures", {}).items()
        if name.startswith(("leaked_", "never_")) and value
    ]


def error_lines(results: Results) -> list[str]:
    """The first line of every error."""
    return [
        f"{driver} failed in {job}: {result['error'].splitlines()[0]}"
        for job, by_driver in results.items()
        for driver, result in by_driver.items()
        if "error" in result
    ]


def target_rows(results: Results) -> list[dict[str, Any]]:
    """Each target with what was measured; those this run could not measure are left out."""
    rows = []
    for target in TARGETS:
        try:
            value = target.value(Figures(results))
        except (Missing, ZeroDivisionError):
            continue
        rows.append(
            {
                "target": target.name,
                "limit": target.limit,
                "sense": target.sense,
                "measured": value,
                "met": target.met(value),
            }
        )
    return rows


def target_table(results: Results) -> str:
    """The targets: limit, measured, met or not."""
    rows = [["target", "limit", "measured", ""]]
    for row in target_rows(results):
        sign = "<=" if row["sense"] == "most" else ">="
        limit, measured = f"{sign} {row['limit']:g}", f"{row['measured']:.2f}"
        rows.append([row["target"], limit, measured, "met" if row["met"] else "NOT MET"])
    return _table(rows)


def text(results: Results, drivers: Sequence[str]) -> str:
    """Everything for the terminal."""
    parts = [cost_table(results, drivers)]
    if any(job.startswith("cancel-") for job in results):
        parts.append(cancel_table(results, drivers))
    if "middleware" in results:
        parts.append(library_table(results, "middleware", "middleware, CPU us a read"))
    if "tool-loop" in results:
        parts.append(library_table(results, "tool-loop", "tool loop, for each turn (us: CPU)"))
    parts += ["\n".join(lines) for lines in (leak_lines(results), error_lines(results)) if lines]
    parts.append(target_table(results))
    return "\n\n".join(parts)


def write_json(path: Path, results: Results, circumstances: dict[str, Any]) -> None:
    """All figures and every turn's own, with the targets and the circumstances.

    It is written anew after each job, and whole at any time.
    """
    document = {"environment": circumstances, "targets": target_rows(results), "results": results}
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(document, indent=1))
    unfinished.replace(path)


def read_json(path: Path) -> Results:
    """The results that :func:`write_json` wrote."""
    return json.loads(path.read_text())["results"]
