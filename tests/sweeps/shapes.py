"""The ways to call a provider that the sweeps go over: one entry per adapter and transport.

To add an adapter, add a :class:`Shape` to :data:`SHAPES`: how it is made, what its server answers, what is
asked. Answers are short, so that a call has few steps and few bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, get_args

import attrs

from trio_llm.model.messages import create_user_message
from trio_llm.model.requests import GenerateOptions, ToolSchema
from trio_llm.model.signal import AbortSignal
from trio_llm.providers.anthropic import AnthropicAdapter, AnthropicConfig
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
from trio_llm.providers.gemini import GeminiAdapter, GeminiConfig
from trio_llm.providers.ollama import OllamaAdapter, OllamaConfig
from trio_llm.providers.openai_chat import ChatAdapter, ChatConfig, ChatProfile
from trio_llm.providers.openai_responses import ResponsesAdapter, ResponsesConfig
from trio_llm.streaming.contract import LlmAdapter
from trio_llm.testing.wire_script import Framing, Response, Step
from trio_llm.transport.transport import TrioTransport

Scheme: TypeAlias = Literal["http", "https"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

TOOL = ToolSchema("ls", "lists", {"type": "object"})


@attrs.frozen(kw_only=True)
class Shape:
    """One way to call a provider.

    Attributes:
        adapter: made from a base URL and a transport that it owns.
        events: the body of the answer, whole events; it holds text and a tool call.
        media_type: of the answer.
        fields: of the request, beside a user message and a tool.
        has_marker: the last event says that it is the last.
    """

    name: str
    adapter: Callable[[str, TrioTransport], LlmAdapter]
    events: tuple[bytes, ...]
    media_type: str = "text/event-stream"
    fields: dict[str, Any] = attrs.field(factory=dict)
    has_marker: bool = True

    def request(self, signal: AbortSignal | None = None) -> GenerateOptions:
        """What is asked."""
        fields = {
            "provider": "p",
            "model": "m",
            "messages": [create_user_message("hi")],
            "tools": [TOOL],
            "signal": signal,
        }
        return GenerateOptions(**fields | self.fields)

    @property
    def body(self) -> bytes:
        """The whole body of the answer."""
        return b"".join(self.events)

    def answer(
        self, *steps: Step, framing: Framing = "chunked", content_length: int | None = None
    ) -> Response:
        """A response with another body; without ``steps`` the good one, in three writes."""
        if not steps:
            first, *middle, last = self.events
            steps = (first, b"".join(middle), last)
        headers = {"content-type": self.media_type}
        return Response(200, headers, steps, framing=framing, content_length=content_length)


def _sse(*payloads: str) -> tuple[bytes, ...]:
    return tuple(b"data: %b\n\n" % payload.encode() for payload in payloads)


def _named_sse(*payloads: str) -> tuple[bytes, ...]:
    """Events whose name is the payload's type, which comes first in it."""
    return tuple(
        b"event: %b\ndata: %b\n\n" % (payload.split('"')[3].encode(), payload.encode())
        for payload in payloads
    )


def _lines(*payloads: str) -> tuple[bytes, ...]:
    return tuple(b"%b\n" % payload.encode() for payload in payloads)


_CHAT_END = (
    '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"ls","arguments":"{}"}}]}}]}',
    '{"choices":[{"delta":{},"finish_reason":"tool_calls"}],'
    '"usage":{"prompt_tokens":3,"completion_tokens":2}}',
    "[DONE]",
)

_DIRECT = (
    Shape(
        name="openai_chat",
        adapter=lambda url, transport: ChatAdapter(
            ChatConfig(profile=ChatProfile(id="plain", name="Plain"), api_key="key", base_url=url),
            transport=transport,
        ),
        events=_sse(
            '{"choices":[{"delta":{"content":"Hi"}}]}',
            '{"choices":[{"delta":{"content":" y\u00f6u"}}]}',
            *_CHAT_END,
        ),
    ),
    Shape(
        name="deepseek",
        adapter=lambda url, transport: DeepSeekAdapter(
            DeepSeekConfig(api_key="key", base_url=url), transport=transport
        ),
        events=_sse(
            '{"choices":[{"delta":{"reasoning_content":"Hm"}}]}',
            '{"choices":[{"delta":{"content":"Hi"}}]}',
            *_CHAT_END,
        ),
    ),
    Shape(
        name="anthropic",
        adapter=lambda url, transport: AnthropicAdapter(
            AnthropicConfig(api_key="key", base_url=url), transport=transport
        ),
        events=_named_sse(
            '{"type":"message_start","message":{"usage":{"input_tokens":3}}}',
            '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi"}}',
            '{"type":"content_block_stop","index":0}',
            '{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"ls"}}',
            '{"type":"content_block_stop","index":1}',
            '{"type":"message_delta","delta":{"stop_reason":"tool_use"}}',
            '{"type":"message_stop"}',
        ),
    ),
    Shape(
        name="ollama",
        adapter=lambda url, transport: OllamaAdapter(OllamaConfig(base_url=url), transport=transport),
        events=_lines(
            '{"message":{"content":"Hi"}}',
            '{"message":{"content":" you"}}',
            '{"message":{"tool_calls":[{"function":{"name":"ls","arguments":{"a":1}}}]}}',
            '{"message":{"content":""},"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2}',
        ),
        media_type="application/x-ndjson",
    ),
    Shape(
        name="gemini",
        adapter=lambda url, transport: GeminiAdapter(
            GeminiConfig(api_key="key", base_url=url), transport=transport
        ),
        events=_sse(
            '{"candidates":[{"content":{"parts":[{"text":"Hm","thought":true}]}}]}',
            '{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]}',
            '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"ls","args":{"a":1}}}]}}]}',
            '{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3}}',
        ),
        has_marker=False,
    ),
    Shape(
        name="openai_responses",
        adapter=lambda url, transport: ResponsesAdapter(
            ResponsesConfig(api_key="key", base_url=url), transport=transport
        ),
        events=_sse(
            '{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m"}}',
            '{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hi"}',
            '{"type":"response.output_item.done","output_index":1,"item":'
            '{"type":"function_call","id":"f","call_id":"t","name":"ls","arguments":"{}"}}',
            '{"type":"response.completed","response":{"status":"completed"}}',
        ),
    ),
)


def _full(delta: str, finish: str = "null") -> str:
    choice = f'{{"index":0,"delta":{delta},"finish_reason":{finish}}}'
    return f'{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{choice}]}}'


def _library(url: str, transport: TrioTransport) -> LlmAdapter:
    from trio_llm.providers.pydantic_ai import PydanticAiAdapter, PydanticAiConfig

    config = PydanticAiConfig(provider="openai-chat", api_key="key", base_url=url)
    return PydanticAiAdapter(config, transport=transport)


_OVER_A_LIBRARY = (
    Shape(
        name="pydantic_ai",
        adapter=_library,
        events=_sse(
            _full('{"role":"assistant","content":"Hi"}'),
            _full(
                '{"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"ls","arguments":"{}"}}]}'
            ),
            _full("{}", '"tool_calls"'),
            "[DONE]",
        ),
    ),
)

SHAPES = (*_DIRECT, *(_OVER_A_LIBRARY if find_spec("pydantic_ai") else ()))
"""Every call shape; the one over a library where that is installed."""
