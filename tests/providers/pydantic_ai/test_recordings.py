"""Recorded streams through the library: what comes out, and where that is not what the wire carried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from trio_llm.model.chunks import StreamChunk
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from ...shared_data import requires_recordings
from ..streams import blocks_of, check_grammar, finish_of, load, recorded_reads, recordings, usage_of
from ..wire import run
from .support import adapter_for, needs_library

__all__ = ["needs_library"]

WIRES: Final = {
    "openai-chat": "openai-chat",
    "deepseek-chat": "deepseek",
    "anthropic-messages": "anthropic",
    "openai-responses": "openai-responses",
    "gemini": "google",
}
OWN: Final = ("groq", "cerebras", "crusoe")
"""Recordings named for a provider that the library has by itself."""

DEVIATIONS: Final[dict[str, tuple[set[str], str]]] = {
    # openai-chat
    "cerebras-glm47-text-then-tool": ({"usage"}, "cache reads of this provider are not read"),
    "groq-compound-executed-tools": ({"blocks"}, "tools run by the provider become parts of their own"),
    "groq-gptoss-error-event": ({"blocks"}, "what came with the error is dropped"),
    "huggingface-deepseek-r1-inline-think": ({"blocks"}, "<think> in the text becomes reasoning"),
    "huggingface-kimi-multitool": ({"usage"}, "counts that come twice are added up"),
    "openai-gpt4o-n3": ({"blocks"}, "further choices are not told apart"),
    "openai-gpt4o-refusal": ({"finish"}, "a refusal is REFUSAL here"),
    "openrouter-geminiflash-same-index-new-ids": (
        {"blocks", "usage"},
        "the error ends it before the calls are whole",
    ),
    "openrouter-minimax-empty-response": ({"finish"}, "an answer without a block is EMPTY_RESPONSE here"),
    "openrouter-minimax-error-inband": ({"usage"}, "an error has no counts"),
    "perplexity-sonar-crlf": ({"usage"}, "running counts are added up"),
    "snowflake-claude-reasoning-details": ({"blocks"}, "reasoning_details are not read by this model class"),
    "xai-grok4fast-multitool": ({"usage"}, "reasoning beside the output is not added to it"),
    "xai-grokcode-multitool": ({"usage"}, "reasoning beside the output is not added to it"),
    # anthropic-messages
    "sdk-tool-refusal": ({"finish"}, "a refusal is REFUSAL here"),
    "sonnet45-programmatic-prefilled": ({"blocks", "finish"}, "content inside message_start is not read"),
    "sonnet46-compaction-cache": ({"usage"}, "iterations are counted in"),
    # openai-responses
    "azure-codexmini-incomplete": ({"blocks"}, "an empty reasoning item makes no part"),
    "copilot-item-id-rotation": ({"blocks"}, "items are told apart by their id, which changes"),
    "deepseek-v4flash-reasoning": ({"blocks"}, "reasoning text is kept as a detail and not shown"),
    "deepseek-v4flash-reasoning-tool": ({"blocks"}, "reasoning text is kept as a detail and not shown"),
    "deepseek-v4flash-text": ({"blocks"}, "reasoning text is kept as a detail and not shown"),
    "openai-apply-patch": ({"finish", "usage"}, "the library does not know the item and gives up"),
    "openai-code-interpreter": ({"blocks"}, "empty reasoning items make no parts"),
    "openai-custom-tool": ({"blocks", "finish", "usage"}, "the library does not know the item and gives up"),
    "openai-image-generation": ({"blocks", "finish"}, "an empty reasoning item makes no part"),
    "openai-incomplete-max-tokens": ({"blocks"}, "an empty reasoning item makes no part"),
    "openai-local-shell": ({"blocks", "finish", "usage"}, "the library does not know the item and gives up"),
    # gemini
    "gemini-file-search": ({"usage"}, "input of tools is counted in"),
    "gemini-web-fetch": ({"usage"}, "input of tools is counted in"),
    "gemini-web-search": ({"usage"}, "input of tools is counted in"),
    "vertex-no-args-calls": (
        {"blocks", "usage", "finish"},
        "calls without names: the library raises IndexError",
    ),
    "vertex-stream-args": ({"blocks", "finish"}, "arguments in pieces: the library raises IndexError"),
    "vertex-stream-args-array": ({"blocks"}, "arguments in pieces are not put together"),
    "vertex-stream-args-nested": ({"blocks"}, "arguments in pieces are not put together"),
}
"""What differs and why. An entry that no longer differs fails: it is to be taken out."""


def provider_of(folder: Path) -> str:
    first = folder.name.partition("-")[0]
    return first if first in OWN else WIRES[folder.parent.name]


def shown(block: dict[str, Any]) -> tuple[object, ...]:
    """A block in a comparable form: the library does not keep whether arguments were "" or {}."""
    if block["type"] != "tool-call":
        return block["type"], block["text"]
    try:
        arguments = json.loads(block["arguments"] or "{}")
    except ValueError:
        arguments = block["arguments"]
    return "tool-call", block["name"], json.dumps(arguments)


_COUNTS: Final = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadTokens": "cache_read_tokens",
    "cacheWriteTokens": "cache_write_tokens",
    "reasoningTokens": "reasoning_tokens",
}


def differences(chunks: list[StreamChunk], expected: dict[str, Any]) -> set[str]:
    """Which of blocks, finish and usage are not as expected. 0 counts as not reported."""
    found = set()
    wanted = [shown(block) for block in expected["blocks"] if block["type"] not in ("other", "refusal")]
    if [shown(block) for block in blocks_of(chunks)] != wanted:
        found.add("blocks")
    if finish_of(chunks).reason.kind != {"content-filter": "error", "truncated": "error"}.get(
        expected["finish"]["kind"], expected["finish"]["kind"]
    ):
        found.add("finish")
    usage = usage_of(chunks)
    counted = {
        name: getattr(usage, ours)
        for name, ours in _COUNTS.items()
        if usage is not None and getattr(usage, ours)
    }
    if counted != {
        name: value for name, value in (expected.get("usage") or {}).items() if value and name in _COUNTS
    }:
        found.add("usage")
    return found


@requires_recordings
@pytest.mark.parametrize("folder", recordings(*WIRES), ids=lambda folder: folder.name)
async def test_a_recorded_stream(folder: Path) -> None:
    answer = event_stream(*recorded_reads(folder))
    async with WireServer([answer]) as server, adapter_for(server, provider_of(folder)) as adapter:
        chunks, _ = await run(adapter)
    check_grammar(chunks)
    accepted, _ = DEVIATIONS.get(folder.name, (set(), ""))
    assert differences(chunks, load(folder, "expected.json")) == accepted
