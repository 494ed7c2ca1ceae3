"""Reading recorded streams, and what their chunks say."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trio_llm.model.chunks import (
    BlockEnd,
    BlockStart,
    Error,
    Finish,
    ReasoningDelta,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    Usage,
)
from trio_llm.model.content import ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import MessageId
from trio_llm.providers.openai_chat.adapter import WIRE
from trio_llm.providers.openai_chat.replay import Kept
from trio_llm.providers.openai_chat.translate import ChatTranslator
from trio_llm.providers.reading import EventReader

from ..shared_data import RECORDINGS


def recordings(*wires: str) -> list[Path]:
    """The folders of the recorded streams of some wires."""
    return sorted(
        folder
        for wire in wires
        for folder in RECORDINGS.joinpath("streams", wire).glob("*")
        if folder.is_dir()
    )


def not_degraded(message: MessageId, failure: LlmFailure) -> None:
    """For replay states that are sound."""
    raise AssertionError(failure)


def load(folder: Path, name: str) -> Any:
    """A JSON file of a folder."""
    return json.loads(folder.joinpath(name).read_text())


def cut(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """``data`` in reads of these sizes; what is left over is one more."""
    reads, start = [], 0
    for size in sizes:
        reads.append(data[start : start + size])
        start += size
    if start < len(data):
        reads.append(data[start:])
    return [read for read in reads if read]


def recorded_reads(folder: Path, body: bytes) -> list[bytes]:
    """The body in the reads it was recorded with, or in one."""
    return cut(body, load(folder, "meta.json").get("chunkSizes") or [len(body)])


def translate(
    reads: Iterable[bytes], *, clean: bool = True, kept: Kept | None = None
) -> tuple[list[StreamChunk], ChatTranslator]:
    """The chunks of a chat stream, without any I/O. A failure is left in the translator."""
    translator, out = ChatTranslator(kept=kept), list[StreamChunk]()
    reader = EventReader(WIRE, translator)
    try:
        for read in [*reads, b""] if clean else reads:
            reader.feed(read, out)
            if translator.terminal:
                return out, translator
        if not clean:
            translator.close(False, out)
    except LlmError as error:
        translator.failure = error.failure
    return out, translator


def blocks_of(chunks: Sequence[StreamChunk]) -> list[dict[str, Any]]:
    """What the deltas say, block by block, in the spelling of the recordings' expectations."""
    blocks: list[dict[str, Any]] = []
    for chunk in chunks:
        match chunk:
            case BlockStart(index, block_type):
                assert index == len(blocks)
                blocks.append(
                    {"type": block_type}
                    | (
                        {"id": None, "name": None, "arguments": ""}
                        if block_type == "tool-call"
                        else {"text": ""}
                    )
                )
            case TextDelta(index, text) | ReasoningDelta(index, text):
                assert blocks[index]["type"] == ("text" if isinstance(chunk, TextDelta) else "reasoning")
                blocks[index]["text"] += text
            case ToolCallDelta(index, id, name, arguments):
                block = blocks[index]
                assert block["id"] in (None, id)
                assert name is None or block["name"] is None
                block["id"], block["name"] = id, name or block["name"]
                block["arguments"] += arguments
            case BlockEnd(index, block):
                assert end_of(block) == blocks[index] | {"closed": True}
                blocks[index]["closed"] = True
            case _:
                pass
    return blocks


def end_of(block: Any) -> dict[str, Any]:
    """The block of a block-end, in the same spelling."""
    match block:
        case TextBlock(text) | ReasoningBlock(text):
            said = {"type": block.type, "text": text}
        case ToolCallBlock(id, name, arguments):
            said = {"type": block.type, "id": id, "name": name, "arguments": arguments}
        case _:
            raise AssertionError(f"no chat wire makes {block!r}")
    return said | {"closed": True}


def finish_of(chunks: Sequence[StreamChunk]) -> Finish:
    """The one finish, which comes last."""
    last = chunks[-1]
    assert isinstance(last, Finish)
    assert sum(isinstance(chunk, Finish) for chunk in chunks) == 1
    return last


def usage_of(chunks: Sequence[StreamChunk]) -> TokenUsage | None:
    """The counts, which come at most once, just before the finish."""
    found = [chunk.usage for chunk in chunks if isinstance(chunk, Usage)]
    assert len(found) <= 1
    if found:
        assert isinstance(chunks[-2], Usage)
    return found[0] if found else None


def code_of(chunks: Sequence[StreamChunk]) -> str | None:
    """The failure's code, of an errored finish."""
    reason = finish_of(chunks).reason
    return reason.failure.code if isinstance(reason, Error) else None


def case_reads(folder: Path, spec: dict[str, Any]) -> list[bytes]:
    """The body of an ``http_stream`` in its reads."""
    if "chunks_file" in spec:
        return [base64.b64decode(read) for read in load(folder, spec["chunks_file"])]
    body = folder.joinpath(spec["body_file"]).read_bytes()
    return [body] if body else []
