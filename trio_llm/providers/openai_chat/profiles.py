"""Ready profiles of servers that speak chat completions.

Each says what its documentation said in 2026, with the page where it departs from what others do; a
deployment that differs takes ``attrs.evolve`` of one.
Models are not listed: catalogues age, and every profile dispatches any id. DeepSeek's profile lives in
:mod:`trio_llm.providers.deepseek`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import attrs

from ...protocol.history import HistoryRules
from .profile import ANY_SHORT_ID, ChatProfile

_SAMPLING: Final = frozenset({"frequency_penalty", "presence_penalty", "seed"})
_OPENAI_OPTIONS: Final = _SAMPLING | {
    "logit_bias",
    "metadata",
    "parallel_tool_calls",
    "prediction",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    "verbosity",
    "web_search_options",
}
_OPEN_WEIGHTS: Final = _SAMPLING | {"logit_bias", "min_p", "repetition_penalty", "top_k"}
_HOSTED: Final = frozenset({"parallel_tool_calls", "reasoning_format", "seed", "service_tier", "user"})
_AFTER_RESULTS: Final = "Understood."


def _efforts(*levels: str) -> dict[str, Any]:
    return {level: {"reasoning_effort": level} for level in levels}


def _switch(on: dict[str, Any], off: dict[str, Any], levels: Iterable[str] = ()) -> dict[str, Any]:
    return {**{level: {**on, "reasoning_effort": level} for level in levels}, "on": on, "off": off}


def _thinking(*levels: str) -> dict[str, Any]:
    return _switch({"thinking": {"type": "enabled"}}, {"thinking": {"type": "disabled"}}, levels)


_TEMPLATE: Final = _switch(
    {"chat_template_kwargs": {"enable_thinking": True}},
    {"chat_template_kwargs": {"enable_thinking": False}},
)

OPENAI: Final = ChatProfile(
    id="openai",
    name="OpenAI",
    base_url="https://api.openai.com/v1",
    key_variable="OPENAI_API_KEY",
    max_tokens_field="max_completion_tokens",
    efforts=_efforts("none", "minimal", "low", "medium", "high", "xhigh"),
    off_effort="none",
    max_stops=4,  # API reference, "Create chat completion": "Up to 4 sequences"
    options=_OPENAI_OPTIONS,
    session_field="prompt_cache_key",
)

AZURE: Final = attrs.evolve(
    OPENAI,
    id="azure",
    name="Azure OpenAI",
    base_url=None,  # https://RESOURCE.openai.azure.com/openai/v1
    key_variable="AZURE_OPENAI_API_KEY",
    key_header="api-key",
    key_prefix="",
    session_field=None,
)

OPENROUTER: Final = ChatProfile(
    id="openrouter",
    name="OpenRouter",
    base_url="https://openrouter.ai/api/v1",
    key_variable="OPENROUTER_API_KEY",
    reasoning_field="reasoning",
    returned={"reasoning_details"},
    efforts={
        level: {"reasoning": {"effort": level}}
        for level in ("none", "minimal", "low", "medium", "high", "xhigh")
    },
    off_effort="none",
    options=_OPEN_WEIGHTS
    | {
        "models",
        "parallel_tool_calls",
        "plugins",
        "provider",
        "route",
        "top_a",
        "transforms",
        "user",
        "verbosity",
    },
    session_header="x-session-id",
)

GOOGLE: Final = ChatProfile(
    id="google",
    name="Gemini (chat completions)",
    base_url="https://generativelanguage.googleapis.com/v1beta/openai",
    key_variable="GEMINI_API_KEY",
    efforts=_efforts("none", "minimal", "low", "medium", "high"),
    off_effort="none",
    options={"extra_body"},  # so called on the wire too; holds what only Gemini has
    returned={"extra_content"},
    # "Thought signatures", "FAQs": how a call that another model made gets past the check.
    foreign_call={"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}},
)

GROQ: Final = ChatProfile(
    id="groq",
    name="Groq",
    base_url="https://api.groq.com/openai/v1",
    key_variable="GROQ_API_KEY",
    max_tokens_field="max_completion_tokens",
    # console.groq.com/docs/reasoning: Qwen takes none and default, gpt-oss the levels. There, too: without a
    # reasoning_format of "parsed" Qwen's thinking stands in the text, between tags.
    efforts=_efforts("none", "default", "low", "medium", "high"),
    off_effort="none",
    max_stops=4,  # API reference, "Create chat completion": "Up to 4 sequences"
    options=_HOSTED | {"include_reasoning"},
)

XAI: Final = ChatProfile(
    id="xai",
    name="xAI",
    base_url="https://api.x.ai/v1",
    key_variable="XAI_API_KEY",
    max_tokens_field="max_completion_tokens",
    # docs.x.ai, "Reasoning": the levels up to high. The list of models (capabilities.reasoning_effort) names
    # xhigh as well.
    efforts=_efforts("none", "low", "medium", "high", "xhigh"),
    off_effort="none",
    options=_SAMPLING | {"parallel_tool_calls", "user"},
    session_header="x-grok-conv-id",
)

MISTRAL: Final = ChatProfile(
    id="mistral",
    name="Mistral",
    base_url="https://api.mistral.ai/v1",
    key_variable="MISTRAL_API_KEY",
    include_usage=False,
    returned={"thinking"},
    efforts=_efforts("none", "high"),
    off_effort="none",
    required_choice="any",
    options={
        "frequency_penalty",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "random_seed",
        "safe_prompt",
    },
    # "Tool call id must be a-z, A-Z, 0-9, with a length of 9"; "Unexpected role 'user' after role 'tool'".
    history=HistoryRules(
        call_ids=re.compile("[a-zA-Z0-9]{9}"), call_id_length=9, after_results=_AFTER_RESULTS
    ),
)

MOONSHOT: Final = ChatProfile(
    id="moonshot",
    name="Moonshot",
    base_url="https://api.moonshot.ai/v1",
    key_variable="MOONSHOT_API_KEY",
    max_tokens_field="max_completion_tokens",
    reasoning_field="reasoning_content",
    # "thinking is enabled but reasoning_content is missing in assistant tool call message"
    unthought_calls=" ",
    # platform.kimi.ai, "Model Parameter Reference": K3 takes levels, K2.5 and K2.6 the switch; never both.
    efforts=_efforts("low", "high", "max") | _thinking(),
    off_effort="off",
    max_stops=5,  # "Create Chat Completion"
    options={"frequency_penalty", "presence_penalty", "safety_identifier"},
    session_field="prompt_cache_key",
)

QWEN: Final = ChatProfile(
    id="qwen",
    name="Qwen",
    base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    key_variable="DASHSCOPE_API_KEY",
    efforts=_switch({"enable_thinking": True}, {"enable_thinking": False}),
    off_effort="off",
    options={
        "enable_search",
        "parallel_tool_calls",
        "presence_penalty",
        "repetition_penalty",
        "search_options",
        "seed",
        "top_k",
        "translation_options",
    },
)

ZAI: Final = ChatProfile(
    id="zai",
    name="Z.ai",
    base_url="https://api.z.ai/api/paas/v4",
    key_variable="ZAI_API_KEY",
    include_usage=False,
    reasoning_field="reasoning_content",
    # docs.bigmodel.cn, "Migrate to GLM-5.2": from there on thinking has two levels, high and max.
    efforts=_thinking("high", "max"),
    off_effort="off",
    json_schema=False,
    tool_choices={"auto"},
    max_stops=1,  # docs.z.ai, "Chat Completion": one stop word is supported
    options={"do_sample", "request_id", "tool_stream", "user_id"},
)

CEREBRAS: Final = ChatProfile(
    id="cerebras",
    name="Cerebras",
    base_url="https://api.cerebras.ai/v1",
    key_variable="CEREBRAS_API_KEY",
    max_tokens_field="max_completion_tokens",
    # inference-docs.cerebras.ai, "Reasoning": gpt-oss takes the levels, GLM none. There, too: without a
    # reasoning_format of "parsed" Qwen's thinking stands in the text, between tags.
    efforts=_efforts("none", "low", "medium", "high"),
    off_effort="none",
    max_stops=4,  # API reference, "Chat completions": "Up to 4 sequences"
    options=_HOSTED | {"logit_bias", "prediction"},
    silent_overflow=True,
)

TOGETHER: Final = ChatProfile(
    id="together",
    name="Together",
    base_url="https://api.together.ai/v1",  # docs.together.ai, "OpenAI compatibility"
    key_variable="TOGETHER_API_KEY",
    # "Reasoning": models of adjustable effort take the levels by themselves, hybrid ones the switch.
    efforts=_efforts("low", "medium", "high")
    | _switch({"reasoning": {"enabled": True}}, {"reasoning": {"enabled": False}}),
    off_effort="off",
    options=_OPEN_WEIGHTS | {"safety_model"},
)

FIREWORKS: Final = ChatProfile(
    id="fireworks",
    name="Fireworks",
    base_url="https://api.fireworks.ai/inference/v1",
    key_variable="FIREWORKS_API_KEY",
    reasoning_field="reasoning_content",
    efforts=_efforts("none", "low", "medium", "high"),
    off_effort="none",
    options=_OPEN_WEIGHTS
    | {"context_length_exceeded_behavior", "parallel_tool_calls", "prediction", "service_tier", "user"},
    session_header="x-session-affinity",
)

PERPLEXITY: Final = ChatProfile(
    id="perplexity",
    name="Perplexity",
    base_url="https://api.perplexity.ai",
    key_variable="PERPLEXITY_API_KEY",
    include_usage=False,
    efforts=_efforts("minimal", "low", "medium", "high"),
    unsupported={"tools", "tool_choice"},
    options={
        "disable_search",
        "enable_search_classifier",
        "frequency_penalty",
        "image_domain_filter",
        "image_format_filter",
        "language_preference",
        "last_updated_after_filter",
        "last_updated_before_filter",
        "presence_penalty",
        "return_images",
        "return_related_questions",
        "search_after_date_filter",
        "search_before_date_filter",
        "search_domain_filter",
        "search_language_filter",
        "search_mode",
        "search_recency_filter",
        "top_k",
        "web_search_options",
    },
    history=attrs.evolve(ANY_SHORT_ID, merge_roles=True),
)

VLLM: Final = ChatProfile(
    id="vllm",
    name="vLLM",
    base_url="http://127.0.0.1:8000/v1",
    key_required=False,
    reasoning_field="reasoning",  # "Interleaved Thinking"
    efforts=_efforts("low", "medium", "high") | _TEMPLATE,
    off_effort="off",
    options=_OPEN_WEIGHTS
    | {
        "cache_salt",
        "ignore_eos",
        "length_penalty",
        "min_tokens",
        "parallel_tool_calls",
        "priority",
        "skip_special_tokens",
        "stop_token_ids",
        "structured_outputs",
        "truncate_prompt_tokens",
        "user",
    },
)

LLAMA_CPP: Final = ChatProfile(
    id="llama.cpp",
    name="llama.cpp",
    base_url="http://127.0.0.1:8080/v1",
    key_required=False,
    reasoning_field="reasoning_content",
    efforts=_TEMPLATE,
    off_effort="off",
    tool_choices={"auto", "none", "required"},  # an object is taken for auto, without a word
    options=_SAMPLING
    | {
        "cache_prompt",
        "dry_multiplier",
        "grammar",
        "id_slot",
        "logit_bias",
        "min_p",
        "mirostat",
        "parallel_tool_calls",
        "repeat_last_n",
        "repeat_penalty",
        "samplers",
        "top_k",
        "typical_p",
        "xtc_probability",
        "xtc_threshold",
    },
)

LM_STUDIO: Final = ChatProfile(
    id="lmstudio",
    name="LM Studio",
    base_url="http://127.0.0.1:1234/v1",
    key_required=False,
    efforts=_efforts("low", "medium", "high"),
    tool_choices={"auto", "none", "required"},  # "Invalid tool_choice type: 'object'"
    options=_SAMPLING | {"draft_model", "logit_bias", "min_p", "repeat_penalty", "top_k", "ttl"},
)

OLLAMA: Final = ChatProfile(
    id="ollama",
    name="Ollama (chat completions)",
    base_url="http://127.0.0.1:11434/v1",
    key_required=False,
    reasoning_field="reasoning",
    efforts=_efforts("none", "low", "medium", "high"),
    off_effort="none",
    tool_choices={"auto"},  # "OpenAI compatibility": the field is not supported; it is taken and ignored
    options=_SAMPLING,
)

PROFILES: Final = {
    profile.id: profile
    for profile in (
        OPENAI,
        AZURE,
        OPENROUTER,
        GOOGLE,
        GROQ,
        XAI,
        MISTRAL,
        MOONSHOT,
        QWEN,
        ZAI,
        CEREBRAS,
        TOGETHER,
        FIREWORKS,
        PERPLEXITY,
        VLLM,
        LLAMA_CPP,
        LM_STUDIO,
        OLLAMA,
    )
}
"""The profiles by their id."""
