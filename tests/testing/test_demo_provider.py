"""The demo provider speaks the wire that it claims to."""

import json
from typing import Any

import httpx
import pytest
import trio

from trio_llm.testing.demo_provider import DEMO_MODEL, demo_provider

KEY = {"authorization": "Bearer any"}


async def ask(path: str = "/chat/completions", headers: dict[str, str] = KEY, **body: Any) -> httpx.Response:
    async with demo_provider() as server, httpx.AsyncClient(trust_env=False) as client:
        url = server.base_url + path
        return await (
            client.post(url, headers=headers, json=body) if body else client.get(url, headers=headers)
        )


async def stream(prompt: str, **body: Any) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """Deltas, usage and finish word of an answer."""
    messages = body.pop("messages", [{"role": "user", "content": prompt}])
    response = await ask(model="m", messages=messages, **body)
    assert response.headers["content-type"] == "text/event-stream"
    *events, done = response.text.strip().split("\n\n")
    assert done == "data: [DONE]"
    *chunks, last, usage = [json.loads(event.removeprefix("data: ")) for event in events]
    assert {chunk["model"] for chunk in chunks} == {"m"}
    return (
        [chunk["choices"][0]["delta"] for chunk in chunks],
        usage["usage"],
        last["choices"][0]["finish_reason"],
    )


def joined(deltas: list[dict[str, Any]], key: str) -> str:
    return "".join(delta.get(key) or "" for delta in deltas)


async def test_thinks_then_says_what_was_said(autojump_clock: trio.testing.MockClock) -> None:
    deltas, usage, finish = await stream("Hello there")
    assert joined(deltas, "content").startswith('You said: "Hello there"\n\nI am the demo provider')
    assert joined(deltas, "reasoning_content").startswith("There is no model here")
    kinds = [next(iter(delta)) for delta in deltas[1:]]
    assert kinds == sorted(kinds, reverse=True)  # reasoning_content before content
    assert finish == "stop"
    assert usage["prompt_tokens"] == 2
    assert usage["completion_tokens"] == len(deltas) - 1
    assert usage["completion_tokens_details"]["reasoning_tokens"] == kinds.count("reasoning_content")


async def test_counts_without_thinking(autojump_clock: trio.testing.MockClock) -> None:
    deltas, _, _ = await stream("Please count to 4!", thinking={"type": "disabled"})
    assert [delta["content"] for delta in deltas] == ["", "1 ", "2 ", "3 ", "4"]


async def test_words_come_one_at_a_time(autojump_clock: trio.testing.MockClock) -> None:
    started = trio.current_time()
    await stream("count to 10", thinking={"type": "disabled"})
    assert trio.current_time() - started == pytest.approx(0.3)


async def test_limit_cuts(autojump_clock: trio.testing.MockClock) -> None:
    deltas, usage, finish = await stream("count to 9", thinking={"type": "disabled"}, max_tokens=3)
    assert joined(deltas, "content") == "1 2 3 "
    assert (usage["completion_tokens"], finish) == (3, "length")


async def test_calls_the_tool_that_the_prompt_names(autojump_clock: trio.testing.MockClock) -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {}}} for name in ("add", "weather")
    ]
    deltas, _, finish = await stream("use weather", tools=tools)
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["function"]["name"] == "weather"
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"demo": True}
    assert finish == "tool_calls"
    assert (await stream("hello", tools=tools))[2] == "stop"


async def test_tells_what_the_tool_answered(autojump_clock: trio.testing.MockClock) -> None:
    messages = [{"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "sunny"}]}]
    assert joined((await stream("", messages=messages))[0], "content") == "The tool answered: sunny"


async def test_lists_its_model() -> None:
    assert [row["id"] for row in (await ask("/models")).json()["data"]] == [DEMO_MODEL]


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/chat/completions", {}, {"messages": []}, 401),
        ("/nowhere", KEY, {"messages": []}, 404),
        ("/chat/completions", KEY, {"prompt": "x"}, 400),
        ("/chat/completions", KEY, {"messages": ["x"]}, 400),
    ],
)
async def test_refuses_what_the_api_would(
    path: str, headers: dict[str, str], body: dict[str, Any], status: int
) -> None:
    response = await ask(path, headers, **body)
    assert response.status_code == status
    assert response.json()["error"]["message"]


async def test_answers_an_empty_conversation(autojump_clock: trio.testing.MockClock) -> None:
    assert joined((await stream("", messages=[]))[0], "content").startswith('You said: ""')


async def test_calls_several_tools_with_the_arguments_that_the_prompt_gives(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {}}} for name in ("add", "weather")
    ]
    prompt = 'weather {"city": "Bonn", "days": {"from": 1}}, then add [1]'
    deltas, _, finish = await stream(prompt, tools=tools)
    arguments: dict[int, str] = {}
    heads = []
    for (call,) in [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]:
        if "id" in call:
            heads.append((call["index"], call["id"], call["function"]["name"]))
        arguments[call["index"]] = arguments.get(call["index"], "") + call["function"]["arguments"]
    assert heads == [(0, "call_1_0", "add"), (1, "call_1_1", "weather")]
    assert arguments == {0: '{"demo": true}', 1: '{"city": "Bonn", "days": {"from": 1}}'}
    assert finish == "tool_calls"


async def test_tells_what_all_tools_of_a_turn_answered(autojump_clock: trio.testing.MockClock) -> None:
    contents = [("tool", "old"), ("assistant", ""), ("tool", "one"), ("tool", "two")]
    messages = [{"role": role, "content": content} for role, content in contents]
    assert joined((await stream("", messages=messages))[0], "content") == "The tool answered: one\ntwo"
