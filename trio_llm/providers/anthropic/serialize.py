"""Requests to the bodies of the Messages API (Claude API reference, "Create a Message").

Field order is stable, so that equal prefixes of requests are equal bytes; an optional field is left
out, never null. Whatever cannot be said is refused before any I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...model.requests import GenerateOptions, NamedTool, ToolChoice, ToolSchema
from ..request_checks import check_provider_options, check_server_tools, check_strict, refused
from .conversation import Conversation
from .models import AnthropicModel
from .thinking import check_effort, thinking_field

_COPIED: Final = (
    "cache_control",
    "container",
    "context_management",
    "inference_geo",
    "mcp_servers",
    "metadata",
    "service_tier",
    "speed",
    "top_k",
)
OPTIONS: Final = frozenset(
    {*_COPIED, "disable_parallel_tool_use", "server_tools", "system_cache_control", "tools_cache_control"}
)
"""The keys of ``provider_options``.

Most go into the body as they are. ``system_cache_control`` and ``tools_cache_control`` mark the system prompt
and the last tool as the end of a cached prefix (``cache_control`` marks the last block of the request);
``server_tools`` lists tools that run at the provider; ``disable_parallel_tool_use`` goes into the tool
choice.
"""


def check_options(options: GenerateOptions, model: AnthropicModel, *, thinking: bool) -> None:
    """Refuse what the wire or the model cannot honour.

    Raises:
        LlmError: UNSUPPORTED_OPTION, UNSUPPORTED_REASONING_EFFORT.
    """
    check_provider_options(options, OPTIONS, "Anthropic")
    check_server_tools(options)
    if not model.sampling and (options.temperature is not None or options.top_p is not None):
        raise refused(f"{model.id} has neither temperature nor top_p")
    effort = check_effort(options, model, thinking=thinking)
    forced = options.tool_choice == "required" or isinstance(options.tool_choice, NamedTool)
    budgeted = model.thinking == "budget" and effort in model.efforts
    if forced and (budgeted or not model.forced_tools):
        raise refused(f"{model.id} cannot be made to call a tool" + (" while it thinks" if budgeted else ""))
    if budgeted and options.temperature not in (None, 1):
        raise refused(f"{model.id} has no temperature but 1 while it thinks")
    check_strict(options, "Anthropic")


def messages_body(
    options: GenerateOptions,
    model: AnthropicModel,
    conversation: Conversation,
    *,
    max_tokens: int,
    thinking: bool = True,
    thinking_settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of a streaming request.

    Args:
        conversation: the system prompt and the messages of ``options``, as the wire has them.
        max_tokens: the limit where ``options`` sets none.
        thinking: False for a deployment without thinking.
        thinking_settings: further members of the ``thinking`` field.

    Raises:
        LlmError: as :func:`check_options`; UNSUPPORTED_OPTION too if the limit leaves no room to think.
    """
    check_options(options, model, thinking=thinking)
    extra: Mapping[str, Any] = options.provider_options or {}
    limit = options.max_tokens or max_tokens
    body: dict[str, Any] = {"model": options.model, "max_tokens": limit, "stream": True}
    tools = _tools(options.tools, extra)
    if tools:
        body["tools"] = tools
    choice = _tool_choice(options.tool_choice, extra)
    if choice is not None:
        body["tool_choice"] = choice
    if conversation.system:
        marker = extra.get("system_cache_control")
        body["system"] = (
            conversation.system
            if marker is None
            else [{"type": "text", "text": conversation.system, "cache_control": marker}]
        )
    body["messages"] = conversation.messages
    effort = check_effort(options, model, thinking=thinking)
    thinks = thinking_field(effort, model, limit, thinking_settings)
    if thinks is not None:
        body["thinking"] = thinks
    output: dict[str, Any] = {}
    if effort in model.efforts and model.takes_effort:
        output["effort"] = effort
    if options.response_format is not None:
        output["format"] = {"type": "json_schema", "schema": options.response_format.schema}
    if output:
        body["output_config"] = output
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.top_p is not None:
        body["top_p"] = options.top_p
    if options.stop:
        body["stop_sequences"] = list(options.stop)
    if conversation.container is not None:
        body["container"] = conversation.container
    body.update((key, extra[key]) for key in _COPIED if key in extra)
    return body


def _tools(tools: tuple[ToolSchema, ...], extra: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = [_tool(tool) for tool in tools]
    listed.extend(dict(tool) for tool in extra.get("server_tools", ()))
    marker = extra.get("tools_cache_control")
    if listed and marker is not None:
        listed[-1]["cache_control"] = marker
    return listed


def _tool(tool: ToolSchema) -> dict[str, Any]:
    # The schema of an input must say that it is an object; one without parameters often says nothing.
    schema = tool.parameters if "type" in tool.parameters else {"type": "object", **tool.parameters}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def _tool_choice(choice: ToolChoice | None, extra: Mapping[str, Any]) -> dict[str, Any] | None:
    one_by_one = extra.get("disable_parallel_tool_use")
    wanted: dict[str, Any]
    if isinstance(choice, NamedTool):
        wanted = {"type": "tool", "name": choice.name}
    elif choice is None and one_by_one is None:
        return None
    else:
        wanted = {"type": "any" if choice == "required" else choice or "auto"}
    if one_by_one is not None and choice != "none":
        wanted["disable_parallel_tool_use"] = one_by_one
    return wanted
