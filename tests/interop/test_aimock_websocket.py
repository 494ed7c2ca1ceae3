"""The Responses API over WebSockets against aimock, which frames and unmasks by itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import trio

from trio_llm.model.chunks import Aborted, Error, Stop, TextDelta
from trio_llm.model.content import ReasoningBlock, TextBlock, text_of
from trio_llm.model.identifiers import SessionId
from trio_llm.model.messages import create_user_message
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.stream import ChunkStream

from .servers import aimock
from .talk import WEATHER, Endpoint, Talk, check_calls, check_text, responses_websocket
from .test_aimock import CALLS, CLI, NODE

STORY = "A long story of two foxes and a hen. " * 40
FIXTURES: list[dict[str, Any]] = [
    {"match": {"hasToolResult": True}, "response": {"content": "Mild in both."}},
    {"match": {"userMessage": "hello"}, "response": {"content": "Hello, wörld \U0001f600. " + "x" * 70_000}},
    {"match": {"userMessage": "think"}, "response": {"content": "Yes.", "reasoning": "Let me see. " * 5}},
    {"match": {"userMessage": "weather"}, "response": {"content": "I ask.", "toolCalls": CALLS}},
    {"match": {"userMessage": "slowly"}, "response": {"content": STORY}, "latency": 30},
    {"match": {"userMessage": "cut"}, "response": {"content": STORY}, "truncateAfterChunks": 8},
    {
        "match": {"userMessage": "gone"},
        "response": {"content": STORY},
        "latency": 30,
        "disconnectAfterMs": 300,
    },
    {"match": {"userMessage": "at once"}, "response": {"content": STORY}, "truncateAfterChunks": 1},
    {
        "match": {"userMessage": "busy"},
        "response": {
            "error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"},
            "status": 429,
        },
    },
]
KEY = "sk-test"
SESSION = SessionId("s")
WEBSOCKET = Endpoint("websocket", responses_websocket, "/v1", "gpt-5")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("aimock")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIMOCK_API_KEYS", KEY)
        with aimock(folder, NODE, CLI, FIXTURES) as base_url:
            yield base_url


@pytest.fixture(autouse=True)
def no_journal(server: str) -> None:
    httpx.post(f"{server}/__aimock/reset/journal", headers=_AUTHORIZED).raise_for_status()


@pytest.fixture
async def talk(server: str) -> AsyncIterator[Talk]:
    async with LlmRuntime() as llm:
        llm.register_adapter("p", WEBSOCKET.adapter(server))
        yield Talk(llm, WEBSOCKET)


_AUTHORIZED = {"authorization": f"Bearer {KEY}"}


def roles(server: str) -> list[list[str]]:
    """Whose the messages were that each request carried over a WebSocket."""
    entries = httpx.get(f"{server}/__aimock/journal", headers=_AUTHORIZED).raise_for_status().json()
    return [
        [message["role"] for message in entry["body"]["messages"]]
        for entry in entries
        if entry["method"] == "WS"
    ]


async def finished(talk: Talk, text: str, **fields: Any) -> ChunkStream:
    """One attempt, read to its end."""
    messages = [*talk.history, create_user_message(text)]
    async with talk.llm.stream(talk.options(messages=messages, session_id=SESSION, **fields)) as stream:
        async for _ in stream:
            pass
    return stream


async def test_two_turns_on_one_session_and_only_what_is_new(talk: Talk, server: str) -> None:
    answer = await talk.ask("hello", session_id=SESSION)
    assert check_text(answer, talk.endpoint) == "Hello, wörld \U0001f600. " + "x" * 70_000
    answer = await talk.ask("think", session_id=SESSION)
    assert check_text(answer, talk.endpoint) == "Yes."
    thoughts = [block.text for block in answer.message.content if isinstance(block, ReasoningBlock)]
    assert "".join(thoughts) == "Let me see. " * 5
    assert roles(server) == [["user"], ["user"]]


async def test_tools_and_the_answer_to_their_results(talk: Talk, server: str) -> None:
    asked = await talk.ask("weather", tools=[WEATHER], session_id=SESSION)
    assert text_of(asked.message.content) == "I ask."
    check_calls(asked, ["get_weather", "get_weather"])
    paris, rome = await talk.answer_calls(asked, "21 degrees")
    assert (json.loads(paris.arguments), json.loads(rome.arguments)) == ({"city": "Paris"}, {"city": "Rome"})
    answer = await talk.go_on(tools=[WEATHER], session_id=SESSION)
    assert check_text(answer, talk.endpoint) == "Mild in both."
    # The server itself puts a call in front of results whose call it does not see.
    assert roles(server) == [["user"], ["assistant", "tool", "tool"]]


async def test_an_abort_in_the_middle_closes_and_the_next_turn_carries_everything(
    talk: Talk, server: str
) -> None:
    await talk.ask("think", session_id=SESSION)
    messages = [*talk.history, create_user_message("slowly")]
    async with talk.llm.stream(talk.options(messages=messages, session_id=SESSION)) as stream:
        async for chunk in stream:
            if isinstance(chunk, TextDelta):
                stream.abort("enough")
    assert isinstance(stream.finish, Aborted)
    assert isinstance(stream.partial[0], TextBlock)
    assert STORY.startswith(stream.partial[0].text)
    await talk.ask("think", session_id=SESSION)
    assert roles(server) == [["user"], ["user"], ["user", "assistant", "user"]]


@pytest.mark.parametrize("fault", ["cut", "gone"])
async def test_a_connection_that_is_destroyed_in_the_middle(talk: Talk, server: str, fault: str) -> None:
    stream = await finished(talk, fault)
    assert isinstance(stream.finish, Error)
    assert stream.finish.failure.code == "TRANSPORT"
    assert isinstance(stream.partial[0], TextBlock)
    assert stream.partial[0].text
    assert STORY.startswith(stream.partial[0].text)
    assert len(stream.settlements) == 1
    assert (await finished(talk, "hello")).finish == Stop(raw="completed")


async def test_a_connection_that_is_destroyed_after_the_first_event(talk: Talk) -> None:
    stream = await finished(talk, "at once")
    assert isinstance(stream.finish, Error)
    assert stream.finish.failure.code == "TRANSPORT"


async def test_an_error_of_the_server(talk: Talk) -> None:
    stream = await finished(talk, "busy")
    assert isinstance(stream.finish, Error)
    assert (stream.finish.failure.code, stream.finish.failure.message) == ("RATE_LIMIT", "slow down")


async def test_a_close_with_a_code(talk: Talk) -> None:
    stream = await finished(talk, "nothing matches this")
    assert isinstance(stream.finish, Error)
    assert stream.finish.failure.code == "STREAM_CLOSED"
    assert "1008" in stream.finish.failure.message


async def test_a_bad_key_is_told_by_the_upgrade(server: str) -> None:
    async with LlmRuntime() as llm:
        llm.register_adapter("p", responses_websocket(f"{server}/v1", api_key="sk-other"))
        stream = await finished(Talk(llm, WEBSOCKET), "hello")
    assert isinstance(stream.finish, Error)
    assert stream.finish.failure.code == "AUTH"
    assert len(stream.settlements) == 1


async def test_two_calls_on_one_session_at_once(talk: Talk) -> None:
    results: dict[str, ChunkStream] = {}

    async def call(text: str) -> None:
        results[text] = await finished(talk, text)

    async with trio.open_nursery() as nursery:
        for text in ("slowly", "hello", "think"):
            nursery.start_soon(call, text)
    answers = {text: text_of(stream.message.content) for text, stream in results.items() if stream.message}
    assert answers == {
        "slowly": STORY,
        "hello": "Hello, wörld \U0001f600. " + "x" * 70_000,
        "think": "Yes.",
    }
