"""P01: one call is one request, whatever the library and its SDKs would do by themselves."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Error, Finish
from trio_llm.providers.pydantic_ai.library import PROVIDERS, load_library
from trio_llm.providers.pydantic_ai.observer import ObservedExchange, make_http_client
from trio_llm.testing.wire_script import Response, event_stream, json_response
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.client import HttpClient

from ..wire import RecordingSink, ask, run
from .support import ANSWER, adapter_for, needs_library

__all__ = ["needs_library"]


async def test_P01_a_redirect_is_not_followed() -> None:
    answer = Response(307, (("location", "/other"),), b"", framing="length")
    async with WireServer([answer]) as server, adapter_for(server) as adapter:
        chunks, _ = await run(adapter)
    assert len(server.requests) == 1
    assert isinstance(chunks[-1], Finish)


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
async def test_P01_a_busy_server_is_asked_once(
    provider: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    handle = ObservedExchange.handle_async_request

    async def counted(exchange: ObservedExchange, request: Any) -> Any:
        tries.append(str(request.url))  # the second would be refused, so the server does not see it
        return await handle(exchange, request)

    monkeypatch.setattr(ObservedExchange, "handle_async_request", counted)
    answer = json_response({"error": {"message": "busy"}}, 503)
    async with WireServer([answer] * 3) as server, adapter_for(server, provider) as adapter:
        began = trio.current_time()
        chunks, _ = await run(adapter, ask(model="upstream/m"))
        assert trio.current_time() == began  # and nothing waited to ask again
    assert (len(tries), len(server.requests)) == (1, 1)
    assert isinstance(chunks[-1], Finish)
    assert isinstance(chunks[-1].reason, Error)
    assert chunks[-1].reason.failure.code == codes.SERVER


@pytest.mark.parametrize(
    "provider", [name for name, known in PROVIDERS.items() if known.retries == "setting"]
)
async def test_P01_an_sdk_is_told_not_to_retry_whatever_its_default(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The present SDKs repeat no stream of their own accord; nothing promises that they never will.
    direct = load_library().direct
    request_stream = direct.model_request_stream
    told: list[Any] = []

    def recorded(*args: Any, **fields: Any) -> Any:
        told.append(fields["model_settings"])
        return request_stream(*args, **fields)

    monkeypatch.setattr(direct, "model_request_stream", recorded)
    async with WireServer([event_stream(*ANSWER)]) as server, adapter_for(server, provider) as adapter:
        await run(adapter)
    assert [settings["max_retries"] for settings in told] == [0]


async def test_P01_a_second_request_of_the_library_is_refused() -> None:
    http = pytest.importorskip("httpx2")

    async def nothing() -> None:
        await trio.lowlevel.checkpoint()

    async with (
        WireServer([event_stream(*ANSWER)]) as server,
        HttpClient() as client,
        ObservedExchange(client, RecordingSink(), http, [], (), nothing) as exchange,
    ):
        library_client = make_http_client(exchange, http)
        await library_client.post(server.base_url, json={})
        with pytest.raises(http.ConnectError, match="second request"):
            await library_client.post(server.base_url, json={})
        assert exchange.fault() is exchange.failure is not None
        assert len(server.requests) == 1
