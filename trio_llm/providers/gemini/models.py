"""Gemini models and how they think (Gemini API docs, "Gemini models", "Thinking")."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Literal

import attrs

from ...model.catalogue import ResolvedModelInfo
from ..listed_model import ListedModel, model_info

OFF: Final = "off"
"""The effort that switches thinking off, where a model allows it."""

LEVELS: Final = ("minimal", "low", "medium", "high", "xhigh")
"""Every level that the wire knows."""

BUDGETS: Final = {OFF: 0, "low": 1_024, "medium": 8_192, "high": 24_576}
"""How many tokens a model before Gemini 3 may think, by effort."""

_UNSIGNED: Final = re.compile(r"(?:models/)?(?:gemini-[12]\b|gemma)")


@attrs.frozen
class GeminiModel(ListedModel):
    """A model of this wire. The defaults are those of one that is not listed.

    Attributes:
        thinking: whether an effort is asked for as a ``level``, or as a ``budget`` of tokens.
        efforts: which levels, or which of ``off``, ``low``, ``medium`` and ``high``, it takes; none for a
            model that does not think.
        thinks: whether it can be asked for its thoughts without an effort; a model that does not think
            refuses that.
    """

    thinking: Literal["level", "budget"] = attrs.field(default="level", kw_only=True)
    efforts: tuple[str, ...] = attrs.field(default=LEVELS, converter=tuple[str, ...], kw_only=True)
    thinks: bool = attrs.field(default=False, kw_only=True)

    @property
    def wants_signatures(self) -> bool:
        """Whether it refuses a call without a signature in the present turn, as Gemini 3 and later do."""
        return _UNSIGNED.match(self.id) is None


def find_model(models: Iterable[GeminiModel], id: str) -> GeminiModel:
    """The listed model, with or without ``models/``; else one of which nothing is known."""
    wanted = id.removeprefix("models/")
    for model in models:
        if model.id.removeprefix("models/") == wanted:
            return attrs.evolve(model, id=id)
    return GeminiModel(id)


def resolved(provider: str, model: GeminiModel) -> ResolvedModelInfo:
    """What is known of a model, as the runtime asks for it."""
    return model_info(provider, model, model.efforts, model.default_effort)


def thinking_config(effort: str | None, model: GeminiModel, *, include_thoughts: bool) -> dict[str, Any]:
    """The ``thinkingConfig`` for an effort that the model offers; empty where nothing is to be said."""
    if effort is None:
        return {"includeThoughts": True} if include_thoughts and model.thinks else {}
    config: dict[str, Any] = (
        {"thinkingLevel": effort.upper()}
        if model.thinking == "level"
        else {"thinkingBudget": BUDGETS[effort]}
    )
    if include_thoughts and effort != OFF:
        config["includeThoughts"] = True
    return config


def _gemini(id: str, name: str, *efforts: str, thinking: Literal["level", "budget"] = "level") -> GeminiModel:
    return GeminiModel(
        id,
        name,
        context_window=1_048_576,
        thinking=thinking,
        efforts=efforts,
        thinks=True,
        input_modalities=("text", "image", "audio", "video", "pdf"),
    )


GEMINI_MODELS: Final = (
    _gemini("gemini-3.8-flash", "Gemini 3.8 Flash", "low", "medium", "high"),
    _gemini("gemini-3.1-pro-preview", "Gemini 3.1 Pro", "low", "medium", "high"),
    _gemini("gemini-3-flash-preview", "Gemini 3 Flash", "minimal", "low", "medium", "high"),
    _gemini("gemini-2.5-pro", "Gemini 2.5 Pro", "low", "medium", "high", thinking="budget"),
    _gemini("gemini-2.5-flash", "Gemini 2.5 Flash", *BUDGETS, thinking="budget"),
    _gemini("gemini-2.5-flash-lite", "Gemini 2.5 Flash-Lite", *BUDGETS, thinking="budget"),
)
"""Models that the provider lists; ``discover`` asks for all of them."""
