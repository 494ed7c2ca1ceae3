"""Every adapter against llmock: answers, tools, and its faults, with its verdict on us at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import attrs
import httpx
import pytest

from trio_llm.model.failures import LlmError
from trio_llm.model.policy import Timeouts
from trio_llm.runtime.runtime import LlmRuntime

from .servers import script, serving
from .talk import (
    CLAUDE,
    WEATHER,
    Endpoint,
    Talk,
    anthropic,
    chat,
    check_calls,
    check_text,
    discovered,
    gemini,
    library,
    responses,
    rows,
)

LLMOCK = script("llmock") or pytest.skip(
    "the package llmock (extra 'interop') is not installed", allow_module_level=True
)

ENDPOINTS = [
    Endpoint("openai", chat("openai"), "/v1"),
    Endpoint(
        "mistral", chat("mistral"), "/mistral/v1", "mistral-small-latest", counts=False
    ),  # only if asked to, unlike Mistral
    Endpoint("groq", chat("groq"), "/groq/openai/v1", "llama-3.3-70b-versatile"),
    Endpoint("together", chat("together"), "/together/v1", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
    Endpoint("xai", chat("xai"), "/xai/v1", "grok-4"),
    Endpoint("anthropic", anthropic, "/anthropic", "claude-sonnet-4-5"),
    Endpoint("gemini", gemini, "/gemini", "gemini-2.5-flash"),
    Endpoint("responses", responses, "/v1"),
]
OVER_LIBRARY = [
    library("openai-chat", "/v1"),
    library("openai-responses", "/v1"),
    library("anthropic", "/anthropic", CLAUDE),
    library("google", "/gemini", "gemini-2.5-flash"),
    # Only if asked to, unlike Groq.
    library("groq", "/groq", "llama-3.3-70b-versatile", counts=False),
    library("cohere", "/cohere", "command-r-plus"),
    library("together", "/together/v1", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("llmock")
    command = lambda port: [LLMOCK, "serve", "--port", str(port), "--log-level", "warning"]  # noqa: E731
    with serving(command, folder / "log", folder) as (base_url, _):
        yield base_url


@attrs.frozen
class Admin:
    """The server's own interface."""

    server: str

    def queue(self, **behavior: Any) -> None:
        """What the next requests get."""
        httpx.post(f"{self.server}/_llmock/scenario", json={"behaviors": [behavior]}).raise_for_status()

    def findings(self) -> list[str]:
        """What it finds wrong with us."""
        verdict = httpx.get(f"{self.server}/_llmock/verdict").raise_for_status().json()
        return [finding["code"] for finding in verdict["findings"]]

    def requests(self) -> list[dict[str, Any]]:
        """What it was asked."""
        seen = httpx.get(f"{self.server}/_llmock/requests").raise_for_status().json()
        assert isinstance(seen["requests"], list)
        return seen["requests"]


@pytest.fixture
def admin(server: str) -> Admin:
    httpx.post(f"{server}/_llmock/reset").raise_for_status()
    return Admin(server)


@pytest.fixture(params=rows([*ENDPOINTS, *OVER_LIBRARY]))
async def talk(request: pytest.FixtureRequest, server: str) -> AsyncIterator[Talk]:
    async with LlmRuntime() as llm:
        llm.register_adapter("p", request.param.adapter(server))
        yield Talk(llm, request.param)


async def test_text(talk: Talk, admin: Admin) -> None:
    admin.queue(type="reply", text="Hello, wörld \U0001f600.")
    assert check_text(await talk.ask("hi"), talk.endpoint) == "Hello, wörld \U0001f600."
    check_text(await talk.ask("and again"), talk.endpoint)
    assert admin.findings() == []


async def test_tools_run_and_the_answer_follows(talk: Talk, admin: Admin) -> None:
    asked = await talk.ask("What's the weather in Paris?", tools=[WEATHER])
    check_calls(asked, ["get_weather"])
    (call,) = await talk.answer_calls(asked, "21 degrees")
    assert "city" in call.arguments
    check_text(await talk.go_on(tools=[WEATHER]), talk.endpoint)
    assert admin.findings() == []


async def test_two_calls_at_once(talk: Talk, admin: Admin) -> None:
    calls = [{"name": "get_weather", "arguments": {"city": city}} for city in ("Paris", "Rome")]
    admin.queue(type="reply", tool_calls=calls)
    asked = await talk.ask("weather", tools=[WEATHER])
    check_calls(asked, ["get_weather", "get_weather"])
    found = await talk.answer_calls(asked, "mild")
    assert ["Paris" in found[0].arguments, "Rome" in found[1].arguments] == [True, True]
    assert found[0].id != found[1].id


@pytest.mark.parametrize(
    "fault",
    [
        {"type": "fail", "status": 429, "retry_after": 0.3},
        {"type": "fail", "status": 503},
        {"type": "stream_fault", "kind": "disconnect", "after_chunks": 2},
        {"type": "stream_fault", "kind": "truncate", "after_chunks": 2},
        {"type": "stream_fault", "kind": "stall", "after_chunks": 2, "stall_seconds": 10},
    ],
    ids=lambda fault: f"{fault.get('kind', fault.get('status'))}",
)
async def test_faults_that_pass_are_got_over_and_the_verdict_is_clean(
    talk: Talk, admin: Admin, fault: dict[str, Any]
) -> None:
    admin.queue(**fault)
    check_text(await talk.ask("tell me a long story about two foxes and a hen"), talk.endpoint)
    assert len(admin.requests()) == 2
    assert admin.findings() == []


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"type": "fail", "status": 401}, "AUTH"),
        ({"type": "fail", "status": 400}, "INVALID_REQUEST"),
        ({"type": "fail", "status": 404}, "INVALID_REQUEST"),
        ({"type": "stream_fault", "kind": "malformed", "after_chunks": 2}, "MALFORMED_RESPONSE"),
    ],
)
async def test_faults_that_stay_are_told_at_once(
    talk: Talk, admin: Admin, fault: dict[str, Any], code: str
) -> None:
    admin.queue(**fault)
    with pytest.raises(LlmError) as caught:
        await talk.ask("tell me a long story about two foxes and a hen")
    assert caught.value.code == code
    assert len(admin.requests()) == 1
    assert not set(admin.findings()) - {"malformed_chunk_ignored"}


async def test_an_outage_ends_in_its_last_failure(talk: Talk, admin: Admin) -> None:
    admin.queue(type="fail", status=503, times=None)
    with pytest.raises(LlmError) as caught:
        await talk.ask("hi")
    assert caught.value.code == "SERVER"
    assert len(admin.requests()) == 4
    assert admin.findings() in ([], ["gave_up"])


async def test_a_slow_first_token_is_waited_for(talk: Talk, admin: Admin) -> None:
    admin.queue(type="slow_first_token", seconds=0.4)
    check_text(await talk.ask("hi"), talk.endpoint)
    admin.queue(type="slow_first_token", seconds=5)
    check_text(await talk.ask("hi again", timeouts=Timeouts(first_event=0.3)), talk.endpoint)
    assert len(admin.requests()) == 3


# Without the library's adapter, which asks no endpoint.
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
async def test_the_endpoint_lists_its_models(server: str, endpoint: Endpoint, admin: Admin) -> None:
    async with endpoint.adapter(server) as adapter:
        assert await discovered(adapter)
