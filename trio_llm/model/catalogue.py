"""Catalogue values: which providers and models there are. Catalogues advise; they forbid nothing.

These are plain data. What is wrong with one is said by the runtime that is handed it, with a code
(INVALID_MODEL_INFO and its kin), not by construction: a catalogue may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from .identifiers import ReasoningEffortId
from .signal import AbortSignal


def _optional_tuple(value: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


@attrs.frozen
class ProviderInfo:
    """A provider: its route's name, and a name for people."""

    id: str
    name: str


@attrs.frozen
class ModelInfo:
    """A model as a list shows it.

    Attributes:
        input_modalities: such as ``("text", "image")``; None means unknown.
    """

    provider: str
    id: str
    name: str
    description: str | None = None
    input_modalities: tuple[str, ...] | None = attrs.field(default=None, converter=_optional_tuple)


@attrs.frozen
class ModelContext:
    """How much a model can take in.

    Attributes:
        context_window: in tokens, input and output together.
    """

    context_window: int


@attrs.frozen
class ReasoningEffort:
    """One effort a model offers; the id is opaque and need not be the wire's spelling."""

    id: ReasoningEffortId
    name: str
    description: str | None = None


def _efforts(value: Iterable[ReasoningEffort]) -> tuple[ReasoningEffort, ...]:
    return tuple(value)


@attrs.frozen
class ModelReasoning:
    """The efforts a model offers, in the adapter's order.

    Attributes:
        default_effort: what the adapter supplies; None keeps the provider's own default.
    """

    efforts: tuple[ReasoningEffort, ...] = attrs.field(converter=_efforts)
    default_effort: ReasoningEffortId | None = None


@attrs.frozen
class ResolvedModelInfo(ModelInfo):
    """A model with what is known of its limits.

    Attributes:
        default_max_tokens: what the adapter supplies where a request sets none.
        max_output_tokens: the most that one answer may have.
    """

    context: ModelContext | None = None
    default_max_tokens: int | None = None
    reasoning: ModelReasoning | None = None
    max_output_tokens: int | None = None


def _path(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


@attrs.frozen
class ConfigurableProvider:
    """A provider that an application's settings can set up.

    Attributes:
        settings_ns: the namespace of its settings.
        settings_path: where in that namespace they stand.
        declared: True if known only from configuration, False if shipped, None if there is no
            such distinction.
    """

    provider: str
    display_name: str
    settings_ns: str
    settings_path: tuple[str, ...] = attrs.field(converter=_path)
    declared: bool | None = None


@attrs.frozen
class ModelDiscoveryRequest:
    """Asks an endpoint which models it serves.

    Attributes:
        provider: a registered route; its adapter may answer without network.
        base_url: an endpoint to ask.
        api: which wire the endpoint speaks, where that is not clear.
        api_key: for this interrogation alone; never stored.
    """

    provider: str | None = None
    base_url: str | None = None
    api: str | None = None
    api_key: str | None = attrs.field(default=None, repr=False)
    signal: AbortSignal | None = attrs.field(default=None, eq=False)


@attrs.frozen
class DiscoveredModel:
    """A model an endpoint told of. Nothing is invented: None means that it did not say.

    Attributes:
        context_window: in tokens, input and output together.
        max_tokens: the most that one answer may have.
        input_modalities: such as ``("text", "image")``.
        tools: whether it can call tools.
        reasoning: whether it can think before it answers.
    """

    id: str
    name: str | None = None
    context_window: int | None = None
    max_tokens: int | None = None
    input_modalities: tuple[str, ...] | None = attrs.field(default=None, converter=_optional_tuple)
    tools: bool | None = None
    reasoning: bool | None = None
