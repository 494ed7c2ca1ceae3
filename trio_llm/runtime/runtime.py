"""LlmRuntime: the one object an application holds."""

from __future__ import annotations

import logging
import random as random_module
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Self, TypeVar

import trio

from ..model import codes
from ..model.catalogue import (
    ConfigurableProvider,
    DiscoveredModel,
    ModelDiscoveryRequest,
    ModelInfo,
    ProviderInfo,
    ResolvedModelInfo,
)
from ..model.chunks import StreamChunk
from ..model.failures import LlmFailure
from ..model.identifiers import MessageId
from ..model.policy import RetryPolicy
from ..model.requests import GenerateOptions, LlmCallConfig
from ..model.signal import AbortSignal
from ..streaming.contract import LlmAdapter
from ..streaming.selection import Middleware, OnDegraded
from ..streaming.watchdog import Watchdog
from .attempts import Attempts, Recover
from .boundary import Boundary, CallRoutes
from .budgets import ImageBudget
from .catalogue import list_models, resolve_model
from .defaults import materialise
from .directories import DirectoryRegistration
from .discovery import Discover, Discovery
from .generate import Generated, generate
from .lifecycle import Tenancies
from .prepared import PreparedLlmCall, prepare_call
from .records import Record
from .registry import AdapterRegistration, Registry, Route
from .shelf import Shelf
from .stream import RuntimeStream
from .topology import AdaptersUpdated, Handle, Listener, Topology

logger = logging.getLogger("trio_llm.runtime")

Config = TypeVar("Config", bound=LlmCallConfig)


def _log_degraded(message: MessageId, failure: LlmFailure) -> None:
    logger.warning("message %s: %s", message, failure.message)


