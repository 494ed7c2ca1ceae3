"""Token counts of the Responses API, made disjoint."""

from __future__ import annotations

from typing import Any, Final

from ...model.chunks import TokenUsage

_COUNTS: Final = frozenset(
    {"input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens"}
)


def _count(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def _details(usage: dict[str, Any], name: str) -> dict[str, Any]:
    details = usage.get(name)
    return details if isinstance(details, dict) else {}


def token_usage(usage: Any) -> TokenUsage | None:
    """The counts of a ``usage`` object; None where it holds none.

    ``input_tokens`` includes what caches served and took ("Prompt caching"), so both are subtracted;
    reasoning is inside ``output_tokens`` ("Reasoning models").
    """
    if not isinstance(usage, dict):
        return None
    taken, given = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    if taken is None and given is None:
        return None
    taken, given = taken or 0, given or 0
    details = _details(usage, "input_tokens_details")
    read, written = _count(details.get("cached_tokens")), _count(details.get("cache_write_tokens"))
    cached = (read or 0) + (written or 0)
    return TokenUsage(
        # A server that reports more cached than input tokens counts them apart already.
        input_tokens=taken - cached if cached <= taken else taken,
        output_tokens=given,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_count(_details(usage, "output_tokens_details").get("reasoning_tokens")),
    )


def usage_facts(usage: Any) -> dict[str, object]:
    """What stands beside the counts, such as xAI's ``cost_in_usd_ticks``."""
    if not isinstance(usage, dict):
        return {}
    return {name: value for name, value in usage.items() if name not in _COUNTS and value is not None}
