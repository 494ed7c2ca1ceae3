"""How the body of a stream becomes chunks: frame, decode, translate. No I/O, and the same for every wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar, cast

import attrs

from ..model.chunks import StreamChunk, TextDelta, TokenUsage
from ..model.failures import LlmFailure
from ..model.identifiers import ProviderRequestId
from ..protocol.ndjson import NdjsonDecoder
from ..protocol.sse import MAX_EVENT_SIZE, SseDecoder
from .alike import Alike
from .decode import UNDECODABLE

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class Translator(Protocol[E_contra]):
    """Folds the events of one response into chunks. No I/O.

    Attributes:
        terminal: the ``Finish`` has been appended.
        ending: the provider reported an error; only counts may still come. ``close`` then appends the
            ``Finish``.
        failure: what to raise, where the stream ended badly.
        progressed: an event said something, whether it made a chunk or not; reset by the reader.
        request_id: set by the reader before the first event.
        early_usage: the counts known so far; the same object until there are others.
        served_model, response_id: None until known.
        facts: whatever else the provider told, for the settlement.
    """

    progressed: bool
    request_id: ProviderRequestId | None

    @property
    def terminal(self) -> bool: ...
    @property
    def ending(self) -> bool: ...
    @property
    def failure(self) -> LlmFailure | None: ...
    @property
    def early_usage(self) -> TokenUsage | None: ...
    @property
    def served_model(self) -> str | None: ...
    @property
    def response_id(self) -> str | None: ...
    @property
    def facts(self) -> dict[str, object]: ...

    def feed(self, event: E_contra, out: list[StreamChunk], /) -> None:
        """Append the chunks that the event makes."""

    def close(self, clean: bool, out: list[StreamChunk], /) -> None:
        """The body ended: append what is due, or set ``failure``."""


class TextTranslator(Translator[E_contra], Protocol[E_contra]):
    """One that can be told what events say without the events."""

    def feed_texts(self, texts: Sequence[str], out: list[StreamChunk], /) -> None:
        """As ``feed`` for events that say a text alone each; none is empty or a half of a surrogate pair."""


@attrs.frozen
class PlainText:
    """How an event without a name is read that says a text alone, as nearly all do.

    Attributes:
        decode: its text, which is not empty; one of ``UNDECODABLE`` for any other event.
        key: what stands before the text, for :class:`~.alike.Alike`.
    """

    decode: Callable[[bytes], str]
    key: bytes


@attrs.frozen
class Wire(Generic[E]):
    """How the body of a stream is read.

    Attributes:
        decode: one event from its name and data; None for what carries nothing. Raises LlmError
            MALFORMED_RESPONSE.
        fast: decodes an event without a name in one call, for the common case: it raises one of
            ``UNDECODABLE`` where ``decode`` must look.
        plain: reads the usual event in a cheaper way, once the response's id is known; the translator is
            then a :class:`TextTranslator`.
        framing: makes the decoder of one response, given the most bytes that one event may have.
        media_type: a part of the content type that a stream declares.
        foreign: first bytes of a body that is not this stream but a web page or a JSON document.
        decode_whole: the event that a whole JSON document is, where a server ignored that it should
            stream; raises LlmError. None where the wire knows no such thing.
    """

    decode: Callable[[str, bytes], E | None]
    fast: Callable[[bytes], E] | None = attrs.field(default=None, kw_only=True)
    plain: PlainText | None = attrs.field(default=None, kw_only=True)
    framing: Callable[[int], SseDecoder | NdjsonDecoder] = SseDecoder
    media_type: str = "event-stream"
    foreign: bytes = b"<{["
    decode_whole: Callable[[bytes], E] | None = None


class EventReader(Generic[E]):
    """Reads one response.

    Attributes:
        found: an event was there.
    """

    def __init__(
        self, wire: Wire[E], translator: Translator[E], max_event_size: int = MAX_EVENT_SIZE
    ) -> None:
        self._translator = translator
        self._framing = wire.framing(max_event_size)
        self._decode = wire.decode
        self._fast = wire.fast
        self._usual = wire.plain
        self._plain: PlainText | None = None  # that, while text is what comes
        self._alike: Alike | None = None
        if wire.plain is not None:
            self._alike = Alike(wire.plain.key)
            self._feed_texts = cast(TextTranslator[E], translator).feed_texts
        self.found = False

    def feed(self, data: bytes, out: list[StreamChunk]) -> None:
        """Append the chunks that one read makes; ``b""`` is the proper end of the body.

        Nothing is read behind the translator's terminal event.

        Raises:
            LlmError: MALFORMED_RESPONSE. What came before it has been appended.
        """
        events = self._framing.feed(data) if data else self._framing.close(True)
        if data and self._alike is not None and (texts := self._alike.texts_of(events)):
            self._feed_texts(texts, out)
            return
        texts = []
        for name, payload in events:
            if self._plain is not None and not name:
                try:
                    texts.append(self._plain.decode(payload))
                    continue
                except UNDECODABLE:
                    self._plain = None
            if texts:
                self._feed_texts(texts, out)
                texts = []
            self._feed_event(name, payload, out)
            if self._translator.terminal:
                return
        if texts:
            self._feed_texts(texts, out)
            if self._alike is not None:
                self._alike.learn(events[-1][1], texts[-1])
                if self._alike.useless:
                    self._alike = None
        if not data:
            self._translator.close(True, out)

    def _feed_event(self, name: str, payload: bytes, out: list[StreamChunk]) -> None:
        event: E | None
        if name or self._fast is None:
            event = self._decode(name, payload)
        else:
            try:
                event = self._fast(payload)
            except UNDECODABLE:
                event = self._decode(name, payload)
        if event is not None:
            self.found = True
            self._translator.feed(event, out)
            if out and type(out[-1]) is TextDelta and self._translator.response_id is not None:
                self._plain = self._usual
