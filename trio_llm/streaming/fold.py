"""A fold that is done late: most streams are read to the end and never asked for their message."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.chunks import StreamChunk
from ..protocol.assembler import BlockAssembler

_BATCHES = 8
"""How many batches are kept before they are folded, so that memory follows the text, not the chunks."""


class LazyFold:
    """Keeps batches of chunks and folds them when asked, or when there are many."""

    __slots__ = ("_assembler", "_pending")

    def __init__(self) -> None:
        self._assembler = BlockAssembler()
        self._pending: list[Sequence[StreamChunk]] = []

    def add(self, batch: Sequence[StreamChunk]) -> None:
        """Add chunks; the batch must not be changed afterwards."""
        self._pending.append(batch)
        if len(self._pending) >= _BATCHES:
            self.assembled()

    def assembled(self) -> BlockAssembler:
        """The assembler with everything added so far."""
        pending, self._pending = self._pending, []
        for batch in pending:
            self._assembler.push_all(batch)
        return self._assembler
