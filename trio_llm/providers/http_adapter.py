"""What adapters that make one HTTP request for each call have in common: client and configuration."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import attrs
import httpx

from ..model.codes import INVALID_CONFIG
from ..model.failures import LlmError
from ..model.identity import APP_IDENTITY, AppIdentity
from ..model.policy import DEFAULT_TIMEOUTS, RetryPolicy, Timeouts
from ..model.requests import GenerateOptions
from ..streaming.contract import ChunkSink, LlmAdapter, Produce
from ..transport.client import HttpClient


class Config(Protocol):
    """What the configuration of every such adapter says."""

    @property
    def timeouts(self) -> Timeouts: ...
    @property
    def retry_policy(self) -> RetryPolicy | None: ...


C = TypeVar("C", bound=Config)


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
        if http is not None and (client, transport, max_connections) != (None, None, None):
            raise ValueError("give either http or what makes one")
        self._config = config
        self._http = http or HttpClient(
            client=client, transport=transport, identity=identity, max_connections=max_connections
        )
        self._owned = http is None

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


def header_pairs(value: Mapping[str, str] | Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """A configuration's headers, given as a mapping or as pairs."""
    return tuple(value.items()) if isinstance(value, Mapping) else tuple(value)


def token_count(instance: object, attribute: attrs.Attribute[int | None], value: int | None) -> None:
    """The attrs validator of a limit on tokens: None, or a positive count; else ValueError."""
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{attribute.name} is a positive count of tokens, not {value!r}")


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
