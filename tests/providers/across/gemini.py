"""The Gemini API."""

from __future__ import annotations

from typing import Any

from trio_llm.providers.gemini import GeminiAdapter
from trio_llm.testing.wire_script import Response, event_stream

from ..gemini.events import call, config, end, event, text, thought
from .wires import LOOK_AT, Role, Said, Wire

SIGNATURE = "Q29uc3RhbnRpbm9wbGU="


def answer(number: int) -> Response:
    return event_stream(
        event(thought(f"gemini wonders {number}")),
        event(text(f"gemini answers {number}")),
        end(call("look", LOOK_AT, signature=SIGNATURE), call("list", {})),
    )


def read(body: dict[str, Any]) -> list[Said]:
    said: list[Said] = []
    for turn in body["contents"]:
        role: Role = "assistant" if turn["role"] == "model" else "user"
        for part in turn["parts"]:
            match part:
                case {"text": str(words)}:
                    said.append(Said("thinking" if part.get("thought") else "text", role, words))
                case {"functionCall": {"name": str(name), "args": dict()}}:
                    said.append(Said("call", "assistant", name, name))
                case {"functionResponse": {"name": str(name), "response": {**response}}}:
                    said.append(Said("result", role, "".join(map(str, response.values())), name))
                case {"inlineData": {"data": str(data), "mimeType": "image/png"}}:
                    said.append(Said("image", role, data))
                case _:
                    raise AssertionError(f"no part of the wire: {part}")
    return said


def check(body: dict[str, Any]) -> None:
    """Roles alternate, the user begins, a result for each call comes first; a turn's first call is signed."""
    wanted: list[str] = []
    for number, turn in enumerate(body["contents"]):
        assert turn["role"] == ("user", "model")[number % 2]
        assert turn["parts"]
        results = [part["functionResponse"]["name"] for part in turn["parts"] if "functionResponse" in part]
        assert results == wanted
        assert all("functionResponse" in part for part in turn["parts"][: len(results)])
        calls = [part for part in turn["parts"] if "functionCall" in part]
        assert not calls or calls[0]["thoughtSignature"]
        wanted = [part["functionCall"]["name"] for part in calls]
    assert wanted == []


GEMINI_WIRE = Wire(
    name="gemini",
    model="gemini-3-flash-preview",
    make=lambda server: GeminiAdapter(config(server)),
    answer=answer,
    read=read,
    check=check,
    call_ids=None,
    foreign_thinking="dropped",
    secret=SIGNATURE,
)
