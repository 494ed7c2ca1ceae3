"""The catalogue: what adapters say of their models, checked before anybody relies on it."""

from __future__ import annotations

from typing import Any

from ..model import codes
from ..model.catalogue import (
    ModelContext,
    ModelInfo,
    ModelReasoning,
    ReasoningEffort,
    ResolvedModelInfo,
)
from ..model.failures import LlmError
from ..model.signal import AbortSignal
from .aborting import unless_aborted
from .registry import Route

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest count that survives JSON everywhere."""


def list_models(route: Route) -> tuple[ModelInfo, ...]:
    """What the route's adapter lists now; detached.

    Raises:
        LlmError: INVALID_CATALOG, an entry is no valid model of this provider or comes twice.
    """
    models = tuple(route.adapter.list_models(route.provider))
    seen: set[str] = set()
    for model in models:
        problem = _model_problem(model, route.provider)
        if problem is None and model.id in seen:
            problem = f"model {model.id!r} is listed twice"
        if problem is not None:
            raise LlmError(f"the catalogue of {route.provider!r}: {problem}", codes.INVALID_CATALOG)
        seen.add(model.id)
    return models


async def resolve_model(route: Route, model: str, signal: AbortSignal | None = None) -> ResolvedModelInfo:
    """What is known of a model, from one question to the adapter. Waits until the adapter is open.

    Where the adapter knows nothing, a bare entry whose name is the id: no catalogue forbids a model.

    Raises:
        LlmError: INVALID_MODEL_INFO, INVALID_MODEL_CONTEXT, INVALID_MODEL_MAX_TOKENS,
            INVALID_MODEL_REASONING; ABORTED with the signal's reason; what the adapter raised.
    """
    with route.tenancy.hold(), route.tenancy.running():
        return await ask_model(route, model, signal)


async def ask_model(route: Route, model: str, signal: AbortSignal | None) -> ResolvedModelInfo:
    """As :func:`resolve_model`, by whom the adapter is kept open for already."""

    async def ask() -> ResolvedModelInfo | None:
        await route.tenancy.ready()
        return await route.adapter.resolve_model(route.provider, model, signal)

    info = await unless_aborted(signal, ask)
    if info is None:
        return ResolvedModelInfo(route.provider, model, model)
    check_model(info, route.provider, model)
    return info


def check_model(info: ResolvedModelInfo, provider: str, model: str) -> None:
    """Check what an adapter answered.

    Raises:
        LlmError: see :func:`resolve_model`.
    """
    if not isinstance(info, ResolvedModelInfo):
        raise LlmError(f"not a ResolvedModelInfo: {info!r}", codes.INVALID_MODEL_INFO)
    problem = _model_problem(info, provider)
    if problem is None and info.id != model:
        problem = f"asked for model {model!r}, told of {info.id!r}"
    if problem is not None:
        raise LlmError(problem, codes.INVALID_MODEL_INFO)
    context = info.context
    if context is not None and not (isinstance(context, ModelContext) and _count(context.context_window)):
        raise LlmError(
            f"the context window of {model!r} is a positive count, not {context!r}",
            codes.INVALID_MODEL_CONTEXT,
        )
    for name in ("default_max_tokens", "max_output_tokens"):
        limit = getattr(info, name)
        if limit is not None and not _count(limit):
            raise LlmError(
                f"{name} of {model!r} is a positive count, not {limit!r}", codes.INVALID_MODEL_MAX_TOKENS
            )
    if info.reasoning is not None:
        problem = _reasoning_problem(info.reasoning)
        if problem is not None:
            raise LlmError(f"the efforts of {model!r}: {problem}", codes.INVALID_MODEL_REASONING)


def _count(value: object) -> bool:
    return type(value) is int and 0 < value <= MAX_SAFE_INTEGER


def _name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _optional_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def _model_problem(info: Any, provider: str) -> str | None:
    if not isinstance(info, ModelInfo):
        return f"not a ModelInfo: {info!r}"
    if info.provider != provider:
        return f"provider is {provider!r}, not {info.provider!r}"
    if not _name(info.id):
        return f"a model id is a non-empty string, not {info.id!r}"
    if not _name(info.name):
        return f"the name of {info.id!r} is a non-empty string, not {info.name!r}"
    if not _optional_text(info.description):
        return f"the description of {info.id!r} is a string, not {info.description!r}"
    if not all(_name(modality) for modality in info.input_modalities or ()):
        return f"the modalities of {info.id!r} are non-empty strings, not {info.input_modalities!r}"
    return None


def _reasoning_problem(reasoning: Any) -> str | None:
    if not isinstance(reasoning, ModelReasoning):
        return f"not a ModelReasoning: {reasoning!r}"
    if not reasoning.efforts:
        return "there is none"
    seen: set[str] = set()
    for effort in reasoning.efforts:
        if not isinstance(effort, ReasoningEffort) or not _name(effort.id) or not _name(effort.name):
            return f"an effort has an id and a name: {effort!r}"
        if not _optional_text(effort.description):
            return f"the description of {effort.id!r} is a string, not {effort.description!r}"
        if effort.id in seen:
            return f"{effort.id!r} is listed twice"
        seen.add(effort.id)
    if reasoning.default_effort is not None and reasoning.default_effort not in seen:
        return f"the default {reasoning.default_effort!r} is none of them"
    return None
