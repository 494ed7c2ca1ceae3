"""The contract's checks, over two adapters that hold it and some that do not."""

from __future__ import annotations

import ssl

import attrs
import pytest
import trio
from trio.testing import MockClock

from trio_llm.model.chunks import BlockEnd, BlockStart, Finish, Stop, TextDelta
from trio_llm.model.content import TextBlock
from trio_llm.model.requests import GenerateOptions
from trio_llm.providers.anthropic import AnthropicAdapter, AnthropicConfig
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
from trio_llm.streaming.contract import ChunkSink, LlmAdapter
from trio_llm.testing.contract import (
    CHECKS,
    Check,
    ContractSubject,
    abort_ends_the_stream,
    answer_is_streamed,
    cut_body_is_a_transport_failure,
    failures_take_one_request,
)
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.transport import TrioTransport

from .contract_subjects import CHAT_CLOSING, CHAT_OPENING, MESSAGES_CLOSING, MESSAGES_OPENING, tls_contexts


def _deepseek(server: WireServer, context: ssl.SSLContext | None) -> LlmAdapter:
    config = DeepSeekConfig(api_key="sk-test-123", base_url=server.base_url)
    return DeepSeekAdapter(config, transport=TrioTransport(ssl_context=context))


def _anthropic(server: WireServer, context: ssl.SSLContext | None) -> LlmAdapter:
    config = AnthropicConfig(api_key="sk-test-123", base_url=server.base_url)
    return AnthropicAdapter(config, transport=TrioTransport(ssl_context=context))


SUBJECTS = {
    "deepseek": ContractSubject(make=_deepseek, opening=CHAT_OPENING, closing=CHAT_CLOSING, shown="Hello"),
    "anthropic": ContractSubject(
        make=_anthropic, opening=MESSAGES_OPENING, closing=MESSAGES_CLOSING, shown="Hello"
    ),
}
SUBJECTS |= {f"{name}-tls": attrs.evolve(subject, tls=tls_contexts()) for name, subject in SUBJECTS.items()}


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_direct_adapters_hold_the_contract(
    check: Check, subject: ContractSubject, autojump_clock: MockClock
) -> None:
    await check(subject)


class _Careless(LlmAdapter):
    """Sends the whole answer without asking anybody, cannot be cancelled, and leaves its socket."""

    def __init__(self, server: WireServer) -> None:
        self._server = server

    async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
        with trio.CancelScope(shield=True):
            stream = await trio.open_tcp_stream("127.0.0.1", self._server.port)
            async with stream:
                await stream.send_all(b"GET / HTTP/1.1\r\nhost: x\r\nuser-agent: x\r\n\r\n")
                await stream.receive_some(1)
        await sink.send_batch(
            [BlockStart(0, "text"), TextDelta(0, "Hello"), BlockEnd(0, TextBlock("Hello")), Finish(Stop())]
        )


@pytest.mark.parametrize(
    "check",
    [answer_is_streamed, failures_take_one_request, cut_body_is_a_transport_failure],
    ids=lambda check: check.__name__,
)
async def test_checks_find_what_is_wrong(check: Check, autojump_clock: MockClock) -> None:
    careless = ContractSubject(
        make=lambda server, context: _Careless(server),
        opening=CHAT_OPENING,
        closing=CHAT_CLOSING,
        shown="Hello",
    )
    with pytest.raises(AssertionError):
        await check(careless)


async def test_a_finish_before_the_text_is_told(autojump_clock: MockClock) -> None:
    wrong = ContractSubject(make=_deepseek, opening=CHAT_CLOSING, closing=(), shown="Hello")
    with pytest.raises(AssertionError, match="finished before its text"):
        await abort_ends_the_stream(wrong)
