"""OpenAI's Responses API."""

from __future__ import annotations

import json
import re
from typing import Any

from trio_llm.providers.openai_responses import ResponsesAdapter
from trio_llm.testing.wire_script import Response, event_stream

from ..openai_responses.responses import body as stream_of
from ..openai_responses.responses import call, config, created, end, text, thinking
from ..published import check_published
from .wires import LOOK, Said, Wire

ENCRYPTED = "gAAAAABsYXBpcy1sYXp1bGk="


def answer(number: int, name: str = "responses") -> Response:
    return event_stream(
        stream_of(
            created(),
            thinking(0, f"{name} wonders {number}", id=f"rs_{number}", encrypted_content=ENCRYPTED),
            text(1, f"{name} answers {number}", id=f"msg_{number}"),
            call(2, LOOK, id=f"fc_{number}a", call_id=f"call_{number}a", name="look"),
            call(3, "{}", id=f"fc_{number}b", call_id=f"call_{number}b", name="list"),
            end(),
        )
    )


def read(body: dict[str, Any]) -> list[Said]:
    said: list[Said] = []
    for item in body["input"]:
        match item:
            case {"type": "message", "role": "system" | "assistant" as role, "content": str(words)}:
                said.append(Said("text", role, words))
            case {"type": "message", "role": "user" | "assistant" as role, "content": list(parts)}:
                said += [_part(role, part) for part in parts]
            case {"type": "reasoning", "summary": summary, "encrypted_content": str()}:
                said.append(Said("thinking", "assistant", "".join(part["text"] for part in summary)))
            case {"type": "function_call", "call_id": str(id), "name": str(name)}:
                assert isinstance(json.loads(item["arguments"]), dict)
                said.append(Said("call", "assistant", name, id))
            case {"type": "function_call_output", "call_id": str(id), "output": str(words)}:
                said.append(Said("result", "user", words, id))
            case {"type": "function_call_output", "call_id": str(id), "output": parts}:
                shown = [_part("user", part) for part in parts]
                said.append(Said("result", "user", "".join(x.text for x in shown if x.what == "text"), id))
                said += [each for each in shown if each.what == "image"]
            case _:
                raise AssertionError(f"no item of the wire: {item}")
    return said


def _part(role: Any, part: dict[str, Any]) -> Said:
    if part["type"] == "input_image":
        return Said("image", role, part["image_url"])
    assert part["type"] == ("output_text" if role == "assistant" else "input_text")
    return Said("text", role, part["text"])


def check(body: dict[str, Any]) -> None:
    check_order(body)
    check_published(body, "openai.types.responses.response_create_params", "ResponseCreateParamsStreaming")


def check_order(body: dict[str, Any]) -> None:
    """Every call has one output behind it, before anything else is said."""
    wanted: list[str] = []
    for item in body["input"]:
        if item["type"] == "function_call_output":
            wanted.remove(item["call_id"])
        elif item["type"] == "function_call":
            wanted.append(item["call_id"])
        else:
            assert wanted == []
    assert wanted == []


RESPONSES_WIRE = Wire(
    name="responses",
    model="gpt-5.5",
    make=lambda server: ResponsesAdapter(config(server)),
    answer=answer,
    read=read,
    check=check,
    call_ids=re.compile("[a-zA-Z0-9_-]{1,64}"),
    foreign_thinking="dropped",
    broken_calls=("cut",),  # with no arguments, as its tools may take any text
    secret=ENCRYPTED,
)
