"""Discovery: asking an endpoint which models it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from ..model import codes
from ..model.catalogue import DiscoveredModel, ModelDiscoveryRequest, ModelInfo, ResolvedModelInfo
from ..model.failures import LlmError
from .aborting import unless_aborted
from .catalogue import list_models
from .registry import Registry
from .shelf import Shelf
from .topology import Handle

Discover: TypeAlias = Callable[[ModelDiscoveryRequest], Awaitable[Iterable[DiscoveredModel]]]
"""Asks an endpoint; raises LlmError DISCOVERY_FAILED or DISCOVERY_UNSUPPORTED. Keeps no key."""


class Discovery:
    """One way to ask for each namespace of settings."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._shelf: Shelf[Discover] = Shelf(codes.DUPLICATE_DISCOVERY, lambda: None)

    def register(self, namespace: str, discover: Discover) -> Handle:
        """See :meth:`LlmRuntime.register_model_discovery`."""
        if not isinstance(namespace, str) or not namespace:
            raise LlmError("discovery is registered under a non-empty namespace", codes.INVALID_DISCOVERY)
        key = object()
        self._shelf.put(key, [(namespace, discover)])
        return Handle(lambda: self._shelf.take_down(key))

    async def discover(self, namespace: str, request: ModelDiscoveryRequest) -> tuple[DiscoveredModel, ...]:
        """See :meth:`LlmRuntime.discover_models`."""
        if not request.provider and not request.base_url:
            raise LlmError("discovery needs a provider or a base URL", codes.INVALID_DISCOVERY)
        discover = self._shelf.get(namespace)
        if discover is None:
            raise LlmError(f"nothing discovers models for {namespace!r}", codes.NO_DISCOVERY)
        if not request.base_url and (known := self._known(request.provider)):
            return known

        async def ask() -> Iterable[DiscoveredModel]:
            try:
                return await discover(request)
            except LlmError:
                raise
            except Exception as error:
                raise LlmError(f"discovery failed: {error}", codes.DISCOVERY_FAILED) from error

        return _usable(await unless_aborted(request.signal, ask))

    def _known(self, provider: str | None) -> tuple[DiscoveredModel, ...]:
        route = self._registry.find(provider) if provider else None
        if route is None:
            return ()
        return tuple(_discovered(model) for model in list_models(route))


def _discovered(model: ModelInfo) -> DiscoveredModel:
    if not isinstance(model, ResolvedModelInfo):
        return DiscoveredModel(model.id, model.name, input_modalities=model.input_modalities)
    return DiscoveredModel(
        model.id,
        model.name,
        None if model.context is None else model.context.context_window,
        model.max_output_tokens or model.default_max_tokens,
        model.input_modalities,
    )


def _usable(models: Iterable[DiscoveredModel]) -> tuple[DiscoveredModel, ...]:
    by_id: dict[str, DiscoveredModel] = {}
    for model in models:
        if model.id:
            by_id.setdefault(model.id, model)
    return tuple(by_id.values())
