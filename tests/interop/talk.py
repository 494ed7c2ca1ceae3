"""The adapters of these tests, and what is asked of a server through each of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import attrs
import pytest

from trio_llm.model.catalogue import ModelDiscoveryRequest
from trio_llm.model.chunks import Aborted, Error, Stop, TokenUsage, ToolCalls
from trio_llm.model.content import ToolCallBlock, text_of
from trio_llm.model.failures import LlmError
from trio_llm.model.messages import Message, create_tool_result_message, create_user_message
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.model.requests import GenerateOptions, ToolSchema
from trio_llm.providers.anthropic import AnthropicAdapter, AnthropicConfig
from trio_llm.providers.gemini import GeminiAdapter, GeminiConfig
from trio_llm.providers.ollama import OllamaAdapter, OllamaConfig
from trio_llm.providers.openai_chat import ChatAdapter, ChatConfig, ChatProfile
from trio_llm.providers.openai_chat.profiles import PROFILES
from trio_llm.providers.openai_responses import ResponsesAdapter, ResponsesConfig
from trio_llm.providers.pydantic_ai import PydanticAiAdapter, PydanticAiConfig
from trio_llm.runtime.generate import Generated
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.contract import LlmAdapter

Make: TypeAlias = Callable[[str], LlmAdapter]
"""An adapter for a base URL."""

CLAUDE: Final = "claude-mock"
"""No real model: Anthropic's SDK warns of those that are to be retired, and a warning is an error here."""

QUICK: Final = NormalRetry(initial_delay_ms=60, jitter_ratio=0.5, max_retries=3)
WEATHER: Final = ToolSchema(
    "get_weather",
    "Get the current weather for a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def _common(base_url: str) -> dict[str, Any]:
    return {
        "api_key": "sk-test",
        "base_url": base_url,
        "headers": {"x-test-id": secrets.token_hex(8)},  # one of the servers counts its turns by it
        "retry_policy": QUICK,
        "timeouts": Timeouts(idle=0.7),
    }


def chat(profile: str) -> Make:
    """The chat adapter in that dialect."""
    known: ChatProfile = PROFILES[profile]
    return lambda base_url: ChatAdapter(ChatConfig(profile=known, **_common(base_url)))


def anthropic(base_url: str) -> LlmAdapter:
    return AnthropicAdapter(AnthropicConfig(**_common(base_url)))


def gemini(base_url: str) -> LlmAdapter:
    return GeminiAdapter(GeminiConfig(**_common(base_url)))


def responses(base_url: str) -> LlmAdapter:
    return ResponsesAdapter(ResponsesConfig(**_common(base_url)))


def responses_websocket(base_url: str, **fields: Any) -> LlmAdapter:
    return ResponsesAdapter(ResponsesConfig(**{**_common(base_url), "websocket": True} | fields))


def ollama(base_url: str) -> LlmAdapter:
    return OllamaAdapter(OllamaConfig(**_common(base_url)))


@attrs.frozen
class Endpoint:
    """An adapter and where its wire is on a server.

    Attributes:
        counts: whether the server tells the usage of a stream.
    """

    name: str
    make: Make
    path: str
    model: str = "gpt-4o"
    counts: bool = attrs.field(default=True, kw_only=True)

    def adapter(self, server: str) -> LlmAdapter:
        """An adapter that reaches it."""
        return self.make(server + self.path)


LIBRARY: Final = "library-"
"""What the names of the endpoints over pydantic-ai begin with."""


def library(provider: str, path: str, model: str = "gpt-4o", *, counts: bool = True) -> Endpoint:
    """An endpoint that the adapter over pydantic-ai reaches, by one of that library's providers."""

    def make(base_url: str) -> LlmAdapter:
        return PydanticAiAdapter(PydanticAiConfig(provider=provider, **_common(base_url)))

    return Endpoint(LIBRARY + provider, make, path, model, counts=counts)


def rows(endpoints: Iterable[Endpoint]) -> list[Any]:
    """The parameters of a test; those over pydantic-ai are skipped where it is not installed."""
    missing = pytest.mark.skipif(
        find_spec("pydantic_ai") is None,
        reason="the package pydantic-ai-slim (extra 'pydantic-ai') is not installed",
    )
    return [
        pytest.param(endpoint, id=endpoint.name, marks=missing if endpoint.name.startswith(LIBRARY) else ())
        for endpoint in endpoints
    ]


@attrs.define
class Talk:
    """A conversation with one endpoint."""

    llm: LlmRuntime
    endpoint: Endpoint
    history: list[Message] = attrs.field(factory=list)

    def options(self, **fields: Any) -> GenerateOptions:
        return GenerateOptions(
            **{"provider": "p", "model": self.endpoint.model, "messages": self.history} | fields
        )

    async def ask(self, text: str, **fields: Any) -> Generated:
        """One turn, repeated as the policy says; the answer joins the history.

        Raises:
            LlmError: how the last attempt failed.
        """
        self.history.append(create_user_message(text))
        return await self.go_on(**fields)

    async def go_on(self, **fields: Any) -> Generated:
        """A turn without a new message of the user."""
        generated: Generated | LlmError | None = None
        async for attempt in self.llm.attempts(self.options(**fields)):
            async with attempt as stream:
                async for _ in stream:
                    pass
            finish = stream.finish
            assert finish is not None
            if isinstance(finish, Aborted | Error):
                generated = LlmError(finish.failure.message, finish.failure.code)
            else:
                assert stream.message is not None
                generated = Generated(stream.message, stream.usage, finish)
        if not isinstance(generated, Generated):
            assert generated is not None
            raise generated
        self.history.append(generated.message)
        return generated

    async def answer_calls(self, generated: Generated, result: str) -> list[ToolCallBlock]:
        """Add a result for each call of an answer."""
        calls = [block for block in generated.message.content if isinstance(block, ToolCallBlock)]
        self.history += [create_tool_result_message(call.id, result) for call in calls]
        return calls


def check_text(generated: Generated, endpoint: Endpoint) -> str:
    """An answer in words that ended by itself."""
    assert isinstance(generated.finish, Stop)
    text = text_of(generated.message.content)
    assert text.strip()
    assert isinstance(generated.usage, TokenUsage) or not endpoint.counts
    return text


def check_calls(generated: Generated, names: Sequence[str]) -> None:
    """An answer that calls these tools."""
    assert isinstance(generated.finish, ToolCalls)
    calls = [block for block in generated.message.content if isinstance(block, ToolCallBlock)]
    assert [call.name for call in calls] == list(names)
    assert all(call.id for call in calls)


async def discovered(adapter: LlmAdapter) -> list[str]:
    """The ids of the models the endpoint lists."""
    found = await adapter.discover(ModelDiscoveryRequest(provider="p"))  # type: ignore[attr-defined]  # not all can
    return [model.id for model in found]
