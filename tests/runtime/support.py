"""Adapters and requests for the tests of the runtime."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import pytest
import trio

from trio_llm.model.catalogue import ResolvedModelInfo
from trio_llm.model.failures import LlmError
from trio_llm.model.messages import Message, create_user_message
from trio_llm.model.requests import GenerateOptions
from trio_llm.model.signal import AbortSignal
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.contract import ChunkSink, LlmAdapter
from trio_llm.testing.scripted import Script, ScriptedAdapter, text_script


def answering(*deltas: str, **settings: Any) -> ScriptedAdapter:
    """An adapter that gives every call the same text."""
    return ScriptedAdapter(lambda options: text_script(*(deltas or ("hi",))), **settings)


def request(
    provider: str = "one", model: str = "m", *, messages: Iterable[Message] | None = None, **fields: Any
) -> GenerateOptions:
    """A request with one user message, unless others are given."""
    if messages is None:
        messages = [create_user_message("hello")]
    return GenerateOptions(provider=provider, model=model, messages=messages, **fields)


def model_info(model: str = "m", provider: str = "one", **fields: Any) -> ResolvedModelInfo:
    """A resolved model whose name is its id."""
    return ResolvedModelInfo(provider, model, model, **fields)


class Idle(LlmAdapter):
    """An adapter that is registered and never called; counts how often it was opened and closed."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0

    async def __aenter__(self) -> Self:
        self.opened += 1
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await trio.lowlevel.checkpoint()  # a close that needs the loop is not cut short
        self.closed += 1

    async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
        raise AssertionError("this adapter is never called")


class Resolving(ScriptedAdapter):
    """Answers text; answers look-ups from ``info``, an exception of it is raised; counts the look-ups."""

    def __init__(self, info: object, script: Script | None = None) -> None:
        super().__init__(lambda options: text_script("hi") if script is None else script)
        self.info = info
        self.lookups = 0

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> ResolvedModelInfo | None:
        self.lookups += 1
        await trio.lowlevel.checkpoint()
        if isinstance(self.info, BaseException):
            raise self.info
        return self.info  # type: ignore[return-value]  # some tests answer nonsense


def raises_code(code: str) -> AbstractContextManager[pytest.ExceptionInfo[LlmError]]:
    """Expects an LlmError of that code."""
    return pytest.raises(LlmError, check=lambda error: error.code == code)


async def text_of_call(runtime: LlmRuntime, options: GenerateOptions) -> str:
    """The visible text of one call."""
    async with runtime.stream(options) as stream:
        return "".join([text async for text in stream.text()])
