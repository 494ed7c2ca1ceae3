"""The bytes of a streamed response on each wire, encoded once.

One event carries one text delta and is about as large as real providers make it (some 320 bytes).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

HEAD = (
    b"HTTP/1.1 200 OK\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\n"
    b"x-request-id: req_0123456789abcdef\r\n"
    b"transfer-encoding: chunked\r\n"
    b"\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"
TOKENS = (b" token", b" other")
"""The texts of the events, in turn, where they carry no time stamp. One client takes a text that comes
a hundred times on end for a model gone wrong."""


def http_chunk(data: bytes) -> bytes:
    """``data`` as one chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass(frozen=True)
class Wire:
    """One provider's way to say it: the events around the text, and those that carry it."""

    opening: bytes
    before_text: bytes
    after_text: bytes
    closing: bytes

    def event(self, text: bytes = TOKENS[0]) -> bytes:
        """The event of one text delta; ``text`` must need no JSON escape."""
        return self.before_text + text + self.after_text


_CHAT_START = (
    b'data: {"id":"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG","object":"chat.completion.chunk",'
    b'"created":1741570283,"model":"bench-1","service_tier":"default",'
    b'"system_fingerprint":"fp_50cad350e4a0b1c2d3","choices":['
)
_CHAT_END = b'"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"Xy7Qm2Lk9Z"}\n\n'

CHAT = Wire(
    opening=_CHAT_START + b'{"index":0,"delta":{"role":"assistant","content":"","refusal":null},' + _CHAT_END,
    before_text=_CHAT_START + b'{"index":0,"delta":{"content":"',
    after_text=b'"},' + _CHAT_END,
    closing=(
        _CHAT_START
        + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}\n\n'
        + _CHAT_START
        + b'],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}\n\n'
        + b"data: [DONE]\n\n"
    ),
)
"""Chat completions."""

MESSAGES = Wire(
    opening=(
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_01","type":"message",'
        b'"role":"assistant","model":"bench-1","content":[],"stop_reason":null,"stop_sequence":null,'
        b'"usage":{"input_tokens":19,"output_tokens":1}}}\n\n'
        b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        b'"content_block":{"type":"text","text":""}}\n\n'
    ),
    before_text=(
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"'
    ),
    after_text=b'"}}\n\n',
    closing=(
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn",'
        b'"stop_sequence":null},"usage":{"output_tokens":10}}\n\n'
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    ),
)
"""Anthropic messages. Its events are smaller; that is how the wire is."""


def varied_events(wire: Wire) -> Iterator[bytes]:
    """The same with other padding in each, as some providers send it. A wire without padding has none."""
    before, padding, after = wire.after_text.partition(b"Xy7Qm2Lk9Z")
    for number, token in enumerate(itertools.cycle(TOKENS)):
        yield wire.before_text + token + before + (b"%0*d" % (len(padding), number))[: len(padding)] + after


def wire_of(path: bytes) -> Wire:
    """The wire that a request's path asks for."""
    return MESSAGES if path.endswith(b"/messages") else CHAT


def events_in_turn(wire: Wire) -> Iterator[bytes]:
    """The events of an answer, without end."""
    return itertools.cycle([wire.event(token) for token in TOKENS])
