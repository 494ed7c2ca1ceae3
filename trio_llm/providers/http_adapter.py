"""What adapters that make one HTTP request for each call have in common: client and configuration."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Generic, TypedDict, TypeVar

import attrs
import httpx

from ..model.catalogue import ModelDiscoveryRequest, ResolvedModelInfo
from ..model.codes import INVALID_CONFIG
from ..model.failures import LlmError
from ..model.identity import APP_IDENTITY, AppIdentity
from ..model.policy import DEFAULT_TIMEOUTS, RetryPolicy, Timeouts
from ..model.requests import GenerateOptions
from ..model.signal import AbortSignal
from ..protocol.sse import MAX_EVENT_SIZE
from ..streaming.contract import ChunkSink, LlmAdapter, Produce
from ..transport.client import HttpClient
from .model_data import ModelData


def header_pairs(value: Mapping[str, str] | Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """A configuration's headers, given as a mapping or as pairs."""
    return tuple(value.items()) if isinstance(value, Mapping) else tuple(value)


@attrs.frozen(kw_only=True)
class HttpConfig:
    """What the configuration of every such adapter says.

    Attributes:
        headers: sent with every request; not those that the wire owns (credential, content type, user agent).
        max_event_size: the most bytes that one event of a stream may have; beyond it, MALFORMED_RESPONSE.
        timeouts: the phase clocks, where a call does not override them.
        retry_policy: captured at registration; None is the normal policy.
        model_data: fills in what ``models`` leaves unknown, and tells of models that are not listed; None
            leaves it at that.

    Raises:
        ValueError: a ``max_event_size`` that is not positive.
    """

    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=header_pairs, repr=False)
    max_event_size: int = attrs.field(default=MAX_EVENT_SIZE, validator=attrs.validators.ge(1))
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    retry_policy: RetryPolicy | None = None
    model_data: ModelData | None = attrs.field(default=None, repr=False)


C = TypeVar("C", bound=HttpConfig)


class HttpOptions(TypedDict, total=False):
    """The arguments of every :class:`HttpAdapter`, beside its configuration."""

    http: HttpClient | None
    client: httpx.AsyncClient | None
    transport: httpx.AsyncBaseTransport | None
    identity: AppIdentity
    max_connections: int | None


class HttpAdapter(LlmAdapter, Generic[C]):
    """An adapter that owns an HTTP client and pins one configuration for each call.

    Args:
        config: a value, or a callable that gives the present one. Every call takes one snapshot, so a
            change reaches the next call and none in flight.
        http: the client to use; it stays the caller's to close.
        client: the caller's own ``httpx.AsyncClient``, which stays the caller's to close.
        transport: the caller's own transport, closed with the adapter.
        identity: who sends the requests.
        max_connections: how many connections may be open at once; further requests wait.

    Raises:
        ValueError: ``http`` together with what would make another one.
    """

    def __init__(
        self,
        config: C | Callable[[], C],
        *,
        http: HttpClient | None = None,
        client: httpx.AsyncClient | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        identity: AppIdentity = APP_IDENTITY,
        max_connections: int | None = None,
    ) -> None:
        makes_one = (client, transport, max_connections, identity) != (None, None, None, APP_IDENTITY)
        if http is not None and makes_one:
            raise ValueError("give either http or what makes one")
        self._config = config
        self._http = http or HttpClient(
            client=client, transport=transport, identity=identity, max_connections=max_connections
        )
        self._owned = http is None
        self._resolved_for: C | None = None
        self._resolve: Callable[[str, str], ResolvedModelInfo]

    @property
    def config(self) -> C:
        """The present configuration."""
        return self._config() if callable(self._config) else self._config

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._owned:
            await self._http.aclose()

    def provider_retry_policy(self, provider: str) -> RetryPolicy | None:
        """What the configuration says."""
        return self.config.retry_policy

    def provider_timeouts(self, provider: str) -> Timeouts:
        """What the configuration says, over the defaults."""
        return self.config.timeouts.over(DEFAULT_TIMEOUTS)

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> ResolvedModelInfo:
        """What is known of a model; of one that is not listed, the efforts that the wire can ask for.

        Worked out once for a configuration, whose ``model_data`` is not asked again.
        """
        config = self.config
        if config is not self._resolved_for:
            self._resolved_for = config
            self._resolve = lru_cache(64)(partial(self._resolved, config))
        return self._resolve(provider, model)

    @abc.abstractmethod
    def _resolved(self, config: C, provider: str, model: str) -> ResolvedModelInfo:
        """What this configuration says of a model."""

    def prepare_call(self, provider: str) -> Produce:
        """Pin the present configuration."""
        return partial(self._produce, self.config)

    async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
        """Run one attempt on the present configuration.

        Raises:
            LlmError: before any I/O UNSUPPORTED_OPTION, UNSUPPORTED_CONTENT, UNSUPPORTED_REASONING_EFFORT,
                MISSING_CREDENTIAL, INVALID_CREDENTIAL, INVALID_BASE_URL, INVALID_CONFIG; then what
                :func:`~trio_llm.providers.http_call.stream_call` raises.
        """
        await self._produce(self.config, options, sink)

    @abc.abstractmethod
    async def _produce(self, config: C, options: GenerateOptions, sink: ChunkSink) -> None:
        """Run one attempt on this configuration."""


def token_count(instance: object, attribute: attrs.Attribute[int | None], value: int | None) -> None:
    """The attrs validator of a limit on tokens: None, or a positive count; else ValueError."""
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{attribute.name} is a positive count of tokens, not {value!r}")


def asked(config: C, request: ModelDiscoveryRequest) -> tuple[C, bool]:
    """The configuration by which an endpoint is asked for its models, and whether with a key.

    The configured key and headers go to the configured endpoint alone; any other gets the request's key.
    """
    keyed = request.base_url is None or request.api_key is not None
    changes: dict[str, Any] = {}
    if request.base_url is not None:
        changes |= {"base_url": request.base_url, "headers": ()}
    if request.base_url is not None or request.api_key is not None:
        changes["api_key"] = request.api_key
    return attrs.evolve(config, **changes), keyed


_WIRE_HEADERS = ("authorization", "content-type", "content-length", "host", "transfer-encoding")


def configured_headers(
    headers: Iterable[tuple[str, str]], *, owned: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """The headers a configuration adds to every request.

    Args:
        owned: names, in lower case, that this wire sets itself, beside those that every wire does.

    Raises:
        LlmError: INVALID_CONFIG, for a header that is not for configuration to set.
    """
    checked = list(headers)
    for name, _ in checked:
        if name.lower() in (*_WIRE_HEADERS, *owned):
            raise LlmError(f"the header {name!r} is not for configuration to set", INVALID_CONFIG)
    return checked
