"""Lines of a chat stream to chunks.

* Text, thinking and calls come without marks: a block ends when another begins. Calls are objects, mostly
  without an id.
* The line that says ``done`` is the terminal marker; it carries the word and the counts. A prompt that was
  in the server's cache as a whole is not counted at all, which is zero tokens.
* A line with an error, an unknown word and an empty response finish with Error; a stream that ends without
  ``done`` is a :attr:`OllamaTranslator.failure`, which the caller raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...model import codes
from ...model.chunks import (
    Error,
    Finish,
    FinishReason,
    MaxTokens,
    Stop,
    StreamChunk,
    TokenUsage,
    ToolCalls,
    Usage,
)
from ...model.content import ReasoningBlock, TextBlock
from ...protocol.json_text import compact
from ..blocks import BlockWriter
from ..translator import ResponseTranslator
from .types import Call, ChatLine

# A model was put into memory, or taken out of it: what the server says to a request that asks for no answer.
_IDLE_WORDS: Final = {"load": "the server loaded the model", "unload": "the server unloaded the model"}
_DURATIONS: Final = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


class OllamaTranslator(ResponseTranslator):
    """Folds the lines of one response into chunks. No I/O; one instance for each response."""

    __slots__ = (
        "_blocks",
        "early_usage",
        "facts",
    )

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__(secrets)
        self.early_usage: TokenUsage | None = None
        self.facts: dict[str, object] = {}
        self._blocks = BlockWriter()

    def feed(self, line: ChatLine, out: list[StreamChunk]) -> None:
        """Append the chunks that ``line`` makes."""
        if line.error:
            self._fail(line, out)
            return
        if self.served_model is None:
            self.served_model = line.model or None
        message = line.message
        if message is None:
            text, thinking, calls = line.response, line.thinking, None
        else:
            text, thinking, calls = message.content, message.thinking, message.tool_calls
        if thinking:
            self.progressed = True
            self._blocks.add(ReasoningBlock, thinking, out)
        if text:
            self.progressed = True
            self._blocks.add(TextBlock, text, out)
        for call in calls or ():
            self._feed_call(call, out)
        if line.done:
            self._finish(line, out)

    def close(self, clean: bool, out: list[StreamChunk]) -> None:
        """The body ended, properly if ``clean``, and without ``done``."""
        if clean:
            self.failure = self._failed(
                'the stream ended without a line that says "done"', codes.STREAM_CLOSED
            )

    def _feed_call(self, call: Call, out: list[StreamChunk]) -> None:
        function = call.function
        if function is None:
            return
        self.progressed = True
        arguments = function.arguments
        self._blocks.begin_call(call.id, function.name or "", out)
        self._blocks.end_arguments(
            arguments if isinstance(arguments, str) else compact({} if arguments is None else arguments), out
        )

    def _finish(self, line: ChatLine, out: list[StreamChunk]) -> None:
        for name in _DURATIONS:
            value = getattr(line, name)
            if value is not None:
                self.facts[name] = value
        reason = self._reason(line.done_reason, out)
        if line.prompt_eval_count is not None or line.eval_count is not None:
            out.append(Usage(TokenUsage(_count(line.prompt_eval_count), _count(line.eval_count))))
        out.append(Finish(reason))
        self.terminal = True

    def _reason(self, word: str | None, out: list[StreamChunk]) -> FinishReason:
        blocks = self._blocks
        raw = word or None
        known = (word or "stop").lower()
        if known == "length":
            if blocks.kind in (TextBlock, ReasoningBlock):  # a call that came last may be cut
                blocks.end(out)
            return MaxTokens(raw=raw)
        blocks.end(out)
        if known != "stop" and known not in _IDLE_WORDS:
            failure = self._failed(f"the provider ended the response with {word!r}", known.upper())
            return Error(failure, raw=raw)
        if blocks.cut:
            return MaxTokens(raw=raw)
        if not blocks.count:
            what = _IDLE_WORDS.get(known, "the response is empty")
            return Error(self._failed(what, codes.EMPTY_RESPONSE), raw=raw)
        return ToolCalls(raw=raw) if blocks.calls else Stop(raw=raw)

    def _fail(self, line: ChatLine, out: list[StreamChunk]) -> None:
        failure = self._reported({"error": line.error})
        out.append(Finish(Error(failure, raw=line.done_reason or None)))
        self.terminal = True


def _count(value: int | None) -> int:
    return max(value or 0, 0)
