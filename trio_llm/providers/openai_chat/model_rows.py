"""The rows of "List models", as each server of the chat wire fills them.

OpenAI's own say no more than the id. What others add: OpenRouter ``context_length``, ``name`` and
``top_provider``; Together and Fireworks ``context_length``; Groq ``context_window`` and
``max_completion_tokens``; Mistral ``max_context_length`` and ``capabilities``; vLLM ``max_model_len``.
"""

from __future__ import annotations

from typing import Any, Final

from ...model.catalogue import DiscoveredModel
from ..model_list import capacity, text

_WINDOWS: Final = ("context_length", "context_window", "max_model_len", "max_context_length")


def read_row(row: dict[str, Any]) -> DiscoveredModel | None:
    """One row; None for one without an id, and for a model that the server says is none to chat with."""
    id = text(row.get("id"))
    if id is None or _cannot_chat(row):
        return None
    top = _object(row.get("top_provider"))
    return DiscoveredModel(
        id,
        text(row.get("display_name")) or text(row.get("name")),
        next((size for name in _WINDOWS if (size := capacity(row.get(name))) is not None), None),
        capacity(row.get("max_completion_tokens")) or capacity(top.get("max_completion_tokens")),
    )


def _cannot_chat(row: dict[str, Any]) -> bool:
    return False in (row.get("supports_chat"), _object(row.get("capabilities")).get("completion_chat"))


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
