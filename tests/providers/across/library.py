"""The library-backed adapter on the chat wire, where pydantic-ai writes the bodies."""

from __future__ import annotations

import json
import re
from typing import Any

from trio_llm.streaming.contract import LlmAdapter
from trio_llm.testing.wire_script import Response, event_stream
from trio_llm.testing.wire_server import WireServer

from .wires import LOOK, Said, Wire


def _make(server: WireServer) -> LlmAdapter:
    from trio_llm.providers.pydantic_ai import PydanticAiAdapter, PydanticAiConfig

    config = PydanticAiConfig(provider="openai-chat", api_key="sk-test-123", base_url=server.base_url)
    return PydanticAiAdapter({"one": config, "other": config})


def answer(number: int) -> Response:
    def event(finish_reason: str | None = None, **delta: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        chunk = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
        return b"data: %b\n\n" % json.dumps(chunk).encode()

    def call(index: int, name: str, arguments: str) -> bytes:
        function = {"name": name, "arguments": arguments}
        id = f"call_{number}{index}"
        return event(tool_calls=[{"index": index, "id": id, "type": "function", "function": function}])

    return event_stream(
        event(role="assistant", reasoning_content=f"library wonders {number}"),
        event(content=f"library answers {number}"),
        call(0, "look", LOOK),
        call(1, "list", "{}"),
        event("tool_calls"),
        b"data: [DONE]\n\n",
    )


def read(body: dict[str, Any]) -> list[Said]:
    said: list[Said] = []
    for turn in body["messages"]:
        match turn["role"]:
            case "tool":
                said.append(Said("result", "user", turn["content"], turn["tool_call_id"]))
                continue
            case "developer" | "system":
                role: Any = "system"
            case "user" | "assistant" as role:
                pass
            case other:
                raise AssertionError(f"no role of the wire: {other}")
        if turn.get("reasoning_content"):
            said.append(Said("thinking", role, turn["reasoning_content"]))
        content = turn.get("content") or ""
        parts: Any = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            if part["type"] == "text":
                if part["text"]:
                    said.append(Said("text", role, part["text"]))
            else:
                said.append(Said("image", role, part["image_url"]["url"]))
        for call in turn.get("tool_calls") or ():
            json.loads(call["function"]["arguments"])
            said.append(Said("call", "assistant", call["function"]["name"], call["id"]))
    return said


def check(body: dict[str, Any]) -> None:
    """Results follow their calls, one each, before anybody else speaks."""
    wanted: list[str] = []
    for turn in body["messages"]:
        if turn["role"] == "tool":
            if turn["tool_call_id"] in wanted:
                wanted.remove(turn["tool_call_id"])
        else:
            assert wanted == []
            wanted = [call["id"] for call in turn.get("tool_calls") or ()]
    assert wanted == []


LIBRARY_WIRE = Wire(
    name="library",
    model="m",
    make=_make,
    answer=answer,
    read=read,
    check=check,
    call_ids=re.compile("[!-~]{1,64}"),
    foreign_thinking="dropped",
    broken_calls=("cut",),  # with no arguments
    keeps_orphans=True,
    package="pydantic_ai",
)
