"""The library: a runtime, the deepseek adapter, and a stream for each answer."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trio_llm import GenerateOptions, LlmRuntime, Stop, TextDelta, create_user_message
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
from trio_llm.transport.client import HttpClient

from . import PROMPT, Arm, Client, Seen


class LibraryClient:
    """Iterates over the chunks of a stream, as an application does."""

    def __init__(self, runtime: LlmRuntime) -> None:
        self._runtime = runtime

    async def consume(self, scenario: str, seen: Seen, arm: Arm | None = None) -> None:
        options = GenerateOptions(provider="deepseek", model=scenario, messages=[create_user_message(PROMPT)])
        async with self._runtime.stream(options) as stream:
            if arm is not None:
                arm(stream.abort)
            async for chunk in stream:
                if type(chunk) is TextDelta and seen(chunk.text):
                    return
        if arm is None and type(stream.finish) is not Stop:
            raise RuntimeError(f"the stream ended with {stream.finish}")


@asynccontextmanager
async def open_client(url: str, ca_file: str) -> AsyncIterator[Client]:
    http = HttpClient(ssl_context=ssl.create_default_context(cafile=ca_file))
    adapter = DeepSeekAdapter(DeepSeekConfig(api_key="sk-bench", base_url=url), http=http)
    try:
        async with LlmRuntime() as runtime:
            runtime.register_adapter("deepseek", adapter)
            yield LibraryClient(runtime)
    finally:
        await http.aclose()
