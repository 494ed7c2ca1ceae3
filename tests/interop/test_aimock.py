"""Every adapter against aimock: scripted answers on all of its wires."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from trio_llm.model.chunks import MaxTokens
from trio_llm.model.content import ReasoningBlock, text_of
from trio_llm.model.failures import LlmError
from trio_llm.runtime.runtime import LlmRuntime

from .servers import aimock
from .talk import (
    CLAUDE,
    WEATHER,
    Endpoint,
    Talk,
    anthropic,
    chat,
    check_calls,
    check_text,
    gemini,
    library,
    ollama,
    responses,
    rows,
)

CLI = Path(os.environ.get("AIMOCK_CLI_PATH", "")).resolve()
"""The file ``dist/cli.js`` of the npm package @copilotkit/aimock."""

NODE = shutil.which("node") or ""
if not (NODE and CLI.is_file()):
    pytest.skip(
        "no Node.js, or AIMOCK_CLI_PATH does not name dist/cli.js of the npm package @copilotkit/aimock",
        allow_module_level=True,
    )

CALLS = [{"name": "get_weather", "arguments": {"city": city}} for city in ("Paris", "Rome")]
FIXTURES: list[dict[str, Any]] = [
    {"match": {"userMessage": "hello"}, "response": {"content": "Hello, wörld \U0001f600. " + "x" * 100}},
    {"match": {"userMessage": "think"}, "response": {"content": "Yes.", "reasoning": "Let me see. " * 5}},
    {"match": {"userMessage": "cut"}, "response": {"content": "Half an", "finishReason": "length"}},
    {
        "match": {"userMessage": "busy", "sequenceIndex": 0},
        "response": {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429},
    },
    {"match": {"userMessage": "busy"}, "response": {"content": "Now then."}},
    {
        "match": {"userMessage": "locked"},
        "response": {"error": {"message": "bad key", "type": "authentication_error"}, "status": 401},
    },
    {
        "match": {"userMessage": "broken", "sequenceIndex": 0},
        "response": {"content": "A long story of two foxes and a hen " * 20},
        "truncateAfterChunks": 3,
    },
    {"match": {"userMessage": "broken"}, "response": {"content": "The end."}},
    {"match": {"userMessage": "weather", "hasToolResult": True}, "response": {"content": "Mild in both."}},
    {"match": {"userMessage": "weather"}, "response": {"content": "I ask.", "toolCalls": CALLS}},
]

ENDPOINTS = [
    Endpoint("openai", chat("openai"), "/v1", "gpt-5"),
    Endpoint("openrouter", chat("openrouter"), "/api/v1", "openai/gpt-5"),
    Endpoint("responses", responses, "/v1", "gpt-5"),
    Endpoint("anthropic", anthropic, "", "claude-sonnet-4-5"),
    Endpoint("gemini", gemini, "", "gemini-2.5-flash"),
    Endpoint("ollama", ollama, "", "llama3"),
    # Where the server says 0 of a count, the library's adapter tells none.
    library("openai-chat", "/v1", "gpt-5"),
    library("openai-responses", "/v1", "gpt-5", counts=False),
    library("openrouter", "/api/v1", "openai/gpt-5"),
    library("anthropic", "", CLAUDE, counts=False),
    library("google", "", "gemini-2.5-flash", counts=False),
    library("cohere", "", "command-r-plus", counts=False),
]


DEPARTURES = {
    ("ollama", "thinking"): "the server spells `thinking` as `reasoning_content`, which no Ollama does",
    ("gemini", "calls"): "the server ends with FUNCTION_CALL, a word the Gemini API does not have",
    ("responses", "limit"): "the server leaves out `incomplete_details`, which say that it was the limit",
    ("ollama", "limit"): "the server says `stop` whatever the fixture says",
    ("library-cohere", "thinking"): "the server sends thinking as text, unlike Cohere",
}
"""Where the server departs from the wire it stands for, so that there is nothing to test."""
DEPARTURES["library-google", "calls"] = DEPARTURES["gemini", "calls"]
DEPARTURES["library-openai-responses", "limit"] = DEPARTURES["responses", "limit"]


def abiding(what: str) -> pytest.MarkDecorator:
    """Runs a test where the server keeps to the wire in that."""
    kept = [endpoint for endpoint in ENDPOINTS if (endpoint.name, what) not in DEPARTURES]
    return pytest.mark.parametrize("talk", rows(kept), indirect=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("aimock")
    with aimock(folder, NODE, CLI, FIXTURES, "-l", "1") as base_url:
        yield base_url


@pytest.fixture(params=rows(ENDPOINTS))
async def talk(request: pytest.FixtureRequest, server: str) -> AsyncIterator[Talk]:
    async with LlmRuntime() as llm:
        llm.register_adapter("p", request.param.adapter(server))
        yield Talk(llm, request.param)


async def test_text(talk: Talk) -> None:
    assert check_text(await talk.ask("hello"), talk.endpoint) == "Hello, wörld \U0001f600. " + "x" * 100


@abiding("thinking")
async def test_thinking(talk: Talk) -> None:
    answer = await talk.ask("think")
    assert check_text(answer, talk.endpoint) == "Yes."
    thoughts = [block.text for block in answer.message.content if isinstance(block, ReasoningBlock)]
    assert "".join(thoughts) == "Let me see. " * 5
    check_text(await talk.ask("hello"), talk.endpoint)  # and the next request is taken


@abiding("calls")
async def test_text_and_two_calls_at_once(talk: Talk) -> None:
    asked = await talk.ask("weather", tools=[WEATHER])
    assert text_of(asked.message.content) == "I ask."
    check_calls(asked, ["get_weather", "get_weather"])
    paris, rome = await talk.answer_calls(asked, "21 degrees")
    assert (json.loads(paris.arguments), json.loads(rome.arguments)) == ({"city": "Paris"}, {"city": "Rome"})
    assert check_text(await talk.go_on(tools=[WEATHER]), talk.endpoint) == "Mild in both."


@abiding("limit")
async def test_the_token_limit(talk: Talk) -> None:
    answer = await talk.ask("cut")
    assert isinstance(answer.finish, MaxTokens)
    assert text_of(answer.message.content) == "Half an"


async def test_faults_that_pass_are_got_over(talk: Talk) -> None:
    assert check_text(await talk.ask("busy"), talk.endpoint) == "Now then."
    assert check_text(await talk.ask("broken"), talk.endpoint) == "The end."


async def test_a_fault_that_stays_is_told(talk: Talk) -> None:
    with pytest.raises(LlmError) as caught:
        await talk.ask("locked")
    assert caught.value.code == "AUTH"
