"""Models of an Ollama server, and how much they shall think (Ollama docs, "Thinking")."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from ...model.catalogue import ResolvedModelInfo
from ..listed_model import ListedModel, model_info

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
class OllamaModel(ListedModel):
    """A model of this wire. The defaults are those of one that is not listed.

    Attributes:
        id: such as ``qwen3:8b``.
        context_window: in tokens, input and output together: what the server gives it, not what the model
            could take (see ``num_ctx``).
        efforts: which of ``off``, ``on``, ``low``, ``medium`` and ``high`` it takes; none for a model that
            does not think.

    Raises:
        ValueError: an effort that the wire does not have.
    """

    efforts: tuple[str, ...] = attrs.field(
        default=tuple(THINK), converter=_efforts, validator=_known, kw_only=True
    )


def find_model(models: Iterable[OllamaModel], id: str) -> OllamaModel:
    """The listed model, with or without the tag ``latest``; else one of which nothing is known."""
    wanted = id.removesuffix(":latest")
    for model in models:
        if model.id.removesuffix(":latest") == wanted:
            return attrs.evolve(model, id=id)
    return OllamaModel(id)


def resolved(provider: str, model: OllamaModel) -> ResolvedModelInfo:
    """What is known of a model, as the runtime asks for it."""
    return model_info(provider, model, model.efforts, model.default_effort)
