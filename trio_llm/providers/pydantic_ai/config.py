"""Where and how a route of the library-backed adapter is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import attrs

from ...model.catalogue import ModelContext, ModelReasoning, ReasoningEffort, ResolvedModelInfo
from ...model.identifiers import ReasoningEffortId
from ...model.policy import RetryPolicy, Timeouts
from ...transport.credentials import Credential, protect
from ...transport.urls import url_repr
from ..http_adapter import header_pairs, token_count

THINKING: Final[Mapping[str, bool | str]] = {
    "off": False,
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
"""Effort ids and what the library calls them (its setting ``thinking``)."""


def _efforts(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


def _known_efforts(
    instance: object, attribute: attrs.Attribute[tuple[str, ...]], value: tuple[str, ...]
) -> None:
    unknown = [effort for effort in value if effort not in THINKING]
    if unknown:
        raise ValueError(f"the library knows no effort {unknown[0]!r}, only {', '.join(THINKING)}")


def _modalities(value: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


@attrs.frozen
class PydanticAiModel:
    """A model as the catalogue lists it. The library itself has no catalogue with these facts.

    Attributes:
        efforts: the efforts that the model offers, out of ``off``, ``minimal``, ``low``, ``medium``,
            ``high``, ``xhigh`` and ``max``. The library moves one that a model lacks to its nearest, unasked;
            so an effort that is not declared here is refused.
        default_effort: None keeps the provider's own.

    Raises:
        ValueError: an effort that the library does not know, a default that is not offered, a count that is
            not positive.
    """

    id: str
    name: str | None = None
    description: str | None = None
    context_window: int | None = attrs.field(default=None, validator=token_count)
    default_max_tokens: int | None = attrs.field(default=None, validator=token_count)
    input_modalities: tuple[str, ...] | None = attrs.field(default=None, converter=_modalities)
    efforts: tuple[str, ...] = attrs.field(default=(), converter=_efforts, validator=_known_efforts)
    default_effort: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.default_effort is not None and self.default_effort not in self.efforts:
            raise ValueError(f"the default effort {self.default_effort!r} is not offered")

    def resolved(self, provider: str) -> ResolvedModelInfo:
        """The model in the catalogue's own words."""
        reasoning = None
        if self.efforts:
            reasoning = ModelReasoning(
                [ReasoningEffort(ReasoningEffortId(effort), effort.capitalize()) for effort in self.efforts],
                None if self.default_effort is None else ReasoningEffortId(self.default_effort),
            )
        return ResolvedModelInfo(
            provider,
            self.id,
            self.name or self.id,
            self.description,
            self.input_modalities,
            None if self.context_window is None else ModelContext(self.context_window),
            self.default_max_tokens,
            reasoning,
        )


def _models(value: Iterable[PydanticAiModel | str]) -> tuple[PydanticAiModel, ...]:
    return tuple(PydanticAiModel(model) if isinstance(model, str) else model for model in value)


@attrs.frozen(kw_only=True)
class PydanticAiConfig:
    """One route: which of the library's providers serves it, and how that is reached.

    Attributes:
        provider: the library's own name of the provider, such as ``openai-chat``, ``anthropic`` or ``groq``;
            one of :data:`~.library.PROVIDERS`.
        api_key: None takes the environment variable that :data:`~.library.PROVIDERS` names. There is no other
            place: what the library and its SDKs find in the environment by themselves is never sent.
        base_url: a prefix; None takes the provider's own address, never one of the environment.
        headers: sent with every request; not those that the wire owns (credential, content type, user agent).
        models: what the catalogue lists, :class:`PydanticAiModel` or ids.
        timeouts: the phase clocks, where a call does not override them.
        retry_policy: captured at registration; None is the normal policy.
    """

    provider: str = attrs.field(validator=attrs.validators.min_len(1))
    api_key: Credential | None = attrs.field(default=None, converter=protect)
    base_url: str | None = attrs.field(default=None, repr=url_repr)
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=header_pairs, repr=False)
    models: tuple[PydanticAiModel, ...] = attrs.field(default=(), converter=_models)
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    retry_policy: RetryPolicy | None = None

    def model(self, id: str) -> PydanticAiModel:
        """What is known of a model; of one that is not listed, its id."""
        return next((model for model in self.models if model.id == id), PydanticAiModel(id))


Routes: TypeAlias = Mapping[str, PydanticAiConfig]
"""Route name to configuration."""

RoutesSource: TypeAlias = Routes | PydanticAiConfig | Callable[[], Routes | PydanticAiConfig]
"""The routes, one configuration for whatever the route is called, or what gives either at present.

It is asked once for each call.
"""
