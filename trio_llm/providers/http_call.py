"""One provider attempt over HTTP: the loop that every streaming wire shares.

Open, check that the answer is the stream it should be, then for each network read: frame, decode,
translate, send. What a read carried before a failure is sent before the failure is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic

import attrs
import trio

from ..model import codes
from ..model.chunks import Finish, StreamChunk, TokenUsage
from ..model.failures import LlmError
from ..model.identifiers import ProviderRequestId
from ..protocol.sse import MAX_EVENT_SIZE
from ..streaming.contract import ChunkSink
from ..transport.client import HttpClient, HttpResponse
from ..transport.errors import error_from_response
from ..transport.secrets import blacked_out, finish_without, kept_secret, value_without
from .reading import E, EventReader, Translator, Wire

ERROR_BODY_LIMIT: Final = 1024 * 1024
"""How much of an error's body is read, in bytes."""

WHOLE_BODY_LIMIT: Final = 16 * 1024 * 1024
"""How much of an answer that is no stream is read, in bytes."""

HEAD_LIMIT: Final = 4096
"""How much of a body without events is kept to be quoted, in bytes."""

LAST_WORDS: Final = 0.05
"""How long an error inside a stream waits for the counts that may follow it, in seconds."""

_BLANK: Final = b" \t\r\n\xef\xbb\xbf"


async def stream_call(
    client: HttpClient,
    sink: ChunkSink,
    wire: Wire[E],
    translator: Translator[E],
    *,
    url: str,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    secrets: Sequence[str] = (),
    silent_overflow: bool = False,
    max_event_size: int = MAX_EVENT_SIZE,
) -> None:
    """POST ``body`` and send the chunks of the answer into ``sink``, one batch for each network read.

    Cancellation passes through, and closes the connection. After the terminal marker the rest of the
    body is drained for at most 50 ms, so that the connection can be used again.

    Args:
        secrets: blacked out where the provider repeats one, but for the content itself.
        silent_overflow: whether a 400 without a body says that the context window is exceeded.
        max_event_size: the most bytes that one event may have.

    Raises:
        LlmError: what the status, an answer that is no stream, the transport, an event that is oversized or
            undecodable (MALFORMED_RESPONSE) or a missing end (STREAM_CLOSED) amounts to.
    """
    with kept_secret(secrets):
        async with client.request("POST", url, headers=headers, content=body, watcher=sink) as response:
            request_id = _id_of(response, secrets)
            sink.note_response(status=response.status, request_id=request_id)
            translator.request_id = request_id
            try:
                if not 200 <= response.status <= 299:
                    answer = await _error_body(response)
                    sink.alive(len(answer))
                    raise error_from_response(
                        response.status,
                        response.headers,
                        answer,
                        url=url,
                        secrets=secrets,
                        silent_overflow=silent_overflow,
                    )
                await _Reader(response, sink, wire, translator, secrets, max_event_size).run()
            except LlmError as error:
                if error.failure.request_id is None and request_id is not None:
                    error.failure = attrs.evolve(error.failure, request_id=request_id)
                raise


def _id_of(response: HttpResponse, secrets: Sequence[str]) -> ProviderRequestId | None:
    id = response.request_id
    return id and ProviderRequestId(blacked_out(id, secrets))


async def _error_body(response: HttpResponse) -> bytes:
    try:
        return await response.read(ERROR_BODY_LIMIT)
    except LlmError:  # the status alone says what happened
        return b""


