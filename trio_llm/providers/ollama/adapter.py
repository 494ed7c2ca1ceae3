"""The adapter of Ollama's own API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, Unpack

import attrs

from ...model.catalogue import (
    DiscoveredModel,
    ModelDiscoveryRequest,
    ModelInfo,
    ProviderInfo,
    ResolvedModelInfo,
)
from ...model.requests import GenerateOptions
from ...protocol.json_text import encode_body
from ...protocol.ndjson import NdjsonDecoder
from ...streaming.contract import ChunkSink
from ...transport.credentials import Credential, protect, resolve_credential
from ...transport.urls import join_url, url_repr
from ..http_adapter import HttpAdapter, HttpConfig, HttpOptions, asked, configured_headers
from ..http_call import stream_call
from ..images import load_images
from ..model_data import completed
from ..model_list import list_remote_models, text
from ..reading import Wire
from .details import shown
from .models import OllamaModel, find_model, resolved
from .serialize import chat_body, check_options
from .translate import OllamaTranslator
from .types import decode_fast, decode_line

BASE_URL: Final = "http://127.0.0.1:11434"
"""Where a server listens that nobody told otherwise."""

WIRE: Final = Wire(
    decode_line,
    fast=decode_fast,
    framing=NdjsonDecoder,
    media_type="json",
    foreign=b"<[",
)


def _models(value: Iterable[OllamaModel | str]) -> tuple[OllamaModel, ...]:
    return tuple(OllamaModel(model) if isinstance(model, str) else model for model in value)


@attrs.frozen(kw_only=True)
class OllamaConfig(HttpConfig):
    """Where and how a server is reached. It needs nothing.

    Attributes:
        api_key: sent as a bearer token, for a server behind a gateway and for ``https://ollama.com``; None
            sends none.
        base_url: a prefix, without ``/api``.
        models: what the catalogue lists, :class:`~.models.OllamaModel` or ids; what a server has is asked
            with ``discover``.

    Further ones are those of :class:`~trio_llm.providers.http_adapter.HttpConfig`.
    """

    api_key: Credential | None = attrs.field(default=None, converter=protect)
    base_url: str = attrs.field(default=BASE_URL, repr=url_repr)
    models: tuple[OllamaModel, ...] = attrs.field(default=(), converter=_models)


ConfigSource: TypeAlias = OllamaConfig | Callable[[], OllamaConfig]
"""A configuration, or what gives the present one; it is asked once for each call."""


class OllamaAdapter(HttpAdapter[OllamaConfig]):
    """Streams from ``/api/chat``.

    Errors inside a stream, unknown words and empty responses finish with Error; transport and protocol
    failures are raised. Arguments are those of :class:`~trio_llm.providers.http_adapter.HttpAdapter`.
    """

    def __init__(self, config: ConfigSource = OllamaConfig(), **options: Unpack[HttpOptions]) -> None:
        super().__init__(config, **options)

    def provider_info(self, provider: str) -> ProviderInfo:
        """Ollama's name where the route has its id, else the route's own."""
        return ProviderInfo(provider, "Ollama" if provider == "ollama" else provider)

    def list_models(self, provider: str) -> list[ModelInfo]:
        """The configured models."""
        config = self.config
        return [resolved(provider, _completed(config, model)) for model in config.models]

    def _resolved(self, config: OllamaConfig, provider: str, model: str) -> ResolvedModelInfo:
        return resolved(provider, _completed(config, find_model(config.models, model)))

    async def discover(self, request: ModelDiscoveryRequest) -> list[DiscoveredModel]:
        """Ask the endpoint which models it has, and what each can ("List models", "Show model details").

        Fits ``register_model_discovery``. A window is the Modelfile's ``num_ctx``, else what the model could
        take: what the server gives it may be less. Models that do not chat are left out; one of which the
        server tells nothing is listed by its name alone. The configured key goes to the configured endpoint
        alone; any other is asked with the request's key.

        Raises:
            LlmError: DISCOVERY_FAILED, DISCOVERY_UNSUPPORTED; INVALID_BASE_URL, MISSING_CREDENTIAL,
                INVALID_CREDENTIAL, INVALID_CONFIG as a call does.
        """
        config, _ = asked(self.config, request)
        url = join_url(config.base_url, "api/tags")
        headers, secrets = await _request_headers(config)
        found = await list_remote_models(
            self._http, url, headers, _discovered, rows="models", secrets=secrets
        )
        return await shown(self._http, join_url(config.base_url, "api/show"), headers, found)

    async def _produce(self, config: OllamaConfig, options: GenerateOptions, sink: ChunkSink) -> None:
        model = find_model(config.models, options.model)
        check_options(options, model)
        url = join_url(config.base_url, "api/chat")
        headers, secrets = await _request_headers(config)
        images = await load_images(options.messages)
        await stream_call(
            self._http,
            sink,
            WIRE,
            OllamaTranslator(secrets),
            url=url,
            headers=[("content-type", "application/json"), ("accept", "application/x-ndjson"), *headers],
            body=encode_body(chat_body(options, model, images)),
            secrets=secrets,
            max_event_size=config.max_event_size,
        )


def _completed(config: OllamaConfig, model: OllamaModel) -> OllamaModel:
    return completed(model, config.model_data, "ollama")


def _discovered(row: dict[str, Any]) -> DiscoveredModel | None:
    id = text(row.get("model")) or text(row.get("name"))
    return None if id is None else DiscoveredModel(id, text(row.get("name")))


async def _request_headers(config: OllamaConfig) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The headers that every request has, and the secrets in them."""
    headers = configured_headers(config.headers)
    if config.api_key is None:
        return headers, ()
    key = await resolve_credential(config.api_key, "ollama")
    return [("authorization", f"Bearer {key}"), *headers], (key,)
