"""A model as the catalogue of any wire lists it."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from ..model.catalogue import ModelContext, ModelReasoning, ReasoningEffort, ResolvedModelInfo
from ..model.identifiers import ReasoningEffortId


@attrs.frozen
class ListedModel:
    """What every wire's models have; each wire adds what its requests depend on.

    Attributes:
        context_window: in tokens, input and output together.
        max_output_tokens: the most that one answer may have.
        default_effort: None keeps the provider's own default.
        input_modalities: such as ``("text", "image")``; None means unknown.
    """

    id: str
    name: str | None = None
    context_window: int | None = attrs.field(default=None, kw_only=True)
    max_output_tokens: int | None = attrs.field(default=None, kw_only=True)
    default_effort: str | None = attrs.field(default=None, kw_only=True)
    input_modalities: tuple[str, ...] | None = attrs.field(default=None, kw_only=True)
    description: str | None = attrs.field(default=None, kw_only=True)


def model_info(
    provider: str,
    model: ListedModel,
    efforts: Iterable[str],
    default_effort: str | None,
    default_max_tokens: int | None = None,
) -> ResolvedModelInfo:
    """What is known of a model, as the runtime asks for it.

    Args:
        efforts: the ids on offer, in order; none for a model that does not reason.
        default_max_tokens: what the adapter supplies where a request sets no limit.
    """
    offered = [ReasoningEffort(ReasoningEffortId(id), id.capitalize()) for id in efforts]
    default = None if default_effort is None else ReasoningEffortId(default_effort)
    return ResolvedModelInfo(
        provider=provider,
        id=model.id,
        name=model.name or model.id,
        description=model.description,
        input_modalities=model.input_modalities,
        context=None if model.context_window is None else ModelContext(model.context_window),
        default_max_tokens=default_max_tokens,
        reasoning=ModelReasoning(offered, default) if offered else None,
        max_output_tokens=model.max_output_tokens,
    )
