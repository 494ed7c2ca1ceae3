"""The chat and the Messages adapter against fakellm: an agent's turns by rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
    library,
    rows,
)

FAKELLM = script("fakellm") or pytest.skip(
    "the package fakellm (extra 'interop') is not installed", allow_module_level=True
)

RULES = """
version: 1
rules:
  - name: call
    when: {turn: 1, messages_contain: weather}
    respond:
      tool_calls:
        - {name: get_weather, arguments: {city: Paris}}
        - {name: get_weather, arguments: {city: Rome}}
  - name: conclude
    when: {turn: 2, tool_result_contains: "21 degrees"}
    respond: {content: "It is mild in both."}
  - name: hello
    when: {messages_contain: hello}
    respond: {content: "Hello, w\u00f6rld."}
"""

ENDPOINTS = [
    Endpoint("openai", chat("openai"), "/v1", counts=False),
    Endpoint("deepseek-like", chat("vllm"), "/v1", "some/model", counts=False),
    Endpoint("anthropic", anthropic, "", "claude-sonnet-4-5", counts=False),
    library("openai-chat", "/v1", counts=False),
    library("vllm", "/v1", "some/model", counts=False),
    library("anthropic", "", CLAUDE, counts=False),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("fakellm")
    rules = folder / "fakellm.yaml"
    rules.write_text(RULES)

    def command(port: int) -> list[str]:
        return [FAKELLM, "serve", "--port", str(port), "--config", str(rules)]

    with serving(command, folder / "log", folder) as (base_url, _):
        yield base_url


@pytest.mark.parametrize("endpoint", rows(ENDPOINTS))
async def test_an_agents_turns(server: str, endpoint: Endpoint) -> None:
    async with LlmRuntime() as llm:
        llm.register_adapter("p", endpoint.adapter(server))
        talk = Talk(llm, endpoint)
        asked = await talk.ask(f"weather, {endpoint.name}?", tools=[WEATHER])
        check_calls(asked, ["get_weather", "get_weather"])
        paris, rome = await talk.answer_calls(asked, "21 degrees")
        assert "Paris" in paris.arguments
        assert "Rome" in rome.arguments
        assert check_text(await talk.go_on(tools=[WEATHER]), endpoint) == "It is mild in both."


@pytest.mark.parametrize("endpoint", rows(ENDPOINTS))
async def test_text_by_a_rule_and_by_none(server: str, endpoint: Endpoint) -> None:
    async with LlmRuntime() as llm:
        llm.register_adapter("p", endpoint.adapter(server))
        talk = Talk(llm, endpoint)
        assert check_text(await talk.ask("hello"), endpoint) == "Hello, wörld."
        check_text(await Talk(llm, endpoint).ask("something else"), endpoint)
