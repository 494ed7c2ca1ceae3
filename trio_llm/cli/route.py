"""Where the command line's requests go: DeepSeek, or the demo provider inside this program."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

import attrs

from ..config import LlmConfig, apply_config
from ..providers.deepseek import DEEPSEEK, DeepSeekAdapter, DeepSeekConfig
from ..runtime.runtime import LlmRuntime

KEY_VARIABLE = DEEPSEEK.key_variable or ""
PROVIDER = DEEPSEEK.id


@attrs.frozen
class Route:
    """An open runtime with one provider.

    Attributes:
        notice: what the user must know of the provider before it answers.
    """

    runtime: LlmRuntime
    notice: str | None = None


async def open_route(stack: AsyncExitStack, base_url: str | None, config: LlmConfig | None = None) -> Route:
    """A runtime that serves :data:`PROVIDER`, or what is configured; what it needs is closed with ``stack``.

    Args:
        base_url: an endpoint that speaks DeepSeek's wire. None means DeepSeek itself if its key is in
            the environment, else the demo provider.
        config: the providers to serve instead.

    Raises:
        LlmError: INVALID_CONFIG, if a proxy variable of the environment holds no proxy's URL; as
            :func:`~trio_llm.config.apply_config`.
    """
    if config is not None:
        runtime = await stack.enter_async_context(LlmRuntime())
        stack.enter_context(apply_config(runtime, config))
        return Route(runtime)
    demo = base_url is None and not os.environ.get(KEY_VARIABLE, "").strip()
    settings = DeepSeekConfig(base_url=base_url)
    notice = None
    if demo:
        from ..testing.demo_provider import demo_provider

        # It is in this process, where no proxy could reach it.
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = "*"
        server = await stack.enter_async_context(demo_provider())
        settings = DeepSeekConfig(base_url=server.base_url, api_key="demo")
        notice = (
            f"{KEY_VARIABLE} is not set, so the built-in demo provider answers: "
            "a small web server inside this program, and no model."
        )
    runtime = await stack.enter_async_context(LlmRuntime())
    runtime.register_adapter([PROVIDER], DeepSeekAdapter(settings))
    return Route(runtime, notice)
