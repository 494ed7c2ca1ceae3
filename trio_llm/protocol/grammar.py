"""Which sequences of chunks are proper. The rules:

1. The index of a block is an int of 0 or more. ``BlockStart`` opens it, unless it is open already.
2. A delta belongs to an open block of its own type.
3. ``BlockEnd`` closes an open block, and carries a block of that block's type.
4. ``Usage`` comes at most once, before ``Finish``.
5. ``Finish`` comes exactly once and last. Blocks may still be open at

   - an error or an abort: any;
   - max-tokens: tool calls, which were cut;
   - a reason this process does not know: any, as nobody can say;
   - everything else: none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from ..model import codes
from ..model.chunks import (
    Aborted,
    BlockEnd,
    BlockStart,
    Error,
    Finish,
    FinishReason,
    MaxTokens,
    Pause,
    ReasoningDelta,
    Stop,
    StreamChunk,
    TextDelta,
    ToolCallDelta,
    ToolCalls,
    UnknownFinish,
    Usage,
)
from ..model.content import ReasoningBlock, TextBlock, ToolCallBlock, block_tag
from ..model.failures import LlmError

# Which block type a delta belongs to (rule 2).
DELTA_TYPES: Final[dict[type[StreamChunk], str]] = {
    TextDelta: TextBlock.type,
    ReasoningDelta: ReasoningBlock.type,
    ToolCallDelta: ToolCallBlock.type,
}

# Which block types may be open at the end (rule 5); None stands for every type.
OPEN_AT_FINISH: Final[dict[type[FinishReason], tuple[str, ...] | None]] = {
    Stop: (),
    ToolCalls: (),
    Pause: (),
    MaxTokens: (ToolCallBlock.type,),
    Aborted: None,
    Error: None,
    UnknownFinish: None,
}


class Grammar:
    """Checks one sequence of chunks as it passes. See the rules at the top of this module."""

    __slots__ = ("_finished", "_open", "_usage")

    def __init__(self) -> None:
        self._open: dict[int, str] = {}
        self._usage = False
        self._finished = False

    def check(self, chunk: StreamChunk) -> None:
        """Take the next chunk.

        Raises:
            LlmError: INVALID_CHUNK_SEQUENCE, if it may not come here; the message says why.
        """
        if self._finished:
            _refuse(f"{_name(chunk)} after the finish")
        handle = _TRANSITIONS.get(type(chunk))
        if handle is None:
            _refuse(f"{type(chunk).__name__} is no chunk")
        handle(self, chunk)

    def end(self) -> None:
        """The sequence is over.

        Raises:
            LlmError: INVALID_CHUNK_SEQUENCE, if no finish came.
        """
        if not self._finished:
            _refuse("the sequence ended without a finish")

    def _block_start(self, chunk: BlockStart) -> None:
        if type(chunk.index) is not int or chunk.index < 0:
            _refuse(f"block-start with the index {chunk.index!r}")
        if chunk.index in self._open:
            _refuse(f"block-start of block {chunk.index}, which is open")
        self._open[chunk.index] = chunk.block_type

    def _delta(self, chunk: TextDelta | ReasoningDelta | ToolCallDelta) -> None:
        self._expect(chunk, DELTA_TYPES[type(chunk)])

    def _block_end(self, chunk: BlockEnd) -> None:
        self._expect(chunk, block_tag(chunk.block))
        del self._open[chunk.index]

    def _expect(self, chunk: TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd, block_type: str) -> None:
        opened = self._open.get(chunk.index)
        if opened is None or type(chunk.index) is not int:
            _refuse(f"{_name(chunk)} for block {chunk.index!r}, which is not open")
        if opened != block_type:
            _refuse(f"{_name(chunk)} of type {block_type!r} for block {chunk.index}, which is {opened!r}")

    def _take_usage(self, chunk: Usage) -> None:
        if self._usage:
            _refuse("a second usage")
        self._usage = True

    def _finish(self, chunk: Finish) -> None:
        allowed = OPEN_AT_FINISH[type(chunk.reason)]
        for index, block_type in self._open.items():
            if allowed is not None and block_type not in allowed:
                _refuse(f"finish with {chunk.reason.kind!r} while block {index} ({block_type!r}) is open")
        self._finished = True


_TRANSITIONS: Final[dict[type[StreamChunk], Callable[[Grammar, Any], None]]] = {
    BlockStart: Grammar._block_start,
    TextDelta: Grammar._delta,
    ReasoningDelta: Grammar._delta,
    ToolCallDelta: Grammar._delta,
    BlockEnd: Grammar._block_end,
    Usage: Grammar._take_usage,
    Finish: Grammar._finish,
}


def _name(chunk: StreamChunk) -> str:
    return str(getattr(chunk, "type", type(chunk).__name__))


def _refuse(reason: str) -> NoReturn:
    raise LlmError(reason, codes.INVALID_CHUNK_SEQUENCE)
