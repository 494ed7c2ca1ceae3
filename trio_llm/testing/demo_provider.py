"""A provider without a model: DeepSeek's chat wire on a loopback port, for trying things without a key.

It thinks, says a few sentences word by word, counts if asked to ("count to 100"), calls the offered
tools whose names the prompt holds, each with the JSON object that follows its name (``add {"a": 1}``), and
honours ``max_tokens`` and a disabled ``thinking``. The wire is that of
https://api-docs.deepseek.com/api/create-chat-completion.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .wire_script import Pause, Response, Step, json_response
from .wire_server import WireRequest, WireServer

DEMO_MODEL = "demo"
"""The one model the demo provider lists; it answers to every name."""

_THOUGHTS = "There is no model here, so there is little to think about. I shall say what this is."


def demo_provider(pause: float = 0.03) -> WireServer:
    """A server to be entered with ``async with``; its ``base_url`` is the API's.

    Args:
        pause: seconds between two words, on Trio's clock.
    """

    def answer(request: WireRequest) -> Response:
        return _answer(request, pause)

    return WireServer(answer)


def _error(status: int, message: str, kind: str) -> Response:
    error = {"message": message, "type": kind, "param": None, "code": "invalid_request_error"}
    return json_response({"error": error}, status)


def _answer(request: WireRequest, pause: float) -> Response:
    if not (request.header("authorization") or "").startswith("Bearer "):
        return _error(401, "the demo provider takes any key, but there was none", "authentication_error")
    if (request.method, request.target) == ("GET", "/models"):
        model = {"id": DEMO_MODEL, "object": "model", "owned_by": "trio-llm"}
        return json_response({"object": "list", "data": [model]})
    if (request.method, request.target) != ("POST", "/chat/completions"):
        return _error(404, f"the demo provider has no {request.target}", "invalid_request_error")
    try:
        body = request.json()
        messages = [dict(message) for message in body["messages"]]
    except (ValueError, TypeError, KeyError):
        return _error(400, "the body is no chat completion request", "invalid_request_error")
    deltas, finish = _deltas(body, messages)
    return Response(
        200,
        (("content-type", "text/event-stream"), ("x-request-id", "demo")),
        tuple(_events(body, deltas, finish, _count(messages), pause)),
        settle=False,
    )


def _text(content: Any) -> str:
    """The text of a message's content, which is a string or a list of typed parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _count(messages: Sequence[Mapping[str, Any]]) -> int:
    """A word counts as a token here."""
    return sum(len(_text(message.get("content")).split()) for message in messages)


def _words(text: str) -> list[str]:
    """The text in pieces that each end where the next word begins."""
    return re.findall(r"\S+\s*", text)


def _deltas(
    body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], str]:
    """The deltas of the answer, and the finish word."""
    last = messages[-1] if messages else {}
    said = _text(last.get("content")).strip()
    if last.get("role") == "tool":
        said = _answered(messages)
    thinks = (body.get("thinking") or {}).get("type") != "disabled"
    deltas: list[dict[str, Any]] = []
    if thinks:
        deltas += [{"reasoning_content": word} for word in _words(_THOUGHTS)]
    tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
    called = [name for name in tools if name in said]
    finish = "stop"
    if last.get("role") != "tool" and called:
        for index, name in enumerate(called):
            deltas += _call(index, f"call_{len(messages)}_{index}", name, _arguments(said, name))
        finish = "tool_calls"
    else:
        deltas += [{"content": word} for word in _words(_speech(last.get("role"), said))]
    limit = body.get("max_tokens")
    if isinstance(limit, int) and limit < len(deltas):
        return deltas[:limit], "length"
    return deltas, finish


def _arguments(said: str, name: str) -> str:
    """The JSON object behind a tool's name, as it is written there; a stopgap where there is none."""
    rest = said.partition(name)[2].lstrip()
    try:
        value, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        value, end = None, 0
    return rest[:end] if isinstance(value, dict) else '{"demo": true}'


def _call(index: int, id: str, name: str, arguments: str) -> list[dict[str, Any]]:
    """The deltas of one tool call, its arguments in two pieces."""
    head = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    half = len(arguments) // 2
    return [
        {"tool_calls": [head]},
        *(
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in (arguments[:half], arguments[half:])
        ),
    ]


def _answered(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the tools said, as many as were called together."""
    results = itertools.takewhile(lambda message: message.get("role") == "tool", reversed(messages))
    return "\n".join(reversed([_text(message.get("content")) for message in results]))


def _speech(role: Any, said: str) -> str:
    if role == "tool":
        return f"The tool answered: {said}"
    if (count := re.search(r"\bcount to (\d{1,5})\b", said, re.IGNORECASE)) is not None:
        return " ".join(str(number) for number in range(1, int(count[1]) + 1))
    return (
        f'You said: "{said}"\n\n'
        "I am the demo provider: a small web server inside this very program that speaks the wire of "
        "DeepSeek's API. No model reads what you write, but every word came over a real connection, one "
        "event at a time, and stopping me closes that connection at once. To see it, ask me to count to 500 "
        "and press Ctrl-C."
    )


def _events(
    body: Mapping[str, Any], deltas: Sequence[dict[str, Any]], finish: str, prompt: int, pause: float
) -> Iterator[Step]:
    def event(**fields: Any) -> bytes:
        chunk = {
            "id": "demo",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": body.get("model"),
            **fields,
        }
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"

    def choice(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        return event(choices=[{"index": 0, "delta": delta, "finish_reason": finish_reason}])

    yield choice({"role": "assistant", "content": ""})
    for delta in deltas:
        yield Pause(pause)
        yield choice(delta)
    yield choice({}, finish)
    reasoning = sum("reasoning_content" in delta for delta in deltas)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": len(deltas),
        "total_tokens": prompt + len(deltas),
        "prompt_cache_hit_tokens": 0,
        "prompt_cache_miss_tokens": prompt,
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    yield event(choices=[], usage=usage)
    yield b"data: [DONE]\n\n"
