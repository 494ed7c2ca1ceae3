"""Token counts of the chat wire, made disjoint."""

from __future__ import annotations

from typing import Any

from ...model.chunks import TokenUsage


def _count(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def _details(usage: dict[str, Any], name: str) -> dict[str, Any]:
    details = usage.get(name)
    return details if isinstance(details, dict) else {}


def token_usage(usage: Any) -> TokenUsage | None:
    """The counts of a ``usage`` object; None where it holds none.

    ``prompt_tokens`` includes what caches served and took (OpenAI, "Prompt caching"), so both are
    subtracted. Cache reads stand in ``prompt_tokens_details.cached_tokens``, else in
    ``prompt_cache_hit_tokens`` (DeepSeek), else in ``cached_tokens`` (Moonshot). xAI leaves reasoning
    out of ``completion_tokens`` but not out of ``total_tokens``, which gives it away.
    """
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None and completion is None:
        return None
    prompt, completion = prompt or 0, completion or 0
    prompt_details = _details(usage, "prompt_tokens_details")
    read = _count(prompt_details.get("cached_tokens"))
    for name in ("prompt_cache_hit_tokens", "cached_tokens"):
        if read is None:
            read = _count(usage.get(name))
    write = _count(prompt_details.get("cache_write_tokens"))
    if write is None:
        write = _count(usage.get("cache_creation_input_tokens"))  # gateways to Claude
    cached = (read or 0) + (write or 0)
    reasoning = _count(_details(usage, "completion_tokens_details").get("reasoning_tokens"))
    if reasoning is None:
        reasoning = _count(usage.get("reasoning_tokens"))
    if reasoning and _count(usage.get("total_tokens")) == prompt + completion + reasoning:
        completion += reasoning
    return TokenUsage(
        # A server that reports more cached than prompt tokens counts them apart already.
        input_tokens=prompt - cached if cached <= prompt else prompt,
        output_tokens=completion,
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=reasoning,
    )


def usage_facts(usage: Any) -> dict[str, object]:
    """What a server tells beside the counts, such as ``cost`` (OpenRouter) or ``queue_time`` (Groq)."""
    if not isinstance(usage, dict):
        return {}
    return {
        name: value for name, value in usage.items() if type(value) in (int, float) and "token" not in name
    }
