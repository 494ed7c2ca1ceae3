"""What the adapters of this project are put through the contract with."""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from typing import Any

import trustme


def tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's context for 127.0.0.1."""
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


def _chat(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


CHAT_OPENING = (_chat({"role": "assistant", "content": "Hel"}), _chat({"content": "lo"}))
CHAT_CLOSING = (_chat({}, "stop"), b"data: [DONE]\n\n")


def _named(events: Sequence[dict[str, Any]]) -> tuple[bytes, ...]:
    return tuple(
        b"event: %s\ndata: %s\n\n" % (event["type"].encode(), json.dumps(event).encode()) for event in events
    )


def _text(text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


MESSAGES_OPENING = _named(
    [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 3, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        _text("Hel"),
        _text("lo"),
    ]
)
MESSAGES_CLOSING = _named(
    [
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]
)
