"""Events of a Messages stream to chunks.

* The provider delimits its blocks, so each is one, even an empty one; deltas are routed by the block's wire
  index. What its own tools do, and citations, make no chunk and go into replay state (see :mod:`.replay`).
* Usage and finish are held back until ``message_stop`` or, after a stop reason, the end of the body.
* A tool call's block-end waits until another block begins or the response ends: only then is it clear that
  the token limit did not cut it.
* An error event finishes with Error, and so do refusals, unknown stop reasons and empty responses; a stream
  that ends without a terminal signal is a :attr:`MessagesTranslator.failure`, which the caller raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...model import codes
from ...model.chunks import (
    BlockEnd,
    BlockStart,
    Error,
    Finish,
    FinishReason,
    MaxTokens,
    Pause,
    Stop,
    StreamChunk,
    TokenUsage,
    ToolCalls,
    Usage,
)
from ..translator import ResponseTranslator
from .parts import Part
from .replay import write_replay
from .types import Delta, MessageEvent, StartedMessage
from .usage import merge_usage, token_usage, usage_facts

_STOP_WORDS: Final = frozenset({"end_turn", "stop_sequence", "tool_use"})
# The provider's own loop reached its limit, or stopped after it compacted ("Handling stop reasons").
_PAUSE_WORDS: Final = frozenset({"pause_turn", "compaction"})
_ERROR_CODES: Final = {
    "refusal": codes.REFUSAL,
    "model_context_window_exceeded": codes.CONTEXT_WINDOW_EXCEEDED,
}


class MessagesTranslator(ResponseTranslator):
    """Folds the events of one response into chunks. No I/O; one instance for each response."""

    __slots__ = (
        "_container",
        "_counted",
        "_details",
        "_facts",
        "_indexes",
        "_latest",
        "_parts",
        "_raw_usage",
        "_sequence",
        "_usage",
        "_word",
    )

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__(secrets)
        self._parts: dict[int, Part] = {}  # by wire index, while open
        self._sequence: list[Part] = []
        self._latest: Part | None = None
        self._indexes = 0
        self._word: str | None = None
        self._details: Any = None
        self._container: str | None = None
        self._raw_usage: dict[str, Any] = {}
        self._usage: TokenUsage | None = None
        self._counted = False  # the counts are those of the end
        self._facts: dict[str, object] = {}

    @property
    def early_usage(self) -> TokenUsage | None:
        """The last counts so far; the same object as long as no others came."""
        if self._usage is None and self._raw_usage:
            self._usage = token_usage(self._raw_usage)
        return self._usage

    @property
    def facts(self) -> dict[str, object]:
        """Service tier, uses of server tools, the stop sequence and the like, as the provider calls them."""
        return {**usage_facts(self._raw_usage), **self._facts}

    def feed(self, event: MessageEvent, out: list[StreamChunk]) -> None:
        """Append the chunks that ``event`` makes."""
        type = event.type
        if type == "content_block_delta":
            if event.delta is not None:
                self._feed_delta(event.index or 0, event.delta, out)
        elif type == "content_block_start":
            if event.content_block is not None:
                self._begin(event.index or 0, event.content_block, out)
        elif type == "content_block_stop":
            self._stop(event.index or 0, out)
        elif type == "message_start":
            if event.message is not None:
                self._feed_message(event.message, out)
        elif type == "message_delta":
            self._feed_end(event)
        elif type == "message_stop":
            self._finish(out)
        elif type == "error":
            self._fail(event, out)

    def close(self, clean: bool, out: list[StreamChunk]) -> None:
        """The body ended, properly if ``clean``. Sets :attr:`failure` where no terminal signal came."""
        if clean and self._word is not None:
            self._finish(out)
        elif clean:
            self.failure = self._failed(
                "the stream ended without a stop reason and without message_stop", codes.STREAM_CLOSED
            )

    # The message as a whole

    def _feed_message(self, message: StartedMessage, out: list[StreamChunk]) -> None:
        self.progressed = True
        self.response_id, self.served_model = message.id or None, message.model or None
        self._note_usage(message.usage)
        for index, block in enumerate(message.content or ()):
            self._begin(index, block, out)
            self._stop(index, out)
        self._note_end(message)

    def _feed_end(self, event: MessageEvent) -> None:
        self.progressed = True
        if self._note_usage(event.usage):
            self._counted = True
        if event.context_management is not None:
            self._facts["context_management"] = event.context_management
        if event.delta is not None:
            self._note_end(event.delta)

    def _note_end(self, said: StartedMessage | Delta) -> None:
        if said.stop_reason:
            self._word = said.stop_reason
        if said.stop_sequence is not None:
            self._facts["stop_sequence"] = said.stop_sequence
        if said.stop_details is not None:
            self._details = self._facts["stop_details"] = said.stop_details
        if isinstance(said.container, dict):
            self._facts["container"] = said.container
            id = said.container.get("id")
            self._container = id if isinstance(id, str) else self._container

    def _note_usage(self, usage: Any) -> bool:
        news = merge_usage(self._raw_usage, usage)
        if news:
            self._usage = None
        return news

    # Blocks

    def _begin(self, index: int, raw: dict[str, Any], out: list[StreamChunk]) -> Part:
        self.progressed = True
        if index in self._parts:
            self._stop(index, out)
        part = Part(raw, self._indexes)
        before, self._latest = self._latest, part
        if before is not None and before.stopped:
            self._end_part(before, out)
        self._parts[index] = part
        self._sequence.append(part)
        if part.block is not None:
            self._indexes += 1
            out.append(BlockStart(part.index, part.block.type))
            part.begin(out)
        return part

    def _feed_delta(self, index: int, delta: Delta, out: list[StreamChunk]) -> None:
        part = self._parts.get(index)
        if part is None or not part.take(delta, out):
            kind = "text" if delta.text else "thinking" if delta.thinking else None
            if kind is None or (part is not None and part.block is None):
                return  # nothing tells to which block it would belong
            if part is not None:  # some servers say it in a block of another kind; it gets one of its own
                index = -1 - index
                part = self._parts.get(index)
            if part is None or not part.take(delta, out):
                self._begin(index, {"type": kind}, out).take(delta, out)
        self.progressed = True

    def _stop(self, index: int, out: list[StreamChunk]) -> None:
        part = self._parts.pop(index, None)
        if part is None:
            return
        self.progressed = True
        part.stopped = True
        if not part.is_call or part is not self._latest:
            self._end_part(part, out)

    def _end_part(self, part: Part, out: list[StreamChunk]) -> None:
        """Close a block, once; a call that is not whole stays open."""
        if part.block is None or part.ended or (part.is_call and not part.complete):
            return
        part.ended = True
        block = part.settle(out)
        out.append(BlockEnd(part.index, block))

    # The end

    def _finish(self, out: list[StreamChunk]) -> None:
        word = self._word
        code = None if word is None else _ERROR_CODES.get(word)
        known = word is None or word in _STOP_WORDS or word in _PAUSE_WORDS or word == "max_tokens"
        if code is not None or not known:
            assert word is not None
            message = self._explanation() or f"the provider ended the response with {word!r}"
            reason: FinishReason = Error(self._failed(message, code or word.upper()), raw=word)
        else:
            reason = self._well_ended(word, out)
        usage = self.early_usage
        if usage is not None:
            out.append(Usage(usage))
        replay = None
        if not isinstance(reason, Error):
            replay = write_replay(
                (
                    (part.block is not None, part.item() if part.block is None else part.entry())
                    for part in self._sequence
                ),
                self._container,
                pending=not isinstance(reason, MaxTokens),
            )
        out.append(Finish(reason, replay))
        self.terminal = True

    def _well_ended(self, word: str | None, out: list[StreamChunk]) -> FinishReason:
        paused = word in _PAUSE_WORDS
        for part in self._sequence:
            if not part.is_call:
                self._end_part(part, out)
        calls = [part for part in self._sequence if part.is_call]
        if word == "max_tokens" or not all(part.complete for part in calls):
            # A call before the last block, whole and stopped late, is closed here; the last one may be cut.
            for part in calls:
                if part is not self._latest:
                    self._end_part(part, out)
            return MaxTokens(raw=word)
        if paused and not self._indexes:
            # A message needs a block to carry what the provider's own tools did so far.
            self._begin(-1, {"type": "text"}, out)
            self._stop(-1, out)
        if not self._indexes:
            return Error(self._failed("the response is empty", codes.EMPTY_RESPONSE), raw=word)
        for part in calls:
            self._end_part(part, out)
        if paused:
            return Pause(raw=word)
        return ToolCalls(raw=word) if calls or word == "tool_use" else Stop(raw=word)

    def _explanation(self) -> str | None:
        text = self._details.get("explanation") if isinstance(self._details, dict) else None
        return text if isinstance(text, str) and text else None

    def _fail(self, event: MessageEvent, out: list[StreamChunk]) -> None:
        """The provider gave up. The counts so far are no counts of the response."""
        error = {"error": event.error, "request_id": event.request_id}
        failure = self._reported(error)
        usage = self.early_usage
        if self._counted and usage is not None:
            out.append(Usage(usage))
        out.append(Finish(Error(failure, raw=self._word)))
        self.terminal = True
