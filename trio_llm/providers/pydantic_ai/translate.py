"""The library's events as chunks. No I/O."""

from __future__ import annotations

from typing import Any, Final

import attrs

from ...model import codes
from ...model.chunks import (
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
    TokenUsage,
    ToolCallDelta,
    ToolCalls,
    Usage,
)
from ...model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from ...model.failures import LlmFailure
from ...model.identifiers import CallId, ProviderRequestId
from ...protocol.json_text import SurrogateJoiner, compact, is_complete_json
from .replay import write_replay

_KINDS: Final = {"text": TextBlock.type, "thinking": ReasoningBlock.type, "tool-call": ToolCallBlock.type}


@attrs.define(eq=False)
class _Open:
    """A block that is not closed yet, and the part of the library that it shows."""

    index: int
    part: int
    type: str
    id: CallId | None = None
    name: str = ""
    pieces: list[str] = attrs.field(factory=list)
    parsed: dict[str, Any] | None = None  # arguments that came as an object
    joiner: SurrogateJoiner = attrs.field(factory=SurrogateJoiner)


class PartsTranslator:
    """Folds the events of one response into chunks.

    Indexes are given in order of first appearance. Text and reasoning end where the library says so (what
    it adds to a part later is a block of its own), calls stay open to the end, as it may go back to one.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}  # by the library's index of the part
        self._parts: list[int] = []  # for each block, the part it shows
        self._calls = 0

    def feed(self, event: Any, out: list[StreamChunk]) -> None:
        """Append the chunks that an event makes."""
        match event.event_kind:
            case "part_start":
                self._start(event.index, event.part, out)
            case "part_delta":
                self._continue(event.index, event.delta, out)
            case "part_end":
                block = self._open.get(event.index)
                if block is not None and block.type != ToolCallBlock.type:
                    self._close(block, out)
            case _:
                pass  # final_result says nothing new

    def _start(self, part: int, value: Any, out: list[StreamChunk]) -> None:
        kind = _KINDS.get(value.part_kind)
        earlier = self._open.get(part)
        if earlier is not None and earlier.type != kind:  # a start that replaces what the part was
            self._close(earlier, out)
        if kind is None:
            return
        block = self._open.get(part) or self._begin(part, kind, out)
        if kind == ToolCallBlock.type:
            block.id, block.name = CallId(value.tool_call_id), value.tool_name
            out.append(ToolCallDelta(block.index, block.id, block.name))
            self._add_arguments(block, value.args, out)
        else:
            self._add_text(block, value.content, out)

    def _continue(self, part: int, delta: Any, out: list[StreamChunk]) -> None:
        kind = {"text": TextBlock.type, "thinking": ReasoningBlock.type, "tool_call": ToolCallBlock.type}.get(
            delta.part_delta_kind
        )
        block = self._open.get(part)
        if kind == ToolCallBlock.type:
            if block is not None and block.type == kind:  # else it is a call of the provider's own tools
                self._add_arguments(block, delta.args_delta, out)
        elif kind is not None and delta.content_delta:
            self._add_text(block or self._begin(part, kind, out), delta.content_delta, out)

    def _begin(self, part: int, kind: str, out: list[StreamChunk]) -> _Open:
        block = self._open[part] = _Open(len(self._parts), part, kind)
        self._parts.append(part)
        out.append(BlockStart(block.index, kind))
        return block

    def _add_text(self, block: _Open, text: str, out: list[StreamChunk]) -> None:
        text = block.joiner.push(text)
        if text:
            self._send(block, text, out)

    def _send(self, block: _Open, text: str, out: list[StreamChunk]) -> None:
        block.pieces.append(text)
        if block.type == TextBlock.type:
            out.append(TextDelta(block.index, text))
        elif block.type == ReasoningBlock.type:
            out.append(ReasoningDelta(block.index, text))
        else:
            out.append(ToolCallDelta(block.index, block.id, arguments_delta=text))

    def _add_arguments(
        self, block: _Open, arguments: str | dict[str, Any] | None, out: list[StreamChunk]
    ) -> None:
        if isinstance(arguments, dict):
            block.parsed = {**(block.parsed or {}), **arguments}
        elif arguments:
            self._add_text(block, arguments, out)

    def _close(self, block: _Open, out: list[StreamChunk]) -> None:
        del self._open[block.part]
        self._flush(block, out)
        text = "".join(block.pieces)
        whole: ContentBlock
        if block.type == ToolCallBlock.type:
            assert block.id is not None
            self._calls += 1
            whole = ToolCallBlock(block.id, block.name, text)
        else:
            whole = TextBlock(text) if block.type == TextBlock.type else ReasoningBlock(text)
        out.append(BlockEnd(block.index, whole))

    def _flush(self, block: _Open, out: list[StreamChunk]) -> None:
        """Send what is held back: half a character, or arguments that came as an object."""
        held = block.joiner.flush()
        if block.parsed is not None:
            held, block.parsed = held + compact(block.parsed), None
        if held:
            self._send(block, held, out)

    def finish(
        self, messages: Any, response: Any, request_id: ProviderRequestId | None, out: list[StreamChunk]
    ) -> None:
        """The response is complete: close what is open, append the counts and the ``Finish``.

        Args:
            messages: the library's module.
            response: the library's ModelResponse.
        """
        details = response.provider_details or {}
        raw = details.get("finish_reason")
        cut = response.finish_reason == "length"
        for block in list(self._open.values()):
            if block.type == ToolCallBlock.type and not self._is_whole(block, cut):
                self._flush(block, out)
            else:
                self._close(block, out)
        usage = token_usage(response.usage)
        if usage is not None:
            out.append(Usage(usage))
        reason = self._reason(response, raw if isinstance(raw, str) and raw else None, request_id)
        if isinstance(reason, Error):
            out.append(Finish(reason))
        else:
            out.append(Finish(reason, write_replay(messages, response, self._parts)))

    def _is_whole(self, block: _Open, cut: bool) -> bool:
        """Whether a call has all its arguments, or none; at a limit the last may be cut all the same."""
        if cut and block.index == len(self._parts) - 1:
            return False
        text = "".join(block.pieces)
        return block.parsed is not None or not text.strip() or is_complete_json(text)

    def _reason(self, response: Any, raw: str | None, request_id: ProviderRequestId | None) -> FinishReason:
        def failed(message: str, code: str) -> Error:
            return Error(LlmFailure(message, code, request_id=request_id), raw=raw)

        word = response.finish_reason
        if response.state == "suspended":
            return MaxTokens(raw=raw) if self._open else Pause(raw=raw)
        if word == "length":
            return MaxTokens(raw=raw)
        if word == "content_filter":
            details = response.provider_details or {}
            if raw == "refusal" or "refusal" in details:
                said = details.get("refusal")
                return failed(said if isinstance(said, str) and said else "the model refused", codes.REFUSAL)
            return failed("the provider's content filter ended the answer", codes.CONTENT_FILTER)
        if word == "error" or (word is None and raw is not None):
            return failed(f"the provider ended the answer with {raw!r}", raw.upper() if raw else codes.SERVER)
        if self._open:  # a call that is not whole was cut, whatever the word
            return MaxTokens(raw=raw)
        if self._calls:
            return ToolCalls(raw=raw)
        if not self._parts:
            return failed("the answer is empty", codes.EMPTY_RESPONSE)
        return Stop(raw=raw)


def token_usage(usage: Any) -> TokenUsage | None:
    """The library's counts, made disjoint; None where it has none.

    It counts cached input as input, and says 0 for what was not reported: a 0 of caches or reasoning is told
    as not reported.
    """
    if not usage.input_tokens and not usage.output_tokens:
        return None
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return TokenUsage(
        max(usage.input_tokens - cached, 0),
        usage.output_tokens,
        usage.cache_read_tokens or None,
        usage.cache_write_tokens or None,
        usage.output_reasoning_tokens or usage.details.get("reasoning_tokens") or None,
    )
