"""Token counts of the Messages API, which are disjoint already."""

from __future__ import annotations

from typing import Any, Final

from ...model.chunks import TokenUsage

_COUNTS: Final = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "output_tokens_details",
    }
)


def _count(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def merge_usage(known: dict[str, Any], usage: Any) -> bool:
    """Take the counts of an event into ``known``; whether there were any.

    Counts are cumulative ("Streaming messages"), so the last one holds; null takes nothing back.
    """
    if not isinstance(usage, dict):
        return False
    news = {name: value for name, value in usage.items() if value is not None}
    known.update(news)
    return bool(news)


def token_usage(usage: dict[str, Any]) -> TokenUsage | None:
    """The counts of merged usage; None where it holds none.

    ``input_tokens`` is what no cache served and none took ("Prompt caching", "Tracking cache performance").
    """
    taken, given = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    if taken is None and given is None:
        return None
    details = usage.get("output_tokens_details")
    return TokenUsage(
        input_tokens=taken or 0,
        output_tokens=given or 0,
        cache_read_tokens=_count(usage.get("cache_read_input_tokens")),
        cache_write_tokens=_count(usage.get("cache_creation_input_tokens")),
        reasoning_tokens=_count(details.get("thinking_tokens")) if isinstance(details, dict) else None,
    )


def usage_facts(usage: dict[str, Any]) -> dict[str, object]:
    """What stands beside the counts: service tier, server tools, cache lifetimes, iterations."""
    return {name: value for name, value in usage.items() if name not in _COUNTS}
