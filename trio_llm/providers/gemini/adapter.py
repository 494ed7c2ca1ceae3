"""The adapter of the Gemini API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias, Unpack
from urllib.parse import quote

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
from ...streaming.contract import ChunkSink
from ...transport.credentials import Credential, EnvironmentVariable, protect, resolve_credential
from ...transport.urls import join_url, url_repr
from ..http_adapter import HttpAdapter, HttpConfig, HttpOptions, asked, configured_headers
from ..http_call import stream_call
from ..images import load_images
from ..model_data import completed
from ..model_list import capacity, flag, list_remote_models, text
from ..reading import Wire
from .conversation import converse
from .models import GEMINI_MODELS, GeminiModel, find_model, resolved
from .serialize import check_options, generate_body
from .translate import GeminiTranslator
from .types import decode_answer, decode_event, decode_fast

BASE_URL: Final = "https://generativelanguage.googleapis.com"
API_VERSION: Final = "v1beta"
KEY_VARIABLE: Final = "GEMINI_API_KEY"

WIRE: Final = Wire(decode_event, fast=decode_fast, decode_whole=decode_answer)


def _models(value: Iterable[GeminiModel | str]) -> tuple[GeminiModel, ...]:
    return tuple(find_model(GEMINI_MODELS, model) if isinstance(model, str) else model for model in value)


@attrs.frozen(kw_only=True)
class GeminiConfig(HttpConfig):
    """Where and how a deployment is reached. It needs nothing but a key.

    Attributes:
        api_key: None takes the environment variable GEMINI_API_KEY.
        auth: whether the key is sent as ``x-goog-api-key`` or as a bearer token, as Vertex AI wants it.
            It never stands in a URL.
        base_url: a prefix, with or without the version.
        api_version: what the path begins with; empty where ``base_url`` says everything, as for
            ``https://aiplatform.googleapis.com/v1/projects/P/locations/L/publishers/google``.
        models: what the catalogue lists, :class:`~.models.GeminiModel` or ids.
        include_thoughts: whether summaries of the thoughts are asked for, of models that think.

    Further ones are those of :class:`~trio_llm.providers.http_adapter.HttpConfig`.

    Raises:
        ValueError: an unknown ``auth``.
    """

    api_key: Credential | None = attrs.field(default=None, converter=protect)
    auth: Literal["x-goog-api-key", "bearer"] = attrs.field(
        default="x-goog-api-key", validator=attrs.validators.in_(("x-goog-api-key", "bearer"))
    )
    base_url: str = attrs.field(default=BASE_URL, repr=url_repr)
    api_version: str = API_VERSION
    models: tuple[GeminiModel, ...] = attrs.field(default=GEMINI_MODELS, converter=_models)
    include_thoughts: bool = True


ConfigSource: TypeAlias = GeminiConfig | Callable[[], GeminiConfig]
"""A configuration, or what gives the present one; it is asked once for each call."""


class GeminiAdapter(HttpAdapter[GeminiConfig]):
    """Streams from the Gemini API, and from Vertex AI.

    Errors inside a stream, blocked prompts, refused answers, unknown words and empty responses finish with
    Error; transport and protocol failures are raised. Arguments are those of
    :class:`~trio_llm.providers.http_adapter.HttpAdapter`.
    """

    def __init__(self, config: ConfigSource = GeminiConfig(), **options: Unpack[HttpOptions]) -> None:
        super().__init__(config, **options)

    def provider_info(self, provider: str) -> ProviderInfo:
        """Gemini's name where the route has its id, else the route's own."""
        return ProviderInfo(provider, "Gemini" if provider == "gemini" else provider)

    def list_models(self, provider: str) -> list[ModelInfo]:
        """The configured models, with their windows and efforts."""
        config = self.config
        return [resolved(provider, _completed(config, model)) for model in config.models]

    def _resolved(self, config: GeminiConfig, provider: str, model: str) -> ResolvedModelInfo:
        return resolved(provider, _completed(config, find_model(config.models, model)))

    async def discover(self, request: ModelDiscoveryRequest) -> list[DiscoveredModel]:
        """Ask the endpoint which models it serves ("models.list"); fits ``register_model_discovery``.

        Models that generate no content, as those for embeddings, are left out. The configured key goes to
        the configured endpoint alone; any other is asked with the request's key.

        Raises:
            LlmError: DISCOVERY_FAILED, DISCOVERY_UNSUPPORTED; INVALID_BASE_URL, MISSING_CREDENTIAL,
                INVALID_CREDENTIAL, INVALID_CONFIG as a call does.
        """
        config, keyed = asked(self.config, request)
        url = join_url(config.base_url, f"{config.api_version}/models?pageSize=1000")
        headers, secrets = await _request_headers(config, keyed=keyed)
        return await list_remote_models(
            self._http, url, headers, _discovered, rows="models", next_page=_next_page, secrets=secrets
        )

    async def _produce(self, config: GeminiConfig, options: GenerateOptions, sink: ChunkSink) -> None:
        model = find_model(config.models, options.model)
        check_options(options, model)
        url = join_url(
            config.base_url, f"{config.api_version}/{_path(model.id)}:streamGenerateContent?alt=sse"
        )
        headers, secrets = await _request_headers(config)
        images = await load_images(options.messages)
        conversation = converse(
            options.system, options.messages, images, sink.note_degraded, signed=model.wants_signatures
        )
        body = generate_body(options, model, conversation, include_thoughts=config.include_thoughts)
        await stream_call(
            self._http,
            sink,
            WIRE,
            GeminiTranslator(secrets),
            url=url,
            headers=[("content-type", "application/json"), ("accept", "text/event-stream"), *headers],
            body=encode_body(body),
            secrets=secrets,
            max_event_size=config.max_event_size,
        )


def _completed(config: GeminiConfig, model: GeminiModel) -> GeminiModel:
    return completed(model, config.model_data, "gemini")


def _path(model: str) -> str:
    """A model's resource name; ``tunedModels/x`` and the like are names already."""
    return quote(model if "/" in model else f"models/{model}", safe="/")


def _discovered(row: dict[str, Any]) -> DiscoveredModel | None:
    name = text(row.get("name"))
    methods = row.get("supportedGenerationMethods")
    if name is None or (isinstance(methods, list) and "generateContent" not in methods):
        return None
    return DiscoveredModel(
        name.removeprefix("models/"),
        text(row.get("displayName")),
        capacity(row.get("inputTokenLimit")),
        capacity(row.get("outputTokenLimit")),
        reasoning=flag(row.get("thinking")),
    )


def _next_page(answer: dict[str, Any]) -> tuple[str, str] | None:
    token = text(answer.get("nextPageToken"))
    return None if token is None else ("pageToken", token)


async def _request_headers(
    config: GeminiConfig, *, keyed: bool = True
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The headers that every request has, and the secrets in them."""
    headers = configured_headers(config.headers, owned=("x-goog-api-key",))
    if not keyed:
        return headers, ()
    credential = EnvironmentVariable(KEY_VARIABLE) if config.api_key is None else config.api_key
    key = await resolve_credential(credential, "gemini")
    own = ("authorization", f"Bearer {key}") if config.auth == "bearer" else ("x-goog-api-key", key)
    return [own, *headers], (key,)
