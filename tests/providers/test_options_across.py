"""Every option on every wire: it is said in the request or refused before one, and none overrules another."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from trio_llm.model.chunks import Error
from trio_llm.model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.identifiers import SessionId
from trio_llm.model.messages import ModelSource, create_tool_result_message, create_user_message
from trio_llm.model.requests import GenerateOptions, NamedTool, ResponseFormat, ToolSchema
from trio_llm.providers.anthropic.serialize import OPTIONS as ANTHROPIC_OPTIONS
from trio_llm.providers.deepseek import DEEPSEEK
from trio_llm.providers.gemini.serialize import OPTIONS as GEMINI_OPTIONS
from trio_llm.providers.ollama.serialize import OPTIONS as OLLAMA_OPTIONS
from trio_llm.providers.openai_chat.profiles import MISTRAL, MOONSHOT, OPENAI, OPENROUTER, PERPLEXITY
from trio_llm.providers.openai_responses.serialize import OPTIONS as RESPONSES_OPTIONS
from trio_llm.providers.pydantic_ai.serialize import PROVIDER_OPTIONS as LIBRARY_OPTIONS
from trio_llm.runtime.runtime import LlmRuntime

from .across.table import WIRES, row
from .across.wires import Wire

TOOLS = [ToolSchema(name, "Looks.", {"type": "object", "properties": {}}) for name in ("look", "list")]
# Each in two values that every request must tell apart.
FIELDS: dict[str, tuple[Any, Any]] = {
    "system": ("be brief", "be long"),
    "tools": (TOOLS[:1], TOOLS),
    "temperature": (0.25, 0.75),
    "top_p": (0.25, 0.75),
    "max_tokens": (5000, 6000),
    "stop": (["x"], ["y"]),
    "tool_choice": ("required", NamedTool("look")),
    "response_format": (ResponseFormat({"type": "object"}), ResponseFormat({"type": "array"})),
    "reasoning_effort": ("low", "high"),
}
PROVIDER_OPTIONS: dict[str, frozenset[str]] = {
    **{
        profile.id: frozenset(profile.options)
        for profile in (OPENAI, DEEPSEEK, OPENROUTER, MOONSHOT, MISTRAL, PERPLEXITY)
    },
    "anthropic": ANTHROPIC_OPTIONS,
    "gemini": GEMINI_OPTIONS,
    "ollama": OLLAMA_OPTIONS,
    "responses": RESPONSES_OPTIONS,
    "websocket": RESPONSES_OPTIONS,
    "library": LIBRARY_OPTIONS,
}
VALUES: dict[str, Any] = {
    "include": ["more"],
    "server_tools": [{"type": "web_search"}],
}
MOVED = {("system_cache_control", "$.system"): "$.system[0].text"}
REFUSALS = {"UNSUPPORTED_OPTION", "UNSUPPORTED_REASONING_EFFORT"}
each_wire = pytest.mark.parametrize("wire", [row(wire) for wire in WIRES])


async def body_for(wire: Wire, **fields: Any) -> dict[str, Any] | str:
    """The body of a request with these options; the code, where it is refused before one is made."""
    options = GenerateOptions(
        **{
            "provider": "one",
            "model": wire.model,
            "messages": [create_user_message("hi")],
            "session_id": "s",
            **fields,
        }
    )
    async with wire.serve([wire.answer(0)]) as server, LlmRuntime() as runtime:
        runtime.register_adapter("one", wire.make(server))
        async with runtime.stream(options) as stream:
            async for _ in stream:
                pass
        if not server.requests:
            assert isinstance(stream.finish, Error)
            return stream.finish.failure.code
        body: dict[str, Any] = server.requests[0].json()
        return body


def leaves(value: Any, path: str = "$") -> dict[str, Any]:
    """Everything that a body says, by where it says it."""
    if isinstance(value, Mapping) and value:
        return {
            place: leaf
            for key, item in value.items()
            for place, leaf in leaves(item, f"{path}.{key}").items()
        }
    if isinstance(value, list) and value:
        return {
            place: leaf
            for key, item in enumerate(value)
            for place, leaf in leaves(item, f"{path}[{key}]").items()
        }
    return {path: value}


@each_wire
@pytest.mark.parametrize("field", FIELDS)
async def test_P04_an_option_is_said_or_refused_and_never_dropped(wire: Wire, field: str) -> None:
    base = {"tools": TOOLS} if field == "tool_choice" else {}
    one, other = [await body_for(wire, **base | {field: value}) for value in FIELDS[field]]
    assert {answer for answer in (one, other) if isinstance(answer, str)} <= REFUSALS
    assert one != other or isinstance(one, str)


@each_wire
async def test_P04_no_provider_option_overrules_what_the_vocabulary_says(wire: Wire) -> None:
    fields: dict[str, Any] = {}
    for field, (value, _) in FIELDS.items():
        if not isinstance(await body_for(wire, **fields | {field: value}), str):
            fields[field] = value
    plain = await body_for(wire, **fields)
    assert not isinstance(plain, str)
    for key in sorted(PROVIDER_OPTIONS[wire.name]):
        body = await body_for(wire, **fields, provider_options={key: VALUES.get(key, 1)})
        if isinstance(body, str):
            assert body in REFUSALS
            continue
        said = leaves(body)
        for place, leaf in leaves(plain).items():
            assert said[MOVED.get((key, place), place)] == leaf, key
        assert body != plain, key


HALF = "\ud800"
"""Half of a character, which no UTF-8 can say."""


def with_halves(block: ContentBlock) -> ContentBlock:
    match block:
        case TextBlock() | ReasoningBlock():
            return attrs.evolve(block, text=block.text + HALF)
        case ToolCallBlock():
            arguments = json.dumps({"a": HALF}) if block.arguments else ""
            return attrs.evolve(block, name=block.name + HALF, arguments=arguments)
    return block


@each_wire
async def test_half_a_character_anywhere_is_replaced_and_nothing_raises(wire: Wire) -> None:
    schema = {"type": "object", "properties": {"x" + HALF: {"enum": [HALF]}}}
    fields: dict[str, Any] = {"system": "be" + HALF, "tools": [ToolSchema("look" + HALF, "d" + HALF, schema)]}
    if wire.name not in ("responses", "websocket"):  # have no stop strings
        fields["stop"] = ["end" + HALF]
    if wire.name == "perplexity":  # has no tools
        del fields["tools"]
    history = [create_user_message("hi" + HALF)]
    async with (
        wire.serve([wire.answer(0), wire.answer(1), wire.answer(2)]) as server,
        LlmRuntime() as runtime,
    ):
        runtime.register_adapter(("one", "other"), wire.make(server))
        for _ in range(3):
            options = GenerateOptions(
                provider="one", model=wire.model, messages=history, session_id=SessionId("s"), **fields
            )
            message = (await runtime.generate(options)).message
            # The next request brings it back with replay state, the one after that without.
            source = ModelSource("elsewhere", "m") if len(history) > 1 else message.source
            halved = attrs.evolve(message, content=map(with_halves, message.content), source=source)
            calls = [block.id for block in message.content if isinstance(block, ToolCallBlock)]
            results = [create_tool_result_message(id, "seen" + HALF, is_error=True) for id in calls]
            history = [*history, halved, *results]
    assert len(server.requests) == 3
    for request in server.requests:
        assert "\ufffd" in request.body.decode()
        assert not re.search(r"\\+ud800", request.body.decode(), re.IGNORECASE)
