"""The chat wire in several dialects."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, TypeAlias

import msgspec

from trio_llm.providers.deepseek import DEEPSEEK
from trio_llm.providers.openai_chat import ChatAdapter, ChatProfile
from trio_llm.providers.openai_chat.profiles import MISTRAL, MOONSHOT, OPENAI, OPENROUTER, PERPLEXITY
from trio_llm.testing.wire_script import Response, event_stream

from ..published import check_published
from ..wire import chat_config
from .wires import LOOK, Said, Wire

SIGNATURE = "c2lnbmF0dXJlIG9mIGEgZGV0YWls"


class _Strict(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    pass


class TextPart(_Strict, tag="text"):
    text: str


class ImageUrl(_Strict):
    url: str


class ImagePart(_Strict, tag="image_url"):
    image_url: ImageUrl


class Function(_Strict):
    name: str
    arguments: str


class Call(_Strict):
    id: str
    type: Literal["function"]
    function: Function


class System(_Strict, tag_field="role", tag="system"):
    content: str


class User(_Strict, tag_field="role", tag="user"):
    content: str | list[TextPart | ImagePart]


class Detail(_Strict):
    type: Literal["reasoning.text"]
    text: str
    signature: str
    index: int


class Assistant(_Strict, tag_field="role", tag="assistant"):
    content: str
    tool_calls: list[Call] = []
    reasoning: str = ""
    reasoning_content: str = ""
    reasoning_details: list[Detail] = []

    @property
    def thinking(self) -> str:
        details = "".join(detail.text for detail in self.reasoning_details)
        return (self.reasoning or self.reasoning_content or details).strip()


class Tool(_Strict, tag_field="role", tag="tool"):
    tool_call_id: str
    content: str


Turn: TypeAlias = System | User | Assistant | Tool


def turns(body: dict[str, Any]) -> list[Turn]:
    """The messages of a body, strictly."""
    return msgspec.convert(body["messages"], list[Turn])


def read(body: dict[str, Any]) -> list[Said]:
    said: list[Said] = []
    for turn in turns(body):
        match turn:
            case System(content):
                said.append(Said("text", "system", content))
            case Tool(id, content):
                said.append(Said("result", "user", content, id))
            case User(content):
                for part in [TextPart(content)] if isinstance(content, str) else content:
                    if isinstance(part, TextPart):
                        said.append(Said("text", "user", part.text))
                    else:
                        said.append(Said("image", "user", part.image_url.url))
            case Assistant():
                if turn.thinking:
                    said.append(Said("thinking", "assistant", turn.thinking))
                if turn.content:
                    said.append(Said("text", "assistant", turn.content))
                for call in turn.tool_calls:
                    json.loads(call.function.arguments)
                    said.append(Said("call", "assistant", call.function.name, call.id))
    return said


def check(body: dict[str, Any], profile: ChatProfile) -> None:
    """Results follow their calls at once, one each; nothing is empty; what one dialect wants besides."""
    wanted: list[str] = []
    last: Turn | None = None
    for turn in turns(body):
        if isinstance(turn, Tool):
            wanted.remove(turn.tool_call_id)
        else:
            assert wanted == []
        if isinstance(turn, Assistant):
            wanted = [call.id for call in turn.tool_calls]
            assert wanted or turn.content or turn.thinking
            sent = {name for name in ("reasoning", "reasoning_content") if getattr(turn, name)}
            assert sent <= {profile.reasoning_field}
        else:
            assert turn.content
        if profile is MISTRAL:
            assert not (isinstance(last, Tool) and isinstance(turn, User))
        if profile is PERPLEXITY and not isinstance(turn, Tool):
            assert type(last) is not type(turn)
        last = turn
    assert wanted == []
    if profile is OPENAI:
        check_published(body, "openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming")


def answer(profile: ChatProfile, number: int, ids: tuple[str, str]) -> Response:
    def event(finish_reason: str | None = None, **delta: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return b"data: %b\n\n" % json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()

    def call(index: int, id: str, name: str, arguments: str) -> bytes:
        function = {"name": name, "arguments": arguments}
        return event(tool_calls=[{"index": index, "id": id, "type": "function", "function": function}])

    wondered = f"{profile.id} wonders {number}"
    thinking = [event(reasoning_content=wondered)]
    if "reasoning_details" in profile.returned:
        detail = {"type": "reasoning.text", "index": 0}
        thinking = [
            event(reasoning=wondered, reasoning_details=[detail | {"text": wondered}]),
            event(reasoning_details=[detail | {"signature": SIGNATURE}]),
        ]
    return event_stream(
        *thinking,
        event(content=f"{profile.id} answers {number}"),
        call(0, ids[0], "look", LOOK),
        call(1, ids[1], "list", ""),
        event("tool_calls"),
        b"data: [DONE]\n\n",
    )


def chat(
    profile: ChatProfile,
    ids: tuple[str, str] = ("call_{}a", "call_{}b"),
    accepted: str = "[!-~]{1,64}",
) -> Wire:
    """A dialect.

    Args:
        ids: of the calls of an answer, with the answer's number.
        accepted: the ids that the server takes.
    """
    return Wire(
        name=profile.id,
        model="m",
        make=lambda server: ChatAdapter(chat_config(server, profile=profile)),
        answer=lambda number: answer(profile, number, (ids[0].format(number), ids[1].format(number))),
        read=read,
        check=lambda body: check(body, profile),
        call_ids=re.compile(accepted),
        foreign_thinking="kept" if profile.reasoning_field else "dropped",
        own_thinking=profile.reasoning_field is not None,
        secret=SIGNATURE if "reasoning_details" in profile.returned else None,
    )


CHAT_WIRES = (
    chat(OPENAI),
    chat(DEEPSEEK, ("call_{}_" + "x" * 80, "call_{}_" + "y" * 80)),  # longer than OpenAI takes
    chat(OPENROUTER, ("tooluse_{}", "tool use {}")),  # a space
    chat(MOONSHOT, ("functions.look:0", "functions.list:1")),  # the same in each answer
    chat(MISTRAL, ("aB3{}56789", "cD3{}56789"), accepted="[a-zA-Z0-9]{9}"),
    chat(PERPLEXITY),
)
