"""The one fold from chunks to content blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import attrs

from ..model import codes
from ..model.chunks import (
    Aborted,
    BlockEnd,
    BlockStart,
    Error,
    Finish,
    FinishReason,
    MaxTokens,
    ReasoningDelta,
    Stop,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    Usage,
)
from ..model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock, block_tag
from ..model.failures import LlmError
from ..model.identifiers import CallId
from ..model.messages import (
    Message,
    PluginSource,
    ReplayEnvelope,
    Source,
    create_assistant_message,
)

_CUT_SHORT = (MaxTokens, Aborted, Error)


@attrs.define(eq=False)
class _Entry:
    """One block in the making."""

    type: str
    parts: list[str] = attrs.field(factory=list)
    id: str = ""
    name: str = ""
    block: ContentBlock | None = None

    def text(self) -> str:
        if len(self.parts) > 1:
            self.parts[:] = ("".join(self.parts),)
        return self.parts[0] if self.parts else ""


class BlockAssembler:
    """Folds the chunks of one attempt into blocks.

    It takes what real streams do and never raises for it: blocks may interleave, starts may be
    missing or come twice, ends may be missing altogether. The first ``BlockEnd`` of an index
    settles its block; what comes for that index later is ignored, and so is a delta of another
    type than its block's. Whether a sequence is proper is the business of
    :class:`~trio_llm.protocol.grammar.Grammar`. Time and memory are linear in what was pushed.

    Attributes:
        usage: the token counts; None until they came.
        finish: why the response ended; ``Stop()`` until it has.
    """

    __slots__ = ("_entries", "_replay_state", "finish", "usage")

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}  # in the order in which the indexes appeared
        self._replay_state: ReplayEnvelope | None = None
        self.usage: TokenUsage | None = None
        self.finish: FinishReason = Stop()

    def push(self, chunk: StreamChunk) -> None:
        """Fold in one chunk.

        Raises:
            AssertionError: ``chunk`` is no stream chunk.
        """
        self.push_all((chunk,))

    def push_all(self, chunks: Iterable[StreamChunk]) -> None:
        """Fold in some chunks, such as those of one network read.

        Raises:
            AssertionError: one of them is no stream chunk; those before it count.
        """
        entries = self._entries
        # Where the last delta went, so that more of the same is one append: nearly every chunk there is.
        index, parts = -1, list[str]()
        kind: type[TextDelta | ReasoningDelta] = TextDelta
        for chunk in chunks:
            # Pyright does not narrow by a type in a variable; mypy does.
            if type(chunk) is kind and chunk.index == index:  # pyright: ignore[reportAttributeAccessIssue]
                parts.append(chunk.text)  # pyright: ignore[reportAttributeAccessIssue]
                continue
            match chunk:
                case TextDelta():
                    entry = entries.get(chunk.index) or self._open(chunk.index, TextBlock.type)
                    if entry.block is None and entry.type == TextBlock.type:
                        entry.parts.append(chunk.text)
                        index, kind, parts = chunk.index, TextDelta, entry.parts
                case ReasoningDelta():
                    entry = entries.get(chunk.index) or self._open(chunk.index, ReasoningBlock.type)
                    if entry.block is None and entry.type == ReasoningBlock.type:
                        entry.parts.append(chunk.text)
                        index, kind, parts = chunk.index, ReasoningDelta, entry.parts
                case ToolCallDelta():
                    entry = entries.get(chunk.index) or self._open(chunk.index, ToolCallBlock.type)
                    if entry.block is None and entry.type == ToolCallBlock.type:
                        # Some servers repeat id and name, or send them empty, on later fragments.
                        entry.id = entry.id or chunk.id or ""
                        entry.name = entry.name or chunk.name or ""
                        entry.parts.append(chunk.arguments_delta)
                case BlockStart():
                    if chunk.index not in entries:
                        self._open(chunk.index, chunk.block_type)
                case BlockEnd():
                    index = -1
                    entry = entries.get(chunk.index) or self._open(chunk.index, block_tag(chunk.block))
                    if entry.block is None:
                        entry.block = _named(chunk.block, chunk.index)
                        entry.parts.clear()
                case Usage():
                    self.usage = chunk.usage
                case Finish():
                    self.finish = chunk.reason
                    self._replay_state = chunk.replay_state
                case _:
                    assert_never(chunk)

    def _open(self, index: int, block_type: str) -> _Entry:
        entry = self._entries[index] = _Entry(block_type)
        return entry

    def blocks(self) -> tuple[ContentBlock, ...]:
        """The blocks in the order in which their indexes appeared.

        A tool call that no ``BlockEnd`` closed counts where the response ended well (its wire has no
        such marks), and is left out where it was cut: see :attr:`incomplete_calls`.

        Raises:
            LlmError: INVALID_CHUNK_SEQUENCE, if a block was never closed whose type only its
                ``BlockEnd`` can build.
        """
        return tuple(
            _assembled(index, entry) for index, entry in self._entries.items() if not self._cut(entry)
        )

    @property
    def incomplete_calls(self) -> tuple[ToolCallBlock, ...]:
        """The tool calls that the end of the response cut, with the raw text there is. Never execute one."""
        return tuple(_call(index, entry) for index, entry in self._entries.items() if self._cut(entry))

    def _cut(self, entry: _Entry) -> bool:
        return (
            entry.block is None and entry.type == ToolCallBlock.type and isinstance(self.finish, _CUT_SHORT)
        )

    def interrupted_blocks(self) -> tuple[ContentBlock, ...]:
        """What is worth keeping of a response that did not end well: text and reasoning that is not blank."""
        kept = []
        for index, entry in self._entries.items():
            if entry.type in (TextBlock.type, ReasoningBlock.type):
                block = _assembled(index, entry)
                if isinstance(block, (TextBlock, ReasoningBlock)) and block.text.strip():
                    kept.append(block)
        return tuple(kept)

    @property
    def replay_state(self) -> ReplayEnvelope | None:
        """The envelope that came with the finish, without the entries of blocks that were left out.

        None where its entries do not match the blocks one to one, as nobody could use it then.
        """
        envelope = self._replay_state
        if envelope is None or envelope.blocks is None:
            return envelope
        if len(envelope.blocks) != len(self._entries):
            return None
        kept = [not self._cut(entry) for entry in self._entries.values()]
        if all(kept):
            return envelope
        return attrs.evolve(
            envelope, blocks=[state for state, keep in zip(envelope.blocks, kept, strict=True) if keep]
        )

    def message(self, source: Source | None = None) -> Message:
        """The assistant message of :meth:`blocks`, with a fresh id.

        Args:
            source: where it comes from; by default a plugin source that names the assembler.

        Raises:
            LlmError: as :meth:`blocks`.
        """
        return create_assistant_message(
            self.blocks(), PluginSource("block-assembler") if source is None else source
        )


def _assembled(index: int, entry: _Entry) -> ContentBlock:
    if entry.block is not None:
        return entry.block
    if entry.type == TextBlock.type:
        return TextBlock(entry.text())
    if entry.type == ReasoningBlock.type:
        return ReasoningBlock(entry.text())
    if entry.type == ToolCallBlock.type:
        return _call(index, entry)
    raise LlmError(
        f"block {index} of type {entry.type!r} was never closed, and nothing else can build it",
        codes.INVALID_CHUNK_SEQUENCE,
    )


def _call(index: int, entry: _Entry) -> ToolCallBlock:
    return ToolCallBlock(CallId(entry.id or f"call-{index}"), entry.name, entry.text())


def _named(block: ContentBlock, index: int) -> ContentBlock:
    """``block`` itself, but for a tool call to which its wire gave no id."""
    if isinstance(block, ToolCallBlock) and not block.id:
        return attrs.evolve(block, id=CallId(f"call-{index}"))
    return block
