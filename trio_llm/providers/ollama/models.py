"""Models of an Ollama server, and how much they shall think (Ollama docs, "Thinking")."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from ...model.catalogue import ModelContext, ModelReasoning, ReasoningEffort, ResolvedModelInfo
from ...model.identifiers import ReasoningEffortId

THINK: Final[dict[str, bool | str]] = {
    "off": False,
    "on": True,
    "low": "low",
    "medium": "medium",
    "high": "high",
}
"""The wire's ``think``, by effort. Most models know off and on alone, gpt-oss the three levels alone."""


def _efforts(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


def _known(instance: object, attribute: attrs.Attribute[tuple[str, ...]], value: tuple[str, ...]) -> None:
    unknown = [effort for effort in value if effort not in THINK]
    if unknown:
        raise ValueError(f"{attribute.name} are of {', '.join(THINK)}, not {unknown[0]!r}")


@attrs.frozen
class OllamaModel:
    """A model as the catalogue lists it. The defaults are those of a model that is not listed.

    Attributes:
        id: such as ``qwen3:8b``.
        context_window: in tokens, input and output together: what the server gives it, not what the model
            could take (see ``num_ctx``).
        efforts: which of ``off``, ``on``, ``low``, ``medium`` and ``high`` it takes; none for a model that
            does not think.
        default_effort: None keeps the server's own default.
        input_modalities: None means unknown.

    Raises:
        ValueError: an effort that the wire does not have.
    """

    id: str
    name: str | None = None
    context_window: int | None = attrs.field(default=None, kw_only=True)
    efforts: tuple[str, ...] = attrs.field(
        default=tuple(THINK), converter=_efforts, validator=_known, kw_only=True
    )
    default_effort: str | None = attrs.field(default=None, kw_only=True)
    input_modalities: tuple[str, ...] | None = attrs.field(default=None, kw_only=True)
    description: str | None = attrs.field(default=None, kw_only=True)


def find_model(models: Iterable[OllamaModel], id: str) -> OllamaModel:
    """The listed model, with or without the tag ``latest``; else one of which nothing is known."""
    wanted = id.removesuffix(":latest")
    for model in models:
        if model.id.removesuffix(":latest") == wanted:
            return attrs.evolve(model, id=id)
    return OllamaModel(id)


def resolved(provider: str, model: OllamaModel) -> ResolvedModelInfo:
    """What is known of a model, as the runtime asks for it."""
    reasoning = None
    if model.efforts:
        efforts = tuple(ReasoningEffort(ReasoningEffortId(id), id.capitalize()) for id in model.efforts)
        default = model.default_effort
        reasoning = ModelReasoning(efforts, None if default is None else ReasoningEffortId(default))
    return ResolvedModelInfo(
        provider=provider,
        id=model.id,
        name=model.name or model.id,
        description=model.description,
        input_modalities=model.input_modalities,
        context=None if model.context_window is None else ModelContext(model.context_window),
        reasoning=reasoning,
    )
