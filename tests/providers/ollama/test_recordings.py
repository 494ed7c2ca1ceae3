"""Every recorded stream gives what was recorded of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trio_llm.model.chunks import StreamChunk
from trio_llm.providers.ollama import OllamaAdapter
from trio_llm.testing.wire_server import WireServer

from ...shared_data import RECORDINGS, requires_recordings
from .. import streams
from ..wire import run
from .lines import BENCH, config, lines, translate

pytestmark = requires_recordings

FOLDERS = streams.recordings("ollama")
BY_NAME = [pytest.param(folder, id=folder.name) for folder in FOLDERS]


def check(chunks: list[StreamChunk], expected: dict[str, Any]) -> None:
    """Compare with an expectation, and with the grammar."""
    streams.check_grammar(chunks)
    assert streams.blocks_of(chunks) == [block | {"closed": True} for block in expected["blocks"]]
    reason = streams.finish_of(chunks).reason
    assert (reason.kind, reason.raw) == (expected["finish"]["kind"], expected["finish"]["raw"])
    assert streams.usage_facts(streams.usage_of(chunks)) == expected["usage"]


def durations(expected: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in expected["usageRaw"].items() if name.endswith("duration")}


@pytest.mark.parametrize("folder", BY_NAME)
def test_recorded_stream_with_its_own_reads(folder: Path) -> None:
    expected = streams.load(folder, "expected.json")
    chunks, translator = translate(streams.recorded_reads(folder))
    check(chunks, expected)
    assert translator.failure is None
    assert translator.served_model == expected["model"]
    assert translator.facts == durations(expected)


@pytest.mark.parametrize("folder", BY_NAME)
async def test_recorded_stream_over_the_wire(folder: Path) -> None:
    expected = streams.load(folder, "expected.json")
    reads = streams.recorded_reads(folder)
    async with WireServer(lines(*reads)) as server, OllamaAdapter(config(server)) as adapter:
        chunks, stream = await run(adapter)
    check(chunks, expected)
    settlement = stream.settlement
    assert settlement is not None
    assert (settlement.served_model, settlement.response_id) == (expected["model"], None)
    assert dict(settlement.facts) == durations(expected)


async def test_D08_recorded_error() -> None:
    await BENCH.check_recorded_error(RECORDINGS / "errors" / "ollama-cloud-400-context")
