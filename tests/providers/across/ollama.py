"""Ollama's own API."""

from __future__ import annotations

import re
from typing import Any

from trio_llm.providers.ollama import OllamaAdapter
from trio_llm.testing.wire_script import Response

from ..ollama.lines import call, config, done, lines, says
from .wires import LOOK_AT, Said, Wire


def answer(number: int) -> Response:
    return lines(
        says(thinking=f"ollama wonders {number}"),
        says(f"ollama answers {number}"),
        says(tool_calls=[call("look", LOOK_AT), call("list", {})]),
        done(),
    )


def read(body: dict[str, Any]) -> list[Said]:
    said: list[Said] = []
    for turn in body["messages"]:
        match turn["role"]:
            case "tool":
                said.append(Said("result", "user", turn["content"], turn["tool_call_id"]))
            case "assistant" | "user" | "system" as role:
                if turn.get("thinking"):
                    said.append(Said("thinking", role, turn["thinking"]))
                if turn["content"]:
                    said.append(Said("text", role, turn["content"]))
            case other:
                raise AssertionError(f"no role of the wire: {other}")
        said += [Said("image", "user", data) for data in turn.get("images", ())]
        for made in turn.get("tool_calls", ()):
            assert isinstance(made["function"]["arguments"], dict)
            said.append(Said("call", "assistant", made["function"]["name"], made["id"]))
    return said


def check(body: dict[str, Any]) -> None:
    """Results follow their calls at once, one each, by their names."""
    wanted: list[tuple[str, str]] = []
    for turn in body["messages"]:
        if turn["role"] == "tool":
            wanted.remove((turn["tool_call_id"], turn["tool_name"]))
            continue
        assert wanted == []
        wanted = [(made["id"], made["function"]["name"]) for made in turn.get("tool_calls", ())]
    assert wanted == []


OLLAMA_WIRE = Wire(
    name="ollama",
    model="m",
    make=lambda server: OllamaAdapter(config(server)),
    answer=answer,
    read=read,
    check=check,
    call_ids=re.compile("[a-zA-Z0-9_-]{1,64}"),
    foreign_thinking="kept",
)
