"""Bodies against the types that Anthropic publishes with its own package."""

from __future__ import annotations

import collections.abc
import typing
from typing import Any, Literal, get_args, get_origin

import pytest

from trio_llm.model.content import Attachment, ImageBlock, TextBlock, ToolCallBlock, ToolResultBlock
from trio_llm.model.identifiers import CallId, ReasoningEffortId
from trio_llm.model.messages import create_assistant_message, create_tool_result_message, create_user_message
from trio_llm.model.requests import NamedTool, ResponseFormat, ToolSchema
from trio_llm.providers.anthropic import CLAUDE_MODELS

from ...shared_data import requires_recordings
from .. import streams
from .messages import SOURCE, body_bytes, body_of, message_of, translate

params: Any = pytest.importorskip(
    "anthropic.types.beta.message_create_params", reason="the published types need the package `anthropic`"
)
HI = create_user_message("hi")
MARK = {"type": "ephemeral", "ttl": "1h"}


def faults(value: Any, wanted: Any, path: str = "$") -> list[str]:
    """Where a value departs from a type; extra members of an object are faults too."""
    origin = get_origin(wanted)
    if wanted in (Any, object):
        return []
    if origin in (typing.Required, typing.NotRequired, typing.Annotated):
        return faults(value, get_args(wanted)[0], path)
    if isinstance(wanted, typing.TypeVar) or wanted is None or wanted is type(None):
        return [] if value is None else [f"{path}: not null"]
    if origin is typing.Union or type(wanted).__name__ == "UnionType":
        found = [faults(value, choice, path) for choice in get_args(wanted)]
        return min(found, key=lambda each: (len(each), -max(map(len, each), default=0)))
    if origin is Literal:
        return [] if value in get_args(wanted) else [f"{path}: {value!r} is none of {get_args(wanted)}"]
    if origin is dict or wanted is dict:
        return [] if isinstance(value, dict) else [f"{path}: no object"]
    if origin is not None and isinstance(origin, type) and issubclass(origin, collections.abc.Iterable):
        if not isinstance(value, list):
            return [f"{path}: no list"]
        return [f for i, item in enumerate(value) for f in faults(item, get_args(wanted)[0], f"{path}[{i}]")]
    if typing.is_typeddict(wanted) or hasattr(wanted, "__required_keys__"):
        return object_faults(value, wanted, path)
    if getattr(wanted, "_is_protocol", False) or origin is not None:
        return []
    ok = isinstance(value, (int, float) if wanted is float else wanted)
    return [] if ok else [f"{path}: {value!r} is no {wanted.__name__}"]


def object_faults(value: Any, wanted: Any, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: no object"]
    hints = typing.get_type_hints(wanted, include_extras=True)
    # The classes do not know which of their keys are required, as their annotations are strings.
    required = [name for name, hint in hints.items() if get_origin(hint) is typing.Required]
    found = [f"{path}: lacks {name}" for name in required if name not in value]
    if wanted.__name__ not in ("InputSchemaTyped",):
        found += [f"{path}: {name} is not known" for name in value if name not in hints]
    return found + [
        f
        for name, item in value.items()
        if name in hints
        for f in faults(item, hints[name], f"{path}.{name}")
    ]


SAMPLING = ("temperature", "top_p", "top_k")
"""Taken out of the published types with the models that refuse them; older models go on taking them."""


def check(body: dict[str, Any]) -> None:
    body = {name: value for name, value in body.items() if name not in SAMPLING}
    assert faults(body, params.MessageCreateParamsStreaming) == []


def test_the_check_can_fail() -> None:
    assert faults({"model": "m", "messages": [], "stream": True}, params.MessageCreateParamsStreaming)
    wrong = {"role": "user", "content": [{"type": "text", "txt": "a"}]}
    good = {"model": "m", "max_tokens": 1, "messages": [], "stream": True}
    assert not faults(good, params.MessageCreateParamsStreaming)
    assert faults(good | {"messages": [wrong]}, params.MessageCreateParamsStreaming)
    assert faults(good | {"odd": 1}, params.MessageCreateParamsStreaming)


async def test_a_body_with_everything() -> None:
    picture = ImageBlock(Attachment.from_bytes(b"x", "image/png"))
    calls = create_assistant_message(
        [TextBlock("a"), ToolCallBlock(CallId("c1"), "t", '{"a": 1}'), ToolCallBlock(CallId("c2"), "t", "")],
        SOURCE,
    )
    answered = create_user_message(
        [
            ToolResultBlock(CallId("c1"), [TextBlock("r"), picture]),
            ToolResultBlock(CallId("c2"), "no", is_error=True),
            ImageBlock(Attachment.from_url("https://h/a.png")),
        ]
    )
    for choice in ("auto", "none", "required", NamedTool("t")):
        check(
            await body_of(
                messages=[HI, calls, answered],
                system="Be kind.",
                tools=[ToolSchema("t", "d", {"properties": {}}), ToolSchema("u", "", {})],
                tool_choice=choice,
                temperature=0.5,
                top_p=0.5,
                max_tokens=9,
                stop=["a"],
                response_format=ResponseFormat({"type": "object"}),
                provider_options={
                    "cache_control": MARK,
                    "container": "c",
                    "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
                    "disable_parallel_tool_use": True,
                    "inference_geo": "us",
                    "mcp_servers": [{"type": "url", "name": "n", "url": "https://h"}],
                    "metadata": {"user_id": "u"},
                    "server_tools": [{"type": "web_search_20250305", "name": "web_search"}],
                    "service_tier": "auto",
                    "speed": "fast",
                    "system_cache_control": MARK,
                    "tools_cache_control": MARK,
                },
            )
        )


@pytest.mark.parametrize("model", CLAUDE_MODELS, ids=lambda model: model.id)
async def test_every_effort_of_every_model(model: Any) -> None:
    for effort in (None, *model.effort_ids):
        wanted = None if effort is None else ReasoningEffortId(effort)
        check(await body_of(model, reasoning_effort=wanted, settings={"display": "summarized"}))


@requires_recordings
@pytest.mark.parametrize("folder", streams.recordings("anthropic-messages"), ids=lambda folder: folder.name)
async def test_every_recorded_response_sent_back(folder: Any) -> None:
    message = message_of(translate([body_bytes(folder)])[0])
    results = [
        create_tool_result_message(block.id, "done")
        for block in message.content
        if isinstance(block, ToolCallBlock)
    ]
    check(await body_of(messages=[HI, message, *results, HI]))