class LlmRuntime:
    """Routes requests to adapters and owns the adapters' lives. ``async with LlmRuntime() as runtime``.

    Adapters may be registered before it is entered; calls need it open. Leaving it aborts the calls
    that still run, closes every adapter (in a shield, for at most 5 s each, all at the same time) and
    lets the body's exception through as it is.

    Args:
        image_budget: how many images, and how much of them, a request may hold.
        on_degraded: told of each message whose malformed replay state was dropped
            (INVALID_REPLAY_STATE); logged by default.
    """

    def __init__(
        self, *, image_budget: ImageBudget | None = None, on_degraded: OnDegraded = _log_degraded
    ) -> None:
        self._topology = Topology()
        self._tenancies = Tenancies()
        self._registry = Registry(self._tenancies, Shelf(codes.DUPLICATE_ADAPTER, self._announce))
        self._directory: Shelf[ConfigurableProvider] = Shelf(codes.DUPLICATE_DIRECTORY, self._announce)
        self._discovery = Discovery(self._registry)
        self._boundary = Boundary(self._registry, image_budget, on_degraded)
        self._layers: list[tuple[object, Middleware]] = []
        self._streams: set[RuntimeStream] = set()
        self._watchdog = Watchdog()
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._state = "new"

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise RuntimeError("a runtime is entered once")
        if not trio.lowlevel.in_trio_task():
            raise RuntimeError("LlmRuntime needs Trio: trio.run(main), and no other event loop")
        self._state = "open"
        self._nursery_manager = trio.open_nursery()
        nursery = await self._nursery_manager.__aenter__()
        nursery.start_soon(self._watchdog.run)
        self._tenancies.start(nursery)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._nursery_manager is not None  # it was entered
        self._state = "closed"
        for stream in list(self._streams):
            stream.abort("the runtime was left")
        self._watchdog.stop()
        self._tenancies.retire_all()
        self._topology.close()
        # The body's exception is not shown to the nursery: it would cancel it, and wrap it.
        await self._nursery_manager.__aexit__(None, None, None)
        errors = self._tenancies.close_errors
        if exc is not None:
            for error in errors:
                exc.add_note(f"closing an adapter raised {error!r}")
        elif errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup("closing adapters", errors)

    def _require_open(self) -> None:
        if self._state != "open":
            raise RuntimeError("calls need an open runtime: async with LlmRuntime() as runtime")

    # ---- what is registered

    def register_adapter(self, providers: Iterable[str] | str, adapter: LlmAdapter) -> AdapterRegistration:
        """Serve some provider names with an adapter.

        The adapter is opened once, in a task of the runtime, whatever the number of its names and
        registrations; it is closed when no registration and no call holds it any more.

        Args:
            providers: at least one name.

        Returns:
            The registration: a context manager with ``replace`` and ``close``.

        Raises:
            LlmError: INVALID_ADAPTER, no name, an empty one, an invalid provider info or policy;
                DUPLICATE_ADAPTER, a name is taken or comes twice. Then nothing has changed.
            RuntimeError: the runtime was left.
        """
        return self._registry.register(providers, adapter)

    def register_configurable_providers(
        self, entries: Iterable[ConfigurableProvider]
    ) -> DirectoryRegistration:
        """List providers that the application's settings can set up.

        Returns:
            The registration: a context manager with ``replace`` and ``close``.

        Raises:
            LlmError: INVALID_DIRECTORY, no entry or an invalid one; DUPLICATE_DIRECTORY, a provider
                is listed already or twice. Then nothing has changed.
        """
        return DirectoryRegistration(self._directory, entries)

    def register_model_discovery(self, namespace: str, discover: Discover) -> Handle:
        """Let ``discover`` ask endpoints for the models of one namespace of settings.

        Raises:
            LlmError: INVALID_DISCOVERY, an empty namespace; DUPLICATE_DISCOVERY, it is taken.
        """
        return self._discovery.register(namespace, discover)

    def use(self, middleware: Middleware, *, prepend: bool = False) -> Handle:
        """Add a layer to every stream that is made from now on, until the handle is closed.

        Args:
            prepend: make it the outermost; else it becomes the innermost.

        Raises:
            TypeError: it cannot be called.
        """
        if not callable(middleware):
            raise TypeError(
                f"a layer is called with (options, next); a {type(middleware).__name__} cannot be"
            )
        layer = (object(), middleware)
        self._layers.insert(0 if prepend else len(self._layers), layer)
        return Handle(lambda: self._layers.remove(layer))

    def on_adapters_updated(self, listener: Listener) -> Handle:
        """Call ``listener`` after each change of routes or configurable providers.

        It may read and change what is registered. What it raises is logged and vetoes nothing.
        """
        return self._topology.listen(listener)

    def adapter_updates(self) -> AbstractContextManager[trio.MemoryReceiveChannel[AdaptersUpdated]]:
        """The same event as a channel: ``with runtime.adapter_updates() as updates: async for ...``.

        A reader that is slow sees the latest event only. The channel ends when the runtime is left.
        """
        return self._topology.updates()

    def _announce(self) -> None:
        self._topology.tell(AdaptersUpdated(self.list_providers(), self.list_configurable_providers()))

    # ---- what is known

    def list_providers(self) -> tuple[ProviderInfo, ...]:
        """The registered providers, in the order of registration."""
        return tuple(route.info for route in self._registry.routes())

    def list_configurable_providers(self) -> tuple[ConfigurableProvider, ...]:
        """The providers that settings can set up, in the order of registration."""
        return self._directory.entries()

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        """The models a provider's adapter knows of; advice, not a limit.

        Raises:
            LlmError: NO_ADAPTER; INVALID_CATALOG, an invalid model or one listed twice.
        """
        return list_models(self._registry.route(provider))

    def provider_retry_policy(self, provider: str) -> RetryPolicy:
        """The policy captured when the provider was registered.

        Raises:
            LlmError: NO_ADAPTER.
        """
        return self._registry.route(provider).retry_policy

    async def resolve_model_info(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> ResolvedModelInfo:
        """What is known of a model; a bare entry where the adapter knows nothing.

        Raises:
            LlmError: NO_ADAPTER; INVALID_MODEL_INFO, INVALID_MODEL_CONTEXT,
                INVALID_MODEL_MAX_TOKENS or INVALID_MODEL_REASONING for an invalid answer; ABORTED,
                with the signal's reason; what the adapter raised.
            RuntimeError: the runtime is not open.
        """
        return await resolve_model(self._route(provider), model, signal)

    async def resolve_call_config(self, config: Config, signal: AbortSignal | None = None) -> Config:
        """The configuration with the defaults of its model; the same object if there are none to add.

        Raises:
            LlmError: as :meth:`resolve_model_info`, and UNSUPPORTED_REASONING_EFFORT.
            RuntimeError: the runtime is not open.
        """
        info = await resolve_model(self._route(config.provider), config.model, signal)
        return materialise(config, info)[0]

    def _route(self, provider: str) -> Route:
        self._require_open()
        return self._registry.route(provider)

    async def discover_models(
        self, namespace: str, request: ModelDiscoveryRequest
    ) -> tuple[DiscoveredModel, ...]:
        """Ask which models an endpoint serves.

        A registered provider whose adapter lists models answers without network, unless the request
        names a base URL. Entries without id, and repeated ones, are dropped.

        Raises:
            LlmError: INVALID_DISCOVERY, neither provider nor base URL; NO_DISCOVERY, nothing is
                registered for the namespace; DISCOVERY_FAILED; DISCOVERY_UNSUPPORTED; ABORTED, with
                the reason of the request's signal.
        """
        return await self._discovery.discover(namespace, request)

    # ---- calls

    def stream(self, options: GenerateOptions) -> RuntimeStream:
        """A stream of one call: ``async with runtime.stream(options) as stream: async for chunk in stream``.

        Failures to select, reach or read the provider become one terminal ``Finish``; what layers and
        the body raise is raised.

        Raises:
            RuntimeError: the runtime is not open.
        """
        return self._open_stream(options, CallRoutes(self._boundary))

    def _open_stream(self, options: GenerateOptions, routes: CallRoutes) -> RuntimeStream:
        self._require_open()
        layers = [layer for _, layer in self._layers]
        return RuntimeStream(options, routes, layers, self._watchdog, self._streams)

    async def prepare_call(
        self, config: LlmCallConfig, *, signal: AbortSignal | None = None
    ) -> PreparedLlmCall:
        """Pin route, policy, adapter and defaults of a call that will be dispatched later, once.

        Asks the adapter exactly once about the model.

        Raises:
            LlmError: as :meth:`resolve_call_config`.
            RuntimeError: the runtime is not open.
        """
        self._require_open()
        return await prepare_call(self._boundary, config, signal, self._open_stream)

    async def stream_to(
        self, send_channel: trio.abc.SendChannel[StreamChunk], options: GenerateOptions
    ) -> None:
        """Feed a channel of the caller's own, and close it, whatever happens.

        Under ambient cancellation the channel is closed without a Finish.

        Raises:
            trio.BrokenResourceError: the channel's receiver was closed; the call is over then.
            RuntimeError: the runtime is not open.
        """
        async with send_channel, self.stream(options) as stream:
            async for chunk in stream:
                await send_channel.send(chunk)

    async def generate(self, options: GenerateOptions) -> Generated:
        """One call to its end, without its chunks.

        Raises:
            GenerateError: it failed or was aborted; carries what there was.
            RuntimeError: the runtime is not open.
        """
        return await generate(self.stream(options))

    def attempts(
        self,
        options: GenerateOptions,
        *,
        record: Record | None = None,
        recover: Recover | None = None,
        random: Callable[[], float] = random_module.random,
    ) -> Attempts:
        """Turns of one request, repeated as the policy of its route says.

        ``async for attempt in runtime.attempts(options): async with attempt as stream: ...``. Every
        attempt sends the same request. The loop ends after a success, an abort or the last failure;
        the last stream's ``finish`` says which.

        Args:
            record: written before each wait, and again after it.
            recover: may mend the cause of a failure; see :data:`Recover`.
            random: numbers in [0, 1) for the jitter.
        """
        return Attempts(lambda: self.stream(options), options.signal, record, recover, random)
