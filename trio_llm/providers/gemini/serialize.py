"""Requests to the bodies of ``streamGenerateContent`` (Gemini API reference, "Generating content").

Field order is stable, so that equal prefixes of requests are equal bytes; an optional field is left
out, never null. Whatever cannot be said is refused before any I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...model.requests import GenerateOptions, NamedTool, ToolChoice
from ..request_checks import check_effort, check_provider_options, check_server_tools, check_strict
from .conversation import Conversation
from .models import GeminiModel, thinking_config

_TOP_LEVEL: Final = {
    "cached_content": "cachedContent",
    "labels": "labels",
    "safety_settings": "safetySettings",
    "service_tier": "serviceTier",
}
_GENERATION: Final = {
    "audio_timestamp": "audioTimestamp",
    "frequency_penalty": "frequencyPenalty",
    "media_resolution": "mediaResolution",
    "presence_penalty": "presencePenalty",
    "response_modalities": "responseModalities",
    "seed": "seed",
    "top_k": "topK",
}
_TOOL_CONFIG: Final = {
    "include_server_side_tool_invocations": "includeServerSideToolInvocations",
    "retrieval_config": "retrievalConfig",
}
OPTIONS: Final = frozenset({*_TOP_LEVEL, *_GENERATION, *_TOOL_CONFIG, "server_tools"})
"""The keys of ``provider_options``; the wire has the same names in camel case, and their values as they are.

``server_tools`` lists tools that run at the provider, such as ``{"googleSearch": {}}``.
"""

_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def check_options(options: GenerateOptions, model: GeminiModel) -> None:
    """Refuse what the wire or the model cannot honour.

    Raises:
        LlmError: UNSUPPORTED_OPTION, UNSUPPORTED_REASONING_EFFORT.
    """
    check_provider_options(options, OPTIONS, "Gemini")
    check_server_tools(options)
    check_strict(options, "Gemini")
    check_effort(options.reasoning_effort, model.efforts, model.id)


def generate_body(
    options: GenerateOptions,
    model: GeminiModel,
    conversation: Conversation,
    *,
    include_thoughts: bool = True,
) -> dict[str, Any]:
    """The body of a request; which model it is for stands in the URL.

    Args:
        conversation: the system prompt and the messages of ``options``, as the wire has them.
        include_thoughts: whether summaries of the thoughts are wanted.

    Raises:
        LlmError: as :func:`check_options`.
    """
    check_options(options, model)
    extra: Mapping[str, Any] = options.provider_options or {}
    body: dict[str, Any] = {}
    if conversation.system:
        body["systemInstruction"] = {"parts": [{"text": conversation.system}]}
    body["contents"] = conversation.contents
    tools: list[Any] = []
    if options.tools:
        declared = [
            {
                "name": tool.name,
                "description": tool.description,
                **({"parametersJsonSchema": tool.parameters} if tool.parameters else {}),
            }
            for tool in options.tools
        ]
        tools.append({"functionDeclarations": declared})
    tools.extend(extra.get("server_tools", ()))
    if tools:
        body["tools"] = tools
    choice = {} if options.tool_choice is None else _calling_config(options.tool_choice)
    tool_config = choice | _renamed(extra, _TOOL_CONFIG)
    if tool_config:
        body["toolConfig"] = tool_config
    generation = _generation_config(options, model, extra, include_thoughts=include_thoughts)
    if generation:
        body["generationConfig"] = generation
    return body | _renamed(extra, _TOP_LEVEL)


def _renamed(extra: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {wire: extra[name] for name, wire in names.items() if name in extra}


def _calling_config(choice: ToolChoice) -> dict[str, Any]:
    wanted: dict[str, Any] = (
        {"mode": "ANY", "allowedFunctionNames": [choice.name]}
        if isinstance(choice, NamedTool)
        else {"mode": _MODES[choice]}
    )
    return {"functionCallingConfig": wanted}


def _generation_config(
    options: GenerateOptions, model: GeminiModel, extra: Mapping[str, Any], *, include_thoughts: bool
) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if options.max_tokens is not None:
        config["maxOutputTokens"] = options.max_tokens
    if options.temperature is not None:
        config["temperature"] = options.temperature
    if options.top_p is not None:
        config["topP"] = options.top_p
    if options.stop:
        config["stopSequences"] = list(options.stop)
    if options.response_format is not None:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = options.response_format.schema
    thinking = thinking_config(options.reasoning_effort, model, include_thoughts=include_thoughts)
    if thinking:
        config["thinkingConfig"] = thinking
    return config | _renamed(extra, _GENERATION)
