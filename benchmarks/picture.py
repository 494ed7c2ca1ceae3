"""The results as an SVG picture, written by hand: one small logarithmic bar chart per figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from .harness import Results

_CHARTS = (
    ("burst", "us", "CPU per event, burst (us)"),
    ("chunks", "us", "CPU per event, one HTTP chunk each (us)"),
    ("request", "us", "CPU per request (us)"),
    ("streams-200", "lag_p99_ms", "200 streams: delivery lag p99 (ms)"),
    ("cancel-flooded-http-scope", "returned_p50_ms", "cancel in a flood, p50 (ms)"),
    ("import", "import_ms", "import (ms)"),
)
_COLOURS = {"library": "#c2410c", "floor": "#94a3b8", "peer": "#1d4ed8"}
_WIDTH, _BAR, _LABEL, _CHART_GAP = 760, 20, 150, 46


def _chart(title: str, bars: Sequence[tuple[str, str, float]], top: float) -> list[str]:
    """One chart; each bar is (driver, kind, value > 0)."""
    low = 10 ** math.floor(math.log10(min(value for *_, value in bars)))
    high = max(value for *_, value in bars) * 1.02
    room = _WIDTH - _LABEL - 90
    lines = [f'<text x="10" y="{top - 8:.0f}" class="title">{escape(title)}</text>']
    for row, (driver, kind, value) in enumerate(bars):
        y = top + row * _BAR
        length = max(2.0, room * math.log10(value / low) / math.log10(high / low)) if high > low else room
        lines += [
            f'<text x="{_LABEL - 8}" y="{y + 14:.0f}" text-anchor="end">{escape(driver)}</text>',
            f'<rect x="{_LABEL}" y="{y + 3:.0f}" width="{length:.1f}" height="{_BAR - 6}"'
            f' fill="{_COLOURS[kind]}"/>',
            f'<text x="{_LABEL + length + 6:.1f}" y="{y + 14:.0f}">{value:,.3g}</text>',
        ]
    return lines


def write_svg(path: Path, results: Results, kinds: dict[str, str]) -> None:
    """Draw the charts that the results have figures for.

    Args:
        kinds: each driver's kind, in the order to draw them.
    """
    lines: list[str] = []
    top = 40.0
    for job, figure, title in _CHARTS:
        found = ((name, results.get(job, {}).get(name, {}).get("figures", {})) for name in kinds)
        bars = [(name, kinds[name], figures[figure]) for name, figures in found if figures.get(figure, 0) > 0]
        if bars:
            lines += _chart(title, bars, top)
            top += len(bars) * _BAR + _CHART_GAP
    style = "text{font:12px sans-serif;fill:#1e293b}.title{font-weight:bold}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top - 20:.0f}">',
        f"<style>{style}</style>",
        '<rect width="100%" height="100%" fill="white"/>',
        *lines,
        "</svg>\n",
    ]
    path.write_text("\n".join(parts))
