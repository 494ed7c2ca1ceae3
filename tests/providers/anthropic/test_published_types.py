"""Bodies against the types that Anthropic publishes with its own package."""

from __future__ import annotations

from typing import Any

import pytest

from trio_llm.model.content import Attachment, ImageBlock, TextBlock, ToolCallBlock, ToolResultBlock
from trio_llm.model.identifiers import CallId, ReasoningEffortId
from trio_llm.model.messages import create_assistant_message, create_tool_result_message, create_user_message
from trio_llm.model.requests import NamedTool, ResponseFormat, ToolSchema
from trio_llm.providers.anthropic import CLAUDE_MODELS

from ...shared_data import requires_recordings
from .. import streams
from ..published import faults
from ..streams import body_bytes
from .messages import SOURCE, body_of, message_of, translate

params: Any = pytest.importorskip(
    "anthropic.types.beta.message_create_params", reason="the published types need the package `anthropic`"
)
HI = create_user_message("hi")
MARK = {"type": "ephemeral", "ttl": "1h"}


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
