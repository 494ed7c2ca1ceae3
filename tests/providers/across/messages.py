"""Anthropic's Messages."""

from __future__ import annotations

import re
from typing import Any

from trio_llm.providers.anthropic import AnthropicAdapter
from trio_llm.testing.wire_script import Response, event_stream

from ..anthropic.messages import begin, call, config, delta, end, start, stop, text
from ..published import check_published
from .wires import LOOK, Said, Wire

SIGNATURE = "EqRkYWxsLW1pbmU="


def answer(number: int) -> Response:
    thinking = (
        begin(0, type="thinking", thinking="", signature="")
        + delta(0, "thinking_delta", thinking=f"anthropic wonders {number}")
        + delta(0, "signature_delta", signature=SIGNATURE)
        + stop(0)
    )
    return event_stream(
        start(),
        thinking,
        text(1, f"anthropic answers {number}"),
        call(2, LOOK, id=f"toolu_{number}a", name="look"),
        call(3, id=f"toolu_{number}b", name="list"),
        end("tool_use"),
    )


def read(body: dict[str, Any]) -> list[Said]:
    said = [Said("text", "system", part["text"]) for part in body.get("system", ())]
    for turn in body["messages"]:
        role = turn["role"]
        for part in turn["content"]:
            match part["type"]:
                case "text":
                    said.append(Said("text", role, part["text"]))
                case "thinking":
                    assert role == "assistant"
                    assert part["signature"]
                    said.append(Said("thinking", role, part["thinking"]))
                case "tool_use":
                    assert isinstance(part["input"], dict)
                    said.append(Said("call", "assistant", part["name"], part["id"]))
                case "tool_result":
                    texts = [item["text"] for item in part["content"] if item["type"] == "text"]
                    said.append(Said("result", role, "".join(texts), part["tool_use_id"]))
                    said += [
                        Said("image", role, item["source"]["data"])
                        for item in part["content"]
                        if item["type"] == "image"
                    ]
                case "image":
                    said.append(Said("image", role, part["source"]["data"]))
                case other:
                    raise AssertionError(f"a part of type {other}")
    return said


def check(body: dict[str, Any]) -> None:
    """Roles alternate, the user begins, results open the message behind their calls."""
    wanted: list[str] = []
    for number, turn in enumerate(body["messages"]):
        assert turn["role"] == ("user", "assistant")[number % 2]
        assert turn["content"]
        kinds = [part["type"] for part in turn["content"]]
        results = [part["tool_use_id"] for part in turn["content"] if part["type"] == "tool_result"]
        assert results == wanted
        assert kinds[: len(results)] == ["tool_result"] * len(results)
        wanted = [part["id"] for part in turn["content"] if part["type"] == "tool_use"]
        assert all(part["text"].strip() for part in turn["content"] if part["type"] == "text")
    assert wanted == []
    check_published(body, "anthropic.types.beta.message_create_params", "MessageCreateParamsStreaming")


MESSAGES_WIRE = Wire(
    name="anthropic",
    model="claude-opus-4-6",
    make=lambda server: AnthropicAdapter(config(server)),
    answer=answer,
    read=read,
    check=check,
    call_ids=re.compile("[a-zA-Z0-9_-]{1,64}"),
    foreign_thinking="dropped",
    secret=SIGNATURE,
)
