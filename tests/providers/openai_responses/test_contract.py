"""The adapter under the checks that every adapter can be put through."""

from __future__ import annotations

import ssl

import pytest
from trio.testing import MockClock

from trio_llm.providers.openai_responses import ResponsesAdapter
from trio_llm.streaming.contract import LlmAdapter
from trio_llm.testing.contract import CHECKS, Check, ContractSubject
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.transport import TrioTransport

from ...testing.contract_subjects import tls_contexts
from .responses import config, created, end, frame, text, usage


def make(server: WireServer, context: ssl.SSLContext | None) -> LlmAdapter:
    return ResponsesAdapter(config(server), transport=TrioTransport(ssl_context=context))


HELLO = text(0, "Hello")
SUBJECT = ContractSubject(
    make=make,
    opening=[frame(said) for said in (created(), *HELLO[:-1])],
    closing=[frame(said) for said in (HELLO[-1], end(usage=usage()))],
    shown="Hello",
    tls=tls_contexts(),
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_adapter_holds_the_contract(check: Check, autojump_clock: MockClock) -> None:
    await check(SUBJECT)
