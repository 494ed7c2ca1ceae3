"""The library-backed adapter under the contract that the direct ones hold."""

from __future__ import annotations

import ssl
from functools import partial

import pytest
from trio.testing import MockClock

from trio_llm.providers.pydantic_ai import PydanticAiAdapter, PydanticAiConfig
from trio_llm.testing.contract import CHECKS, Check, ContractSubject
from trio_llm.testing.wire_server import WireServer

from ...testing.contract_subjects import (
    CHAT_CLOSING,
    CHAT_OPENING,
    MESSAGES_CLOSING,
    MESSAGES_OPENING,
    tls_contexts,
)
from .support import KEY, needs_library

__all__ = ["needs_library"]


def _adapter(provider: str, server: WireServer, context: ssl.SSLContext | None) -> PydanticAiAdapter:
    config = PydanticAiConfig(provider=provider, api_key=KEY, base_url=server.base_url)
    return PydanticAiAdapter({"p": config}, ssl_context=context)


TLS = tls_contexts()
CHAT = ("openai-chat", "deepseek", "groq", "cerebras", "ollama", "together")
SUBJECTS = {
    provider: ContractSubject(
        make=partial(_adapter, provider),
        opening=CHAT_OPENING,
        closing=CHAT_CLOSING,
        shown="Hello",
        tls=TLS,
    )
    for provider in CHAT
} | {
    "anthropic": ContractSubject(
        make=partial(_adapter, "anthropic"),
        opening=MESSAGES_OPENING,
        closing=MESSAGES_CLOSING,
        shown="Hello",
        tls=TLS,
    ),
}


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_P01_holds_the_contract(
    check: Check, subject: ContractSubject, autojump_clock: MockClock
) -> None:
    await check(subject)
