"""The rows of "List models", as each server of the chat wire fills them.

OpenAI's own say no more than the id. What others add: OpenRouter ``context_length``, ``name``,
``top_provider``, ``architecture`` and ``supported_parameters``; Together ``context_length``; Fireworks that
and ``supports_image_input`` and ``supports_tools``; Groq ``context_window`` and ``max_completion_tokens``;
Mistral ``max_context_length`` and ``capabilities``; vLLM ``max_model_len``. None of them comes in pages.
"""

from __future__ import annotations

from typing import Any, Final

from ...model.catalogue import DiscoveredModel
from ..model_list import capacity, flag, text

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
        _modalities(row),
        _ability(row, "tools", "function_calling", "supports_tools"),
        _ability(row, "reasoning", "reasoning", "supports_reasoning"),
    )


def _cannot_chat(row: dict[str, Any]) -> bool:
    return False in (row.get("supports_chat"), _object(row.get("capabilities")).get("completion_chat"))


def _modalities(row: dict[str, Any]) -> tuple[str, ...] | None:
    listed = _object(row.get("architecture")).get("input_modalities")
    if isinstance(listed, list):
        return tuple(word for word in listed if text(word)) or None
    sees = _ability(row, None, "vision", "supports_image_input")
    return None if sees is None else ("text", "image") if sees else ("text",)


def _ability(row: dict[str, Any], parameter: str | None, capability: str, field: str) -> bool | None:
    """What a row says in one of three ways: a list of parameters, a table of capabilities, or a field."""
    parameters = row.get("supported_parameters")
    if parameter is not None and isinstance(parameters, list):
        return parameter in parameters
    said = flag(_object(row.get("capabilities")).get(capability))
    return flag(row.get(field)) if said is None else said


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
