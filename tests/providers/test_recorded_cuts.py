"""Every recorded stream is the same however its bytes are cut, and says how it ended wherever it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_llm.model.chunks import StreamChunk
from trio_llm.providers.translator import ResponseTranslator

from ..shared_data import requires_recordings
from . import streams
from .anthropic import messages
from .gemini import events
from .ollama import lines
from .openai_responses import responses

pytestmark = requires_recordings

Translate: TypeAlias = Callable[[Iterable[bytes]], tuple[list[StreamChunk], ResponseTranslator]]

WIRES: dict[str, tuple[Translate, list[Path]]] = {
    "chat": (streams.translate, streams.recordings("deepseek-chat", "openai-chat", "mistral")),
    "messages": (messages.translate, streams.recordings("anthropic-messages")),
    "gemini": (events.translate, streams.recordings("gemini")),
    "ollama": (lines.translate, streams.recordings("ollama")),
    "responses": (responses.translate, streams.recordings("openai-responses")),
}
ALL: list[Any] = [
    pytest.param(translate, folder, id=f"{wire}-{folder.name}")
    for wire, (translate, folders) in WIRES.items()
    for folder in folders
]


@pytest.mark.parametrize(("translate", "folder"), ALL)
def test_byte_by_byte(translate: Translate, folder: Path) -> None:
    body = streams.body_bytes(folder)
    assert translate(body[i : i + 1] for i in range(len(body)))[0] == translate([body])[0]


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=50)
@given(data=st.data())
def test_cut_anywhere(wire: str, data: st.DataObject) -> None:
    translate, folders = WIRES[wire]
    body = streams.body_bytes(data.draw(st.sampled_from(folders)))
    sizes = data.draw(st.lists(st.integers(1, 4000), max_size=20))
    assert translate(streams.cut(body, sizes))[0] == translate([body])[0]


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=50)
@given(data=st.data())
def test_one_that_stops_anywhere_is_a_success_or_a_failure_never_both(wire: str, data: st.DataObject) -> None:
    translate, folders = WIRES[wire]
    body = streams.body_bytes(data.draw(st.sampled_from(folders)))
    chunks, translator = translate([body[: data.draw(st.integers(1, len(body)))]])
    assert translator.terminal == (translator.failure is None)
    streams.check_grammar(chunks, whole=translator.terminal)
    if translator.failure is not None:
        assert translator.failure.code == "STREAM_CLOSED"
