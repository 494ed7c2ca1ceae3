"""The library-backed adapter under the contract that the direct ones hold."""

from __future__ import annotations

import json
import ssl
from functools import partial
from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from trio_llm.providers.pydantic_ai import PydanticAiAdapter, PydanticAiConfig
from trio_llm.providers.pydantic_ai.library import PROVIDERS
from trio_llm.testing.contract import CHECKS, Check, ContractSubject
from trio_llm.testing.wire_server import WireServer

from ...testing.contract_subjects import (
    CHAT_CLOSING,
    CHAT_OPENING,
    MESSAGES_CLOSING,
    MESSAGES_OPENING,
    tls_contexts,
)
from ..openai_responses.responses import created, end, frame, text, usage
from .support import KEY, needs_library

__all__ = ["needs_library"]


def _adapter(provider: str, server: WireServer, context: ssl.SSLContext | None) -> PydanticAiAdapter:
    config = PydanticAiConfig(provider=provider, api_key=KEY, base_url=server.base_url)
    return PydanticAiAdapter({"p": config}, ssl_context=context)


def _gemini(said: str, finish: str | None = None) -> bytes:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": [{"text": said}]}}
    if finish is not None:
        candidate["finishReason"] = finish
    event = {"candidates": [candidate], "modelVersion": "m", "responseId": "r1"}
    return b"data: " + json.dumps(event).encode() + b"\r\n\r\n"


def _cohere(type: str, **fields: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (type.encode(), json.dumps({"type": type, **fields}).encode())


RESPONSES = ("openai", "openai-responses")
CHAT = PROVIDERS.keys() - {*RESPONSES, "anthropic", "cohere", "google"}
HELLO = text(0, "Hello")
SUBJECTS = (
    {
        provider: ContractSubject(
            make=partial(_adapter, provider),
            opening=CHAT_OPENING,
            closing=CHAT_CLOSING,
            shown="Hello",
            model="openai/m" if provider == "openrouter" else "m",  # which wants the maker's name
        )
        for provider in sorted(CHAT)
    }
    | {
        provider: ContractSubject(
            make=partial(_adapter, provider),
            opening=[frame(said) for said in (created(), *HELLO[:-1])],
            closing=[frame(said) for said in (HELLO[-1], end(usage=usage(), output=[HELLO[-1]["item"]]))],
            shown="Hello",
        )
        for provider in RESPONSES
    }
    | {
        "google": ContractSubject(
            make=partial(_adapter, "google"),
            opening=[_gemini("Hel"), _gemini("lo")],
            closing=[_gemini("", "STOP")],
            shown="Hello",
        ),
        "cohere": ContractSubject(
            make=partial(_adapter, "cohere"),
            opening=[
                _cohere("message-start", id="c1", delta={"message": {"role": "assistant"}}),
                _cohere(
                    "content-start", index=0, delta={"message": {"content": {"type": "text", "text": ""}}}
                ),
                _cohere("content-delta", index=0, delta={"message": {"content": {"text": "Hel"}}}),
                _cohere("content-delta", index=0, delta={"message": {"content": {"text": "lo"}}}),
            ],
            closing=[
                _cohere("content-end", index=0),
                _cohere("message-end", id="c1", delta={"finish_reason": "COMPLETE"}),
            ],
            shown="Hello",
        ),
        "anthropic": ContractSubject(
            make=partial(_adapter, "anthropic"),
            opening=MESSAGES_OPENING,
            closing=MESSAGES_CLOSING,
            shown="Hello",
        ),
    }
)
SUBJECTS |= {
    f"{name}-tls": attrs.evolve(SUBJECTS[name], tls=tls_contexts())
    for name in ("openai-chat", "anthropic", "groq")
}


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_P01_holds_the_contract(
    check: Check, subject: ContractSubject, autojump_clock: MockClock
) -> None:
    await check(subject)
