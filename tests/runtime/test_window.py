"""The verdict on the context window by usage."""

from __future__ import annotations

import pytest

from trio_llm.model import codes
from trio_llm.model.catalogue import ModelContext
from trio_llm.model.chunks import Error, Finish, FinishReason, MaxTokens, Stop, TokenUsage, ToolCalls, Usage
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.runtime.window import review_window
from trio_llm.testing.scripted import text_script

from .support import Resolving, model_info, request


@pytest.mark.parametrize(
    ("reason", "usage", "exceeded"),
    [
        (Stop(), TokenUsage(100, 5), False),
        (Stop(), TokenUsage(101, 5), True),
        (Stop(), TokenUsage(1, 5, cache_read_tokens=60, cache_write_tokens=40), True),
        (Stop(), None, False),
        (MaxTokens(), TokenUsage(100, 0), True),
        (MaxTokens(), TokenUsage(40, 0, cache_read_tokens=60), True),
        (MaxTokens(), TokenUsage(99, 0), False),
        (MaxTokens(), TokenUsage(100, 1), False),
        (ToolCalls(), TokenUsage(200, 1), False),
    ],
)
def test_P06_usage_beyond_the_window_is_CONTEXT_WINDOW_EXCEEDED(
    reason: FinishReason, usage: TokenUsage | None, exceeded: bool
) -> None:
    finish = Finish(reason)
    reviewed = review_window(finish, usage, 100)
    if exceeded:
        assert isinstance(reviewed.reason, Error)
        assert reviewed.reason.failure.code == codes.CONTEXT_WINDOW_EXCEEDED
    else:
        assert reviewed is finish


def test_P06_the_providers_own_word_is_kept() -> None:
    reviewed = review_window(Finish(Stop(raw="end_turn")), TokenUsage(101, 0), 100)
    assert reviewed.reason.raw == "end_turn"


@pytest.mark.parametrize("window", [ModelContext(100), None])
async def test_P06_the_runtime_decides_as_it_knows_the_window(window: ModelContext | None) -> None:
    adapter = Resolving(model_info(context=window), text_script("hi", usage=TokenUsage(101, 1)))
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], adapter)
        async with runtime.stream(request()) as stream:
            chunks = [chunk async for chunk in stream]
    assert chunks[-2] == Usage(TokenUsage(101, 1))
    if window is None:
        assert stream.finish == Stop()
        assert stream.message is not None
    else:
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == codes.CONTEXT_WINDOW_EXCEEDED
        assert stream.message is None
        assert stream.settlement is not None
        assert stream.settlement.finish == stream.finish
