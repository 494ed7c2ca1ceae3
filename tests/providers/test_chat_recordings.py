"""Every recorded chat stream gives what was recorded of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trio_llm.model.chunks import StreamChunk

from ..shared_data import requires_recordings
from . import streams

pytestmark = requires_recordings

FOLDERS = streams.recordings("deepseek-chat", "openai-chat", "mistral")
BY_NAME = [pytest.param(folder, id=folder.name) for folder in FOLDERS]


def check(chunks: list[StreamChunk], expected: dict[str, Any]) -> None:
    """Compare with an expectation, and with the grammar."""
    streams.check_grammar(chunks)
    streams.check_blocks(chunks, expected["blocks"])
    reason = streams.finish_of(chunks).reason
    assert reason.raw == expected["finish"]["raw"]
    if expected.get("emptyResponse") and expected["finish"]["kind"] == "stop":
        # A terminal stop without any block is a failure here, unlike in the expectation.
        assert streams.code_of(chunks) == "EMPTY_RESPONSE"
    else:
        assert reason.kind == expected["finish"]["kind"]
    assert streams.usage_facts(streams.usage_of(chunks)) == expected.get("usage")


@pytest.mark.parametrize("folder", BY_NAME)
def test_D04_recorded_stream_with_its_own_reads(folder: Path) -> None:
    expected = streams.load(folder, "expected.json")
    chunks, translator = streams.translate(streams.recorded_reads(folder))
    check(chunks, expected)
    assert translator.failure is None
    assert translator.response_id == expected["responseId"]
    assert translator.served_model == expected["model"]
