"""The adapter over the model layer of pydantic-ai."""

from __future__ import annotations

import ssl
from functools import partial
from types import TracebackType
from typing import Final

import httpx

from ...model.catalogue import ModelInfo, ResolvedModelInfo
from ...model.codes import NO_ADAPTER
from ...model.failures import LlmError
from ...model.identity import APP_IDENTITY, AppIdentity
from ...model.policy import DEFAULT_TIMEOUTS, RetryPolicy, Timeouts
from ...model.requests import GenerateOptions
from ...model.signal import AbortSignal
from ...streaming.contract import ChunkSink, LlmAdapter, Produce
from ...transport.client import HttpClient
from ...transport.credentials import EnvironmentVariable, resolve_credential
from ...transport.urls import join_url
from ..http_adapter import configured_headers
from ..images import load_images
from .attempt import Attempt
from .config import PydanticAiConfig, RoutesSource
from .library import LibraryProvider, find_provider, load_library
from .serialize import check_options

_OWN_HEADERS: Final = ("x-api-key", "anthropic-version")


class PydanticAiAdapter(LlmAdapter):
    """Streams through the library's model classes, for one or more routes.

    Every failure is raised, those inside a stream too; refusals, content filters, words for an end that
    the library does not know and empty answers finish with Error.

    Args:
        routes: route names and their configurations, or one configuration for every route, or a callable that
            gives the present ones. Every call takes one snapshot, so a change reaches the next call and none
            in flight.
        client: the caller's own ``httpx.AsyncClient`` (or httpx2's), which stays the caller's to close.
        transport: the caller's own transport, closed with the adapter.
        identity: who sends the requests.
        max_connections: how many connections may be open at once; further requests wait.
        ssl_context: for https; by default certificates are verified as httpx does.

    Raises:
        ValueError: both a client and a transport, or settings of the own transport beside either.
    """

    def __init__(
        self,
        routes: RoutesSource,
        *,
        client: httpx.AsyncClient | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        identity: AppIdentity = APP_IDENTITY,
        max_connections: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._routes = routes
        self._http = HttpClient(
            client=client,
            transport=transport,
            identity=identity,
            max_connections=max_connections,
            ssl_context=ssl_context,
        )

    def _config(self, provider: str) -> PydanticAiConfig:
        present = self._routes() if callable(self._routes) else self._routes
        config = present if isinstance(present, PydanticAiConfig) else present.get(provider)
        if config is None:
            raise LlmError(f"this adapter has no route {provider!r}", NO_ADAPTER)
        return config

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    def provider_retry_policy(self, provider: str) -> RetryPolicy | None:
        """What the route's configuration says.

        Raises:
            LlmError: NO_ADAPTER, here and below, for a route that is not configured.
        """
        return self._config(provider).retry_policy

    def provider_timeouts(self, provider: str) -> Timeouts:
        """What the route's configuration says, over the defaults."""
        return self._config(provider).timeouts.over(DEFAULT_TIMEOUTS)

    def list_models(self, provider: str) -> list[ModelInfo]:
        """The configured models; the library itself lists none with their facts."""
        return [model.resolved(provider) for model in self._config(provider).models]

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> ResolvedModelInfo | None:
        """What is configured of a model."""
        return self._config(provider).model(model).resolved(provider)

    def prepare_call(self, provider: str) -> Produce:
        """Pin the present configuration of the route."""
        return partial(self._produce, self._config(provider))

    async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
        """Run one attempt on the present configuration.

        Raises:
            LlmError: before any I/O NO_ADAPTER, UNKNOWN_MODEL, UNSUPPORTED_OPTION, UNSUPPORTED_CONTENT,
                UNSUPPORTED_REASONING_EFFORT, MISSING_CREDENTIAL, INVALID_CREDENTIAL, INVALID_BASE_URL,
                INVALID_CONFIG; then what the exchange or the library's exception amounts to (see
                :mod:`~trio_llm.providers.pydantic_ai.failures`), STREAM_CLOSED for a stream without its end.
        """
        await self._produce(self._config(options.provider), options, sink)

    async def _produce(self, config: PydanticAiConfig, options: GenerateOptions, sink: ChunkSink) -> None:
        known = find_provider(config.provider)
        library = load_library()
        check_options(options, config.model(options.model))
        if config.base_url is not None:
            join_url(config.base_url, "")  # refuses what is no base URL
        headers, secrets = await _request_headers(config, known)
        images = await load_images(options.messages)
        await Attempt(library, self._http, config, options, sink, headers, secrets).run(images)


async def _request_headers(
    config: PydanticAiConfig, known: LibraryProvider
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The headers that are ours, and the secrets in them."""
    headers: list[tuple[str, str]] = []
    secrets: tuple[str, ...] = ()
    credential = config.api_key
    if credential is None and known.key_variable is not None:
        credential = EnvironmentVariable(known.key_variable)
    if credential is not None:
        key = await resolve_credential(credential, config.provider)
        secrets = (key,)
        name, prefix = known.key_header
        headers.append((name, prefix + key))
    headers.extend(configured_headers(config.headers, owned=_OWN_HEADERS))
    return headers, secrets
