"""Requests to the bodies of the Responses API (OpenAI API reference, "Create a model response").

Field order is stable, so that equal prefixes of requests are equal bytes; an optional field is left out,
never null. Whatever cannot be said is refused before any I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from ...model.requests import GenerateOptions, NamedTool, ToolChoice, ToolSchema
from ..request_checks import check_effort, check_provider_options, refused
from .models import ResponsesModel

ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
"""What makes reasoning come in a form that can be sent back where nothing is stored."""

CACHE_KEY_LENGTH: Final = 64
"""The most characters ``prompt_cache_key`` may have."""

_COPIED: Final = (
    "context_management",
    "max_tool_calls",
    "metadata",
    "moderation",
    "parallel_tool_calls",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "top_logprobs",
    "truncation",
    "user",
)
OPTIONS: Final = frozenset({*_COPIED, "include", "server_tools", "text_verbosity"})
"""The keys of ``provider_options``.

Most go into the body as they are. ``include`` is added to what is asked for anyway, ``server_tools`` lists
tools that run at the provider, and ``text_verbosity`` goes into the field ``text``.
"""

_ANSWERED_HERE: Final = frozenset(
    {"apply_patch", "computer", "computer_use", "computer_use_preview", "local_shell"}
)


def check_options(options: GenerateOptions, model: ResponsesModel) -> None:
    """Refuse what the API, or this model, cannot honour.

    Raises:
        LlmError: UNSUPPORTED_OPTION; UNSUPPORTED_REASONING_EFFORT for an effort that is not on offer.
    """
    if options.stop:
        raise refused("the Responses API has no stop strings")
    check_effort(options.reasoning_effort, model.efforts, model.id)
    if not model.sampling and options.reasoning_effort != "none":
        for field in ("temperature", "top_p"):
            if getattr(options, field) is not None:
                raise refused(f"{model.id} takes no {field} while it reasons")
    extra: Mapping[str, Any] = options.provider_options or {}
    check_provider_options(options, OPTIONS, "the Responses API")
    for name in ("include", "server_tools"):
        if not isinstance(extra.get(name, ()), tuple):
            raise refused(f"{name} is a list")
    for tool in extra.get("server_tools", ()):
        type = tool.get("type") if isinstance(tool, Mapping) else None
        if not isinstance(type, str) or type in _ANSWERED_HERE:
            raise refused(f"server_tools: {type!r} is no tool that runs at the provider")


def request_fields(options: GenerateOptions, model: ResponsesModel, *, summary: str | None) -> dict[str, Any]:
    """Everything that a body says beside its input items, and beside how the answer travels.

    Args:
        summary: which summaries of its reasoning a model shall give; None: none.
    """
    extra: Mapping[str, Any] = options.provider_options or {}
    body: dict[str, Any] = {"model": options.model, "store": False}
    if options.system:
        body["instructions"] = options.system
    tools = [_tool(tool) for tool in options.tools]
    tools.extend(dict(tool) for tool in extra.get("server_tools", ()))
    if tools:
        body["tools"] = tools
    if options.tool_choice is not None:
        body["tool_choice"] = _tool_choice(options.tool_choice)
    for field, name in (("temperature",) * 2, ("top_p",) * 2, ("max_tokens", "max_output_tokens")):
        value = getattr(options, field)
        if value is not None:
            body[name] = value
    text = _text(options, extra)
    if text:
        body["text"] = text
    reasoning: dict[str, Any] = {}
    if options.reasoning_effort is not None:
        reasoning["effort"] = options.reasoning_effort
    if summary is not None and model.reasons:
        reasoning["summary"] = summary
    if reasoning:
        body["reasoning"] = reasoning
    include = [ENCRYPTED_REASONING] if model.reasons else []
    include.extend(name for name in extra.get("include", ()) if name not in include)
    if include:
        body["include"] = include
    if options.session_id is not None:
        body["prompt_cache_key"] = _cache_key(options.session_id)
    body.update((key, extra[key]) for key in _COPIED if key in extra)
    return body


def _text(options: GenerateOptions, extra: Mapping[str, Any]) -> dict[str, Any]:
    text: dict[str, Any] = {}
    wanted = options.response_format
    if wanted is not None:
        text["format"] = {
            "type": "json_schema",
            "name": wanted.name,
            "schema": wanted.schema,
            "strict": wanted.strict,
        }
    if "text_verbosity" in extra:
        text["verbosity"] = extra["text_verbosity"]
    return text


def _tool(tool: ToolSchema) -> dict[str, Any]:
    # Left out, ``strict`` is true ("Function calling"), and most schemas do not obey its rules.
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _tool_choice(choice: ToolChoice) -> Any:
    return {"type": "function", "name": choice.name} if isinstance(choice, NamedTool) else choice


def _cache_key(session: str) -> str:
    """``prompt_cache_key`` ("Prompt caching"): the session, or a digest of one that is too long."""
    if len(session) <= CACHE_KEY_LENGTH:
        return session
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
