"""The adapter of the chat wire: one for every server a :class:`~.profile.ChatProfile` describes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import attrs

from ...model.catalogue import (
    DiscoveredModel,
    ModelDiscoveryRequest,
    ModelInfo,
    ProviderInfo,
    ResolvedModelInfo,
)
from ...model.codes import INVALID_BASE_URL
from ...model.failures import LlmError
from ...model.requests import GenerateOptions
from ...protocol.json_text import encode_body
from ...streaming.contract import ChunkSink
from ...transport.credentials import Credential, EnvironmentVariable, protect, resolve_credential
from ...transport.urls import join_url, url_repr
from ..http_adapter import HttpAdapter, HttpConfig, asked, configured_headers, token_count
from ..http_call import stream_call
from ..images import load_images
from ..model_data import completed
from ..model_list import list_remote_models
from ..reading import PlainText, Wire
from .model_rows import read_row
from .profile import ChatModel, ChatProfile, resolved
from .replay import Kept
from .serialize import chat_body, check_options, effort_fields
from .translate import ChatTranslator
from .types import decode_body, decode_event, plain_text

WIRE: Final = Wire(
    decode_event, fast=decode_body.fast, plain=PlainText(plain_text, b'"content":"'), decode_whole=decode_body
)
"""How chat completions are read."""


def _models(value: Iterable[ChatModel | str] | None) -> tuple[ChatModel, ...] | None:
    if value is None:
        return None
    return tuple(ChatModel(model) if isinstance(model, str) else model for model in value)


@attrs.frozen(kw_only=True)
class ChatConfig(HttpConfig):
    """Where and how a deployment is reached.

    Attributes:
        profile: the server's dialect.
        api_key: None takes the environment variable that the profile names.
        base_url: a prefix such as ``https://host/v1``; None takes the profile's.
        models: what the catalogue lists, ids or :class:`~.profile.ChatModel`; None takes the profile's.
        default_max_tokens: what a model gets where a request sets no limit; None leaves it to the server.
        thinking: False for a deployment that shall not think, whatever a request says.

    Further ones are those of :class:`~trio_llm.providers.http_adapter.HttpConfig`.

    Raises:
        ValueError: a ``default_max_tokens`` that is not positive.
    """

    profile: ChatProfile
    api_key: Credential | None = attrs.field(default=None, converter=protect)
    base_url: str | None = attrs.field(default=None, repr=url_repr)
    models: tuple[ChatModel, ...] | None = attrs.field(default=None, converter=_models)
    default_max_tokens: int | None = attrs.field(default=None, validator=token_count)
    thinking: bool = True


ConfigSource: TypeAlias = ChatConfig | Callable[[], ChatConfig]
"""A configuration, or what gives the present one; it is asked once for each call."""


class ChatAdapter(HttpAdapter[ChatConfig]):
    """Streams chat completions.

    In-band errors, error words and empty responses finish with Error; transport and protocol failures
    are raised. Arguments are those of :class:`~trio_llm.providers.http_adapter.HttpAdapter`.
    """

    def provider_info(self, provider: str) -> ProviderInfo:
        """The profile's name where the route has the profile's id, else the route's own."""
        profile = self.config.profile
        return ProviderInfo(provider, profile.name if provider == profile.id else provider)

    def list_models(self, provider: str) -> list[ModelInfo]:
        """The configured models, else the profile's, with what is known of them."""
        config = self.config
        return [_resolved(config, provider, model) for model in _listed(config)]

    def _resolved(self, config: ChatConfig, provider: str, model: str) -> ResolvedModelInfo:
        known = next((listed for listed in _listed(config) if listed.id == model), None)
        return _resolved(config, provider, known or ChatModel(model))

    async def discover(self, request: ModelDiscoveryRequest) -> list[DiscoveredModel]:
        """Ask the endpoint which models it serves ("List models"); fits ``register_model_discovery``.

        The configured key goes to the configured endpoint alone; any other is asked with the request's key.

        Raises:
            LlmError: DISCOVERY_FAILED, DISCOVERY_UNSUPPORTED; INVALID_BASE_URL, MISSING_CREDENTIAL,
                INVALID_CREDENTIAL, INVALID_CONFIG as a call does.
        """
        config, keyed = asked(self.config, request)
        url = _url(config, "models")
        headers, secrets = await _key_headers(config) if keyed else ([], ())
        return await list_remote_models(
            self._http,
            url,
            [("accept", "application/json"), *headers, *_configured_headers(config)],
            read_row,
            rows="data",
            bare=True,
            secrets=secrets,
        )

    async def _produce(self, config: ChatConfig, options: GenerateOptions, sink: ChunkSink) -> None:
        profile = config.profile
        check_options(options, profile)
        effort_fields(options, profile, thinking=config.thinking)
        url = _url(config, profile.path)
        headers, secrets = await _request_headers(config, options)
        images = await load_images(options.messages)
        body = chat_body(options, profile, images, sink.note_degraded, thinking=config.thinking)
        await stream_call(
            self._http,
            sink,
            WIRE,
            ChatTranslator(secrets, Kept(profile) if profile.returned else None),
            url=url,
            headers=headers,
            body=encode_body(body),
            secrets=secrets,
            silent_overflow=profile.silent_overflow,
            max_event_size=config.max_event_size,
        )


def _resolved(config: ChatConfig, provider: str, model: ChatModel) -> ResolvedModelInfo:
    return resolved(
        config.profile,
        provider,
        completed(model, config.model_data, config.profile.id),
        thinking=config.thinking,
        default_max_tokens=config.default_max_tokens,
    )


def _listed(config: ChatConfig) -> tuple[ChatModel, ...]:
    return config.profile.models if config.models is None else config.models


def _url(config: ChatConfig, path: str) -> str:
    base = config.base_url if config.base_url is not None else config.profile.base_url
    if base is None:
        raise LlmError(f"{config.profile.name} needs a base URL", INVALID_BASE_URL)
    return join_url(base, path)


async def _request_headers(
    config: ChatConfig, options: GenerateOptions
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The headers of a request, and the secrets in them."""
    profile = config.profile
    keys, secrets = await _key_headers(config)
    headers = [("content-type", "application/json"), ("accept", "text/event-stream"), *keys]
    if profile.session_header is not None and options.session_id is not None:
        headers.append((profile.session_header, options.session_id))
    if options.purpose == "compaction":
        headers.extend(profile.compaction_headers)
    return [*headers, *_configured_headers(config)], secrets


async def _key_headers(config: ChatConfig) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The header with the key, if there is one, and the secret in it."""
    profile = config.profile
    credential = config.api_key
    if credential is None and profile.key_variable is not None and profile.key_required:
        credential = EnvironmentVariable(profile.key_variable)
    if credential is None and not profile.key_required:
        return [], ()
    key = await resolve_credential(credential, profile.id)
    return [(profile.key_header, profile.key_prefix + key)], (key,)


def _configured_headers(config: ChatConfig) -> list[tuple[str, str]]:
    return configured_headers(config.headers, owned=(config.profile.key_header,))
