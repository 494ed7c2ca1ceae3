"""One attempt: the library's stream, driven from our connection into the sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...model.chunks import BlockEnd, Finish, StreamChunk, TokenUsage
from ...model.codes import STREAM_CLOSED
from ...model.failures import LlmError
from ...model.requests import GenerateOptions
from ...streaming.contract import ChunkSink
from ...transport.client import HttpClient
from ...transport.secrets import finish_without, kept_secret, value_without
from .config import PydanticAiConfig
from .failures import error_of
from .generators import run_and_close
from .library import Library, find_provider, http_library, make_model
from .observer import ObservedExchange, make_http_client
from .serialize import model_messages, model_settings, request_parameters
from .translate import PartsTranslator, token_usage


class Attempt:
    """Sends one batch for each network read: its events are all here by the time the library reads again."""

    def __init__(
        self,
        library: Library,
        http: HttpClient,
        config: PydanticAiConfig,
        options: GenerateOptions,
        sink: ChunkSink,
        headers: Sequence[tuple[str, str]],
        secrets: tuple[str, ...],
    ) -> None:
        self._library = library
        self._config = config
        self._options = options
        self._sink = sink
        self._secrets = secrets
        self._http_library = http_library(config.provider)
        self._exchange = ObservedExchange(http, sink, self._http_library, headers, secrets, self._flush)
        self._translator = PartsTranslator()
        self._stream: Any = None
        self._out: list[StreamChunk] = []
        self._noted: TokenUsage | None = None
        self._introduced = False

    async def run(self, images: Mapping[str, str]) -> None:
        """Run it to its ``Finish``, or raise how it failed.

        Args:
            images: image bytes in base64, by attachment id.
        """
        with kept_secret(self._secrets):
            await self._run(images)

    async def _run(self, images: Mapping[str, str]) -> None:
        async with self._exchange as exchange:
            try:
                response = await run_and_close(self._pull(images))
            except Exception as error:
                if self._out:
                    await self._flush()
                failure = exchange.fault()
                if failure is None:
                    failure = error_of(self._library, error, asked=exchange.asked, secrets=self._secrets)
                raise failure from failure.__cause__ or (None if failure is error else error)
            if (fault := exchange.fault() or self._cut(response)) is not None:
                # The library ends its parts where the stream stops, but a block that was cut is not whole.
                while self._out and isinstance(self._out[-1], BlockEnd):
                    self._out.pop()
                if self._out:
                    await self._flush()
                raise fault
            received = exchange.response
            request_id = None if received is None else received.request_id
            self._translator.finish(self._library.messages, response, request_id, self._out)
            finish = self._out[-1]
            assert isinstance(finish, Finish)
            self._out[-1] = finish_without(finish, self._secrets)
            await self._flush()
            await exchange.drain()

    async def _pull(self, images: Mapping[str, str]) -> Any:
        """The library's response, once all its events have been translated."""
        library, config, options = self._library, self._config, self._options
        client = make_http_client(self._exchange, self._http_library)
        model = make_model(config.provider, options.model, config.base_url, client)
        known = find_provider(config.provider)
        messages = model_messages(
            library, options, images, self._sink.note_degraded, particular=known.call_ids
        )
        settings = model_settings(options, model.unsupported_settings)
        if known.retries == "setting":
            settings["max_retries"] = 0
        async with library.direct.model_request_stream(
            model,
            messages,
            model_settings=settings,
            model_request_parameters=request_parameters(library, options),
            instrument=False,
        ) as stream:
            self._stream = stream
            async for event in stream:
                self._translator.feed(event, self._out)
            return stream.get()

    async def _flush(self) -> None:
        """Send what the last read brought. Awaited by the exchange before it reads more."""
        exchange, stream = self._exchange, self._stream
        if stream is not None:
            self._note(stream)
        if self._out or exchange.progressed:
            out, self._out = self._out, []
            exchange.progressed = False
            await self._sink.send_batch(out)

    def _note(self, stream: Any) -> None:
        if not self._introduced and stream.provider_response_id is not None:
            self._introduced = True
            model, id = value_without((stream.model_name, stream.provider_response_id), self._secrets)
            self._sink.note_response(served_model=model or None, response_id=id or None)
        usage = token_usage(stream.usage)
        if usage is not None and usage != self._noted:
            self._noted = usage
            self._sink.note_usage(usage)

    def _cut(self, response: Any) -> LlmError | None:
        worded = (response.provider_details or {}).get("finish_reason")
        if self._exchange.terminal or worded:
            return None
        return LlmError("the stream ended without a finish reason and without its end", STREAM_CLOSED)