class Delivery:
    """Takes what a translator made of one read to the sink, with all that there is to note of it."""

    __slots__ = ("_names", "_noted", "_secrets", "_sink", "_translator")

    def __init__(self, sink: ChunkSink, translator: Translator[Any], secrets: Sequence[str]) -> None:
        self._sink = sink
        self._translator = translator
        self._secrets = secrets
        self._names: tuple[str | None, str | None] = (None, None)
        self._noted: TokenUsage | None = None

    async def send(self, out: list[StreamChunk], received: int) -> None:
        """Send the chunks of one read of ``received`` bytes; without any, tell of an event, or of life."""
        translator, sink = self._translator, self._sink
        names = (translator.served_model, translator.response_id)
        if names != self._names:
            self._names = names
            model, id = value_without(names, self._secrets)
            sink.note_response(served_model=model, response_id=id)
        usage = translator.early_usage
        if usage is not self._noted and usage is not None:
            self._noted = usage
            sink.note_usage(usage)
        if translator.terminal:
            if isinstance(finish := out[-1], Finish):
                out[-1] = finish_without(finish, self._secrets)
            if translator.facts:
                sink.note_response(facts=value_without(translator.facts, self._secrets))
        if out or translator.progressed:
            translator.progressed = False
            await sink.send_batch(out, received=received)
        elif received:
            sink.alive(received)


class _Reader(Generic[E]):
    """Reads the body of one successful response."""

    def __init__(
        self,
        response: HttpResponse,
        sink: ChunkSink,
        wire: Wire[E],
        translator: Translator[E],
        secrets: Sequence[str],
        max_event_size: int,
    ) -> None:
        self._response = response
        self._wire = wire
        self._translator = translator
        self._send = Delivery(sink, translator, secrets).send
        self._secrets = secrets
        self._events = EventReader(wire, translator, max_event_size)
        self._head = b""  # what came before the first event
        self._is_stream = False  # the first byte that says anything is one of a stream

    async def run(self) -> None:
        translator = self._translator
        last_words = 0.0
        while True:
            if not translator.ending:
                data = await self._response.receive()
            else:
                last_words = last_words or trio.current_time() + LAST_WORDS
                data = await self._receive_until(last_words)
            if not self._events.found and self._is_foreign(data):
                await self._send([], len(data))
                await self._read_whole()
                return
            out: list[StreamChunk] = []
            failure: LlmError | None = None
            try:
                self._events.feed(data, out)
            except LlmError as error:
                failure = error
            if (
                failure is not None and translator.ending
            ):  # its own error says more than what is left of the stream
                failure = None
                translator.close(False, out)
            await self._send(out, len(data))
            if failure is not None:
                raise failure
            if translator.terminal:
                if data:
                    await self._response.drain()
                return
            if not data:
                assert translator.failure is not None
                raise LlmError.of(translator.failure)

    async def _receive_until(self, deadline: float) -> bytes:
        try:
            with trio.CancelScope(deadline=deadline):
                return await self._response.receive()
        except LlmError:
            pass
        return b""

    def _is_foreign(self, data: bytes) -> bool:
        """Whether the body is no such stream. Decided by its first byte, as content types lie."""
        if not data:
            return not self._head.strip(_BLANK) or not self._declared_as_stream()
        if len(self._head) < HEAD_LIMIT:
            self._head += data
        if self._is_stream:
            return False
        first = self._head.lstrip(_BLANK)[:1]
        self._is_stream = bool(first) and first not in self._wire.foreign
        return bool(first) and not self._is_stream

    def _declared_as_stream(self) -> bool:
        media_type = self._wire.media_type
        return media_type in self._response.headers.get("content-type", media_type)

    async def _read_whole(self) -> None:
        """The body is a web page, a JSON document, plain text, or nothing."""
        rest = await self._response.read(WHOLE_BODY_LIMIT)
        await self._send([], len(rest))
        body = self._head + rest
        error = error_from_response(
            self._response.status, self._response.headers, body, secrets=self._secrets
        )
        if error.code != codes.MALFORMED_RESPONSE or self._wire.decode_whole is None:
            raise error
        out: list[StreamChunk] = []
        try:
            self._translator.feed(self._wire.decode_whole(body), out)
        except LlmError:
            raise error from error.__cause__
        self._translator.close(True, out)
        if self._translator.failure is not None:
            raise error
        await self._send(out, 0)
