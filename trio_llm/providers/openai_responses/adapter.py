"""The adapter of the Responses API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, Unpack

import attrs
import trio

from ...model.catalogue import (
    DiscoveredModel,
    ModelDiscoveryRequest,
    ModelInfo,
    ProviderInfo,
    ResolvedModelInfo,
)
from ...model.chunks import Finish
from ...model.messages import ModelSource, create_assistant_message
from ...model.requests import GenerateOptions
from ...protocol.json_text import encode_body
from ...streaming.contract import ChunkSink
from ...transport.credentials import Credential, EnvironmentVariable, protect, resolve_credential
from ...transport.upgrade import UpgradeRefused
from ...transport.urls import join_url, url_repr
from ...transport.websocket import WebSocketClient
from ..http_adapter import HttpAdapter, HttpConfig, HttpOptions, asked, configured_headers, token_count
from ..http_call import stream_call
from ..images import load_images
from ..model_data import completed
from ..model_list import list_remote_models, text
from ..reading import Wire
from .conversation import assistant_items, input_items
from .models import OPENAI_MODELS, ResponsesModel, find_model, resolved
from .serialize import check_options, request_fields
from .translate import ResponsesTranslator
from .types import decode_answer, decode_event
from .websocket import Request, SessionSockets

BASE_URL: Final = "https://api.openai.com/v1"
KEY_VARIABLE: Final = "OPENAI_API_KEY"

WIRE: Final = Wire(decode_event, decode_whole=decode_answer)
_ANSWERS: Final = (401, 429)
"""Refusals of an upgrade that HTTP would meet again."""


def _models(value: Iterable[ResponsesModel | str]) -> tuple[ResponsesModel, ...]:
    return tuple(find_model(OPENAI_MODELS, model) if isinstance(model, str) else model for model in value)


@attrs.frozen(kw_only=True)
class ResponsesConfig(HttpConfig):
    """Where and how a deployment is reached. It needs nothing but a key.

    Attributes:
        api_key: None takes the environment variable OPENAI_API_KEY.
        base_url: a prefix that ends where ``/responses`` goes on.
        models: what the catalogue lists, :class:`~.models.ResponsesModel` or ids.
        websocket: whether the calls of a session go over a WebSocket that the session keeps. Where a server
            refuses one, they go over HTTP.
        default_max_tokens: what a model gets where a request sets no limit; None leaves it to the provider.
        reasoning_summary: which summaries of its reasoning a model shall give; without one its reasoning
            blocks are empty. OpenAI gives them to verified organisations alone.

    Further ones are those of :class:`~trio_llm.providers.http_adapter.HttpConfig`.

    Raises:
        ValueError: a ``default_max_tokens`` that is not positive, an unknown ``reasoning_summary``.
    """

    api_key: Credential | None = attrs.field(default=None, converter=protect)
    base_url: str = attrs.field(default=BASE_URL, repr=url_repr)
    models: tuple[ResponsesModel, ...] = attrs.field(default=OPENAI_MODELS, converter=_models)
    websocket: bool = False
    default_max_tokens: int | None = attrs.field(default=None, validator=token_count)
    reasoning_summary: Literal["auto", "concise", "detailed"] | None = attrs.field(
        default=None, validator=attrs.validators.in_((None, "auto", "concise", "detailed"))
    )


ConfigSource: TypeAlias = ResponsesConfig | Callable[[], ResponsesConfig]
"""A configuration, or what gives the present one; it is asked once for each call."""


class ResponsesAdapter(HttpAdapter[ResponsesConfig]):
    """Streams from the Responses API.

    Failures that the provider reports, filtered and empty responses finish with Error; transport and
    protocol failures are raised. Arguments are those of
    :class:`~trio_llm.providers.http_adapter.HttpAdapter`, and:

    Args:
        websockets: opens the WebSockets of sessions; None makes one with the same identity. They go past
            ``client`` and ``transport``, which know none, and past ``max_connections``.
    """

    def __init__(
        self,
        config: ConfigSource = ResponsesConfig(),
        *,
        websockets: WebSocketClient | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        super().__init__(config, **options)
        self._sockets = SessionSockets(websockets or WebSocketClient(identity=self._http.identity))
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery] | None = None

    async def __aenter__(self) -> Self:
        self._nursery_manager = trio.open_nursery()
        self._sockets.open(await self._nursery_manager.__aenter__())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._nursery_manager is not None  # it was entered
        self._sockets.close()
        try:
            await super().__aexit__(exc_type, exc, traceback)
        finally:
            # The body's exception is not shown to the nursery: it would wrap it.
            await self._nursery_manager.__aexit__(None, None, None)

    def provider_info(self, provider: str) -> ProviderInfo:
        """OpenAI's name where the route has its id, else the route's own."""
        return ProviderInfo(provider, "OpenAI" if provider == "openai" else provider)

    def list_models(self, provider: str) -> list[ModelInfo]:
        """The configured models, with their windows and efforts."""
        config = self.config
        return [
            resolved(provider, _completed(config, model), default_max_tokens=config.default_max_tokens)
            for model in config.models
        ]

    def _resolved(self, config: ResponsesConfig, provider: str, model: str) -> ResolvedModelInfo:
        known = _completed(config, find_model(config.models, model))
        return resolved(provider, known, default_max_tokens=config.default_max_tokens)

    async def discover(self, request: ModelDiscoveryRequest) -> list[DiscoveredModel]:
        """Ask the endpoint which models it serves ("List models"); fits ``register_model_discovery``.

        The configured key goes to the configured endpoint alone; any other is asked with the request's key.

        Raises:
            LlmError: DISCOVERY_FAILED, DISCOVERY_UNSUPPORTED; INVALID_BASE_URL, MISSING_CREDENTIAL,
                INVALID_CREDENTIAL, INVALID_CONFIG as a call does.
        """
        config, keyed = asked(self.config, request)
        url = join_url(config.base_url, "models")
        headers, secrets = await _request_headers(config, keyed=keyed)
        return await list_remote_models(
            self._http,
            url,
            [("accept", "application/json"), *headers],
            _discovered,
            rows="data",
            secrets=secrets,
        )

    async def _produce(self, config: ResponsesConfig, options: GenerateOptions, sink: ChunkSink) -> None:
        model = find_model(config.models, options.model)
        check_options(options, model)
        url = join_url(config.base_url, "responses")
        headers, secrets = await _request_headers(config)
        images = await load_images(options.messages)
        items = input_items(options.messages, model, images, sink.note_degraded)
        fields = request_fields(options, model, summary=config.reasoning_summary)
        session = options.session_id
        if config.websocket and session is not None and self._sockets.wanted(url):

            def reply_items(translator: ResponsesTranslator, finish: Finish) -> list[dict[str, Any]]:
                blocks = [block for _, block in sorted(translator.blocks.items())]
                source = ModelSource(options.provider, options.model, finish.replay_state)
                return assistant_items(create_assistant_message(blocks, source), model)

            request = Request(
                session, url, headers, fields, items, secrets, config.max_event_size, reply_items
            )
            try:
                await self._sockets.call(request, sink)
                return
            except UpgradeRefused as refusal:
                if refusal.failure.status in _ANSWERS:
                    raise
                sink.next_wire_attempt(refusal.failure)
        await stream_call(
            self._http,
            sink,
            WIRE,
            ResponsesTranslator(secrets),
            url=url,
            headers=[("content-type", "application/json"), ("accept", "text/event-stream"), *headers],
            body=encode_body({**fields, "stream": True, "input": items}),
            secrets=secrets,
            max_event_size=config.max_event_size,
        )


def _completed(config: ResponsesConfig, model: ResponsesModel) -> ResponsesModel:
    return completed(model, config.model_data, "openai")


def _discovered(row: dict[str, Any]) -> DiscoveredModel | None:
    id = text(row.get("id"))
    return None if id is None else DiscoveredModel(id)


async def _request_headers(
    config: ResponsesConfig, *, keyed: bool = True
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The headers that every request has, and the secrets in them."""
    headers: list[tuple[str, str]] = []
    secrets: tuple[str, ...] = ()
    if keyed:
        credential = config.api_key
        if credential is None:
            credential = EnvironmentVariable(KEY_VARIABLE)
        key = await resolve_credential(credential, "openai")
        secrets = (key,)
        headers.append(("authorization", f"Bearer {key}"))
    return [*headers, *configured_headers(config.headers)], secrets
