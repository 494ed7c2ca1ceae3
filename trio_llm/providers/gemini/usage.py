"""Token counts of ``usageMetadata``, which overlap, as disjoint ones."""

from __future__ import annotations

from typing import Any, Final

from ...model.chunks import TokenUsage

_COUNTS: Final = frozenset(
    {
        "promptTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
        "cachedContentTokenCount",
        "totalTokenCount",
    }
)


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def has_counts(usage: dict[str, Any]) -> bool:
    """Whether :func:`token_usage` finds any."""
    return any(
        _count(usage.get(name)) is not None
        for name in ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    )


def token_usage(usage: dict[str, Any]) -> TokenUsage:
    """The counts of one ``usageMetadata``.

    The prompt includes what came from a cache; what the provider's own tools brought in is no part of it.
    Thoughts are no part of the candidates ("GenerateContentResponse", "UsageMetadata").
    """
    prompt, shown = _count(usage.get("promptTokenCount")), _count(usage.get("candidatesTokenCount"))
    thoughts, cached = _count(usage.get("thoughtsTokenCount")), _count(usage.get("cachedContentTokenCount"))
    tools = _count(usage.get("toolUsePromptTokenCount")) or 0
    return TokenUsage(
        input_tokens=max((prompt or 0) - (cached or 0), 0) + tools,
        output_tokens=(shown or 0) + (thoughts or 0),
        cache_read_tokens=cached,
        reasoning_tokens=thoughts,
    )


def usage_facts(usage: dict[str, Any]) -> dict[str, object]:
    """What stands beside the counts: tiers, modalities, and how many tokens tools brought in."""
    return {name: value for name, value in usage.items() if name not in _COUNTS}
