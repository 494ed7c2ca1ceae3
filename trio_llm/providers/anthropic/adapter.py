"""The adapter of the Messages API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias, Unpack

import attrs

from ...model.catalogue import (
    DiscoveredModel,
    ModelDiscoveryRequest,
    ModelInfo,
    ProviderInfo,
    ResolvedModelInfo,
)
from ...model.json_value import FrozenObject, freeze_optional_object
from ...model.requests import GenerateOptions
from ...protocol.json_text import encode_body
from ...streaming.contract import ChunkSink
from ...transport.credentials import Credential, EnvironmentVariable, protect, resolve_credential
from ...transport.urls import join_url, url_repr
from ..http_adapter import HttpAdapter, HttpConfig, HttpOptions, asked, configured_headers, token_count
from ..http_call import stream_call
from ..images import load_images
from ..model_data import completed
from ..model_list import capacity, flag, list_remote_models, text
from ..reading import Wire
from .conversation import converse
from .models import CLAUDE_MODELS, AnthropicModel, find_model, limit_of, resolved
from .serialize import check_options, messages_body
from .translate import MessagesTranslator
from .types import decode_answer, decode_event

BASE_URL: Final = "https://api.anthropic.com"
API_VERSION: Final = "2023-06-01"

WIRE: Final = Wire(decode_event, decode_whole=decode_answer)
_OWN_HEADERS: Final = ("x-api-key", "anthropic-version", "anthropic-beta")
_KEY_VARIABLES: Final = {"x-api-key": "ANTHROPIC_API_KEY", "bearer": "ANTHROPIC_AUTH_TOKEN"}


def _models(value: Iterable[AnthropicModel | str]) -> tuple[AnthropicModel, ...]:
    return tuple(find_model(CLAUDE_MODELS, model) if isinstance(model, str) else model for model in value)


def _betas(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


@attrs.frozen(kw_only=True)
class AnthropicConfig(HttpConfig):
    """Where and how a deployment is reached. It needs nothing but a key.

    Attributes:
        api_key: None takes the environment variable ANTHROPIC_API_KEY, with ``bearer``
            ANTHROPIC_AUTH_TOKEN.
        auth: whether the key is sent as ``x-api-key`` or as a bearer token.
        base_url: a prefix, with or without ``/v1``.
        version: the ``anthropic-version`` header.
        betas: sent as ``anthropic-beta``, for features that ask for it.
        models: what the catalogue lists, :class:`~.models.AnthropicModel` or ids.
        default_max_tokens: what a model gets where a request sets no limit; None takes the most it can do.
        thinking: False for a deployment that shall not think, whatever a request says.
        thinking_settings: further members of the ``thinking`` field wherever thinking is on, such as
            ``{"display": "summarized"}``: newer models show none of their thinking otherwise.

    Further ones are those of :class:`~trio_llm.providers.http_adapter.HttpConfig`; ``model_data`` gives the
    most that a model which is not listed can do, too.

    Raises:
        ValueError: a ``default_max_tokens`` that is not positive, an unknown ``auth``.
        TypeError: ``thinking_settings`` hold something JSON cannot say.
    """

    api_key: Credential | None = attrs.field(default=None, converter=protect)
    auth: Literal["x-api-key", "bearer"] = attrs.field(
        default="x-api-key", validator=attrs.validators.in_(_KEY_VARIABLES)
    )
    base_url: str = attrs.field(default=BASE_URL, repr=url_repr)
    version: str = API_VERSION
    betas: tuple[str, ...] = attrs.field(default=(), converter=_betas)
    models: tuple[AnthropicModel, ...] = attrs.field(default=CLAUDE_MODELS, converter=_models)
    default_max_tokens: int | None = attrs.field(default=None, validator=token_count)
    thinking: bool = True
    thinking_settings: FrozenObject | None = attrs.field(default=None, converter=freeze_optional_object)


ConfigSource: TypeAlias = AnthropicConfig | Callable[[], AnthropicConfig]
"""A configuration, or what gives the present one; it is asked once for each call."""


class AnthropicAdapter(HttpAdapter[AnthropicConfig]):
    """Streams from the Messages API.

    Error events, refusals, unknown stop reasons and empty responses finish with Error; transport and
    protocol failures are raised. Arguments are those of
    :class:`~trio_llm.providers.http_adapter.HttpAdapter`.
    """

    def __init__(self, config: ConfigSource = AnthropicConfig(), **options: Unpack[HttpOptions]) -> None:
        super().__init__(config, **options)

    def provider_info(self, provider: str) -> ProviderInfo:
        """Anthropic's name where the route has its id, else the route's own."""
        return ProviderInfo(provider, "Anthropic" if provider == "anthropic" else provider)

    def list_models(self, provider: str) -> list[ModelInfo]:
        """The configured models, with their windows, limits and efforts."""
        config = self.config
        return [_resolved(config, provider, _completed(config, model)) for model in config.models]

    def _resolved(self, config: AnthropicConfig, provider: str, model: str) -> ResolvedModelInfo:
        return _resolved(config, provider, _completed(config, find_model(config.models, model)))

    async def discover(self, request: ModelDiscoveryRequest) -> list[DiscoveredModel]:
        """Ask the endpoint which models it serves ("List Models"); fits ``register_model_discovery``.

        Retired models are left out. The configured key goes to the configured endpoint alone; any other is
        asked with the request's key.

        Raises:
            LlmError: DISCOVERY_FAILED, DISCOVERY_UNSUPPORTED; INVALID_BASE_URL, MISSING_CREDENTIAL,
                INVALID_CREDENTIAL, INVALID_CONFIG as a call does.
        """
        config, keyed = asked(self.config, request)
        url = join_url(config.base_url, "v1/models?limit=1000")
        headers, secrets = await _request_headers(config, keyed=keyed)
        return await list_remote_models(
            self._http, url, headers, _discovered, rows="data", next_page=_next_page, secrets=secrets
        )

    async def _produce(self, config: AnthropicConfig, options: GenerateOptions, sink: ChunkSink) -> None:
        model = _completed(config, find_model(config.models, options.model))
        check_options(options, model, thinking=config.thinking)
        url = join_url(config.base_url, "v1/messages")
        headers, secrets = await _request_headers(config)
        images = await load_images(options.messages)
        conversation = converse(options.system, options.messages, images, sink.note_degraded)
        body = messages_body(
            options,
            model,
            conversation,
            max_tokens=limit_of(model, config.default_max_tokens),
            thinking=config.thinking,
            thinking_settings=config.thinking_settings,
        )
        await stream_call(
            self._http,
            sink,
            WIRE,
            MessagesTranslator(secrets),
            url=url,
            headers=[("content-type", "application/json"), ("accept", "text/event-stream"), *headers],
            body=encode_body(body),
            secrets=secrets,
            max_event_size=config.max_event_size,
        )


def _completed(config: AnthropicConfig, model: AnthropicModel) -> AnthropicModel:
    return completed(model, config.model_data, "anthropic")


def _resolved(config: AnthropicConfig, provider: str, model: AnthropicModel) -> ResolvedModelInfo:
    return resolved(provider, model, thinking=config.thinking, default_max_tokens=config.default_max_tokens)


def _discovered(row: dict[str, Any]) -> DiscoveredModel | None:
    id = text(row.get("id"))
    if id is None or row.get("lifecycle") == "retired":  # listed for history, but requests for it fail
        return None
    return DiscoveredModel(
        id,
        text(row.get("display_name")),
        capacity(row.get("max_input_tokens")),
        capacity(row.get("max_tokens")),
        input_modalities=_modalities(row),
        reasoning=_supported(row, "thinking"),
    )


def _modalities(row: dict[str, Any]) -> tuple[str, ...] | None:
    more = {word: _supported(row, f"{word}_input") for word in ("image", "pdf")}
    if None in more.values():
        return None
    return ("text", *(word for word, supported in more.items() if supported))


def _supported(row: dict[str, Any], capability: str) -> bool | None:
    said = row.get("capabilities")
    entry = said.get(capability) if isinstance(said, dict) else None
    return flag(entry.get("supported")) if isinstance(entry, dict) else None


def _next_page(answer: dict[str, Any]) -> tuple[str, str] | None:
    last = text(answer.get("last_id"))
    return None if last is None or answer.get("has_more") is not True else ("after_id", last)


async def _request_headers(
    config: AnthropicConfig, *, keyed: bool = True
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The headers that every request has, and the secrets in them."""
    headers = [("anthropic-version", config.version)]
    secrets: tuple[str, ...] = ()
    if keyed:
        credential = config.api_key
        if credential is None:
            credential = EnvironmentVariable(_KEY_VARIABLES[config.auth])
        key = await resolve_credential(credential, "anthropic")
        secrets = (key,)
        headers.append(
            ("x-api-key", key) if config.auth == "x-api-key" else ("authorization", f"Bearer {key}")
        )
    if config.betas:
        headers.append(("anthropic-beta", ",".join(config.betas)))
    return [*headers, *configured_headers(config.headers, owned=_OWN_HEADERS)], secrets
