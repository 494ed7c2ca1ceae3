"""What a newcomer may get wrong, and is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio

from trio_llm.runtime.runtime import LlmRuntime

from .support import request


def test_another_event_loop_is_told_off() -> None:
    async def enter() -> None:
        async with LlmRuntime():
            pass

    with pytest.raises(RuntimeError, match=r"needs Trio: trio\.run"):
        asyncio.run(enter())


async def test_a_stream_that_was_not_entered_says_how() -> None:
    async with LlmRuntime() as runtime:
        stream = runtime.stream(request())
        with pytest.raises(trio.ClosedResourceError, match="only inside its `async with`"):
            async for _ in stream:
                pass


def test_a_layer_can_be_called() -> None:
    wrong: Any = "layer"
    with pytest.raises(TypeError, match="a str cannot be"):
        LlmRuntime().use(wrong)
