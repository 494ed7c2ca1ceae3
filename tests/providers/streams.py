"""Reading recorded streams, and what their chunks say."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

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
from trio_llm.model.messages import Message, ModelSource
from trio_llm.protocol.assembler import BlockAssembler
from trio_llm.protocol.grammar import Grammar
from trio_llm.providers.openai_chat.adapter import WIRE
from trio_llm.providers.openai_chat.replay import Kept
from trio_llm.providers.openai_chat.translate import ChatTranslator
from trio_llm.providers.reading import EventReader, Translator, Wire
from trio_llm.providers.translator import ResponseTranslator

from ..shared_data import RECORDINGS

E = TypeVar("E")


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


def body_bytes(folder: Path) -> bytes:
    """The body of a recorded stream."""
    [file] = folder.glob("stream.*")
    return file.read_bytes()


def recorded_reads(folder: Path) -> list[bytes]:
    """The body in the reads it was recorded with, or in one."""
    body = body_bytes(folder)
    return cut(body, load(folder, "meta.json").get("chunkSizes") or [len(body)])


def fold(
    wire: Wire[E], translator: Translator[E], reads: Iterable[bytes], *, clean: bool = True
) -> list[StreamChunk]:
    """The chunks of a stream, without any I/O. A failure is left in the translator."""
    out: list[StreamChunk] = []
    reader = EventReader(wire, translator)
    try:
        for read in [*reads, b""] if clean else reads:
            reader.feed(read, out)
            if translator.terminal:
                return out
        if not clean:
            translator.close(False, out)
    except LlmError as error:
        assert isinstance(translator, ResponseTranslator)
        translator.failure = error.failure
    return out


def translate(
    reads: Iterable[bytes], *, clean: bool = True, kept: Kept | None = None
) -> tuple[list[StreamChunk], ChatTranslator]:
    """The chunks of a chat stream; as :func:`fold`."""
    translator = ChatTranslator(kept=kept)
    return fold(WIRE, translator, reads, clean=clean), translator


def check_grammar(chunks: Iterable[StreamChunk], *, whole: bool = True) -> None:
    """Hold chunks to the grammar of a response, or of its beginning."""
    grammar = Grammar()
    for chunk in chunks:
        grammar.check(chunk)
    if whole:
        grammar.end()


def message_of(chunks: Iterable[StreamChunk], source: ModelSource) -> Message:
    """The assistant message of a response, as the runtime stores it."""
    assembler = BlockAssembler()
    assembler.push_all(chunks)
    return assembler.message(ModelSource(source.provider, source.model, assembler.replay_state))


def replay_of(chunks: Sequence[StreamChunk]) -> Any:
    """The replay state that came with the finish."""
    return finish_of(chunks).replay_state


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


def check_blocks(chunks: Sequence[StreamChunk], expected: Sequence[dict[str, Any]]) -> None:
    """Compare with the blocks of an expectation.

    Items on the provider's side are dropped, a refusal is text, and text that is not shown is a block all the
    same. Calls that were cut are not closed.
    """
    kept = ("type", "text", "id", "name", "arguments")
    wanted = [
        {key: value for key, value in block.items() if key in kept}
        | ({"type": "text"} if block["type"] == "refusal" else {})
        | ({"text": block.get("text", "")} if block["type"] != "tool-call" else {})
        for block in expected
        if block["type"] != "other"
    ]
    assert [
        {key: value for key, value in block.items() if key in kept} for block in blocks_of(chunks)
    ] == wanted


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


def usage_facts(usage: TokenUsage | None) -> dict[str, int] | None:
    """Counts in the spelling of the recordings' expectations."""
    if usage is None:
        return None
    counts = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadTokens": usage.cache_read_tokens,
        "cacheWriteTokens": usage.cache_write_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }
    return {name: count for name, count in counts.items() if count is not None}


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
