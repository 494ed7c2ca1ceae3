"""Events of a chat-completions stream to chunks.

Reading is the same for every compatible server: where their dialects differ, they differ in ways that
do not collide, and a server changes its dialect more often than its name.

* ``reasoning_content``, ``reasoning`` and ``reasoning_details`` carry the same thinking; the first that
  holds text is taken. A refusal is visible text.
* A tool call is known by its id, then by its index, then by being the last one. A new id at a known
  index is a new call, but not without a name while the call there is not over; an id, a name, an index or
  whole arguments that come again, come again.
* Usage and finish are held back until ``[DONE]`` or, after a finish word, the end of the body.
* An error that the provider sends inside the stream ends it as ``Finish(Error)``, and so does an error word
  or an empty response; a stream that ends without a terminal signal is a :attr:`ChatTranslator.failure`,
  which the caller raises.
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
    ReasoningDelta,
    Stop,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCalls,
    Usage,
)
from ...model.content import ReasoningBlock, TextBlock, ToolCallBlock
from ...model.identifiers import CallId
from ...protocol.json_text import SurrogateJoiner, compact
from ..translator import ResponseTranslator
from .replay import Kept
from .tool_calls import OpenCall, OpenCalls
from .types import DONE, ChatChunk, ContentPart, ToolCallPart, details_text, parts_text
from .usage import token_usage, usage_facts

_STOP_WORDS: Final = frozenset({"stop", "eos", "end_turn"})  # Together says eos, gateways to Claude end_turn
_TOOL_WORDS: Final = frozenset({"tool_calls", "function_call", "tool_use"})
_LENGTH_WORDS: Final = frozenset({"length", "max_tokens", "model_length"})  # the last is Mistral's
# DeepSeek, "Create chat completion": the server ran out of resources. The rest is the word in upper case.
_ERROR_CODES: Final = {"insufficient_system_resource": codes.SERVER}


class ChatTranslator(ResponseTranslator):
    """Folds the events of one response into chunks. No I/O; one instance for each response.

    Args:
        secrets: blacked out where an error in the stream repeats one.
        kept: collects what the server must have back; None collects nothing.
    """

    __slots__ = (
        "_blocks",
        "_calls",
        "_error",
        "_facts",
        "_index",
        "_joiner",
        "_kept",
        "_kind",
        "_parts",
        "_raw_usage",
        "_tagged",
        "_usage",
        "_word",
    )

    def __init__(self, secrets: Sequence[str] = (), kept: Kept | None = None) -> None:
        super().__init__(secrets)
        self._kept = kept
        self._blocks = 0
        self._kind: type[TextBlock] | type[ReasoningBlock] | None = None
        self._index = -1
        self._parts: list[str] = []
        self._joiner = SurrogateJoiner()
        self._tagged = False
        self._calls = OpenCalls()
        self._word: str | None = None
        self._raw_usage: Any = None
        self._usage: TokenUsage | None = None
        self._facts: dict[str, object] = {}
        self._error: Error | None = None

    @property
    def early_usage(self) -> TokenUsage | None:
        """The last counts so far; the same object as long as no others came."""
        if self._usage is None and self._raw_usage is not None:
            self._usage = token_usage(self._raw_usage)
        return self._usage

    @property
    def facts(self) -> dict[str, object]:
        """Durations, costs and the like, as the provider calls them."""
        return {**usage_facts(self._raw_usage), **self._facts}

    def feed(self, event: ChatChunk, out: list[StreamChunk]) -> None:
        """Append the chunks that ``event`` makes."""
        if event is DONE:
            self._finish(out)
            return
        if event.error or self.ending:
            self._fail(event, event.error)
            return
        if self.response_id is None:
            self.response_id, self.served_model = event.id or None, event.model or None
        usage = event.usage
        if usage:
            self._note_usage(usage)
        choices = event.choices
        if not choices:
            self._feed_envelope(event)
            return
        for choice in choices:
            if choice.index:  # other answers of the same request (n > 1)
                continue
            delta = choice.delta or choice.message
            if delta is not None:
                reasoning = delta.reasoning_content or delta.reasoning
                if delta.reasoning_details:
                    self.progressed = True  # what is encrypted makes no chunk
                    reasoning = reasoning or details_text(delta.reasoning_details)
                    if self._kept is not None:
                        self._kept.add_details(delta.reasoning_details)
                if reasoning:
                    self._add(ReasoningBlock, reasoning, out)
                content = delta.content
                if delta.extra_content is not None:
                    content = self._feed_extra(delta.extra_content, content, out)
                if content:
                    if not isinstance(content, str):
                        self._feed_parts(content, out)
                    else:
                        self._add_text(content, out)
                if delta.tool_calls:
                    for part in delta.tool_calls:
                        self._feed_call(part, out)
                if delta.refusal:
                    self._add(TextBlock, delta.refusal, out)
            if choice.finish_reason:
                self._word = choice.finish_reason
                self.progressed = True
                if choice.error:
                    self._fail(event, choice.error)
                    return
            if choice.usage:
                self._note_usage(choice.usage)
        if event.x_groq is not None or event.timings is not None:
            self._feed_envelope(event)

    def feed_texts(self, texts: Sequence[str], out: list[StreamChunk]) -> None:
        """As :meth:`feed` for events that say a text alone each; none is empty or has half of a pair."""
        if self.ending:
            return
        while texts and (self._kind is not TextBlock or self._joiner.holding):
            self._add_text(texts[0], out)  # which begins no block where all it says is the end of a tag
            texts = texts[1:]
        self._parts.extend(texts)
        index = self._index
        out.extend([TextDelta(index, text) for text in texts])

    def close(self, clean: bool, out: list[StreamChunk]) -> None:
        """The body ended, properly if ``clean``. Sets :attr:`failure` where no terminal signal came."""
        if self.ending or (clean and self._word is not None):
            self._finish(out)
        elif clean:
            self.failure = self._failed(
                "the stream ended without a finish reason and without [DONE]", codes.STREAM_CLOSED
            )

    def _feed_envelope(self, event: ChatChunk) -> None:
        """What stands beside the choices."""
        if isinstance(event.timings, dict):
            self._facts.update(event.timings)
        groq = event.x_groq
        if isinstance(groq, dict):
            if groq.get("error"):
                self._fail(event, groq["error"])
            elif groq.get("usage") and not event.usage:
                self._note_usage(groq["usage"])
        elif not event.choices and (event.message or event.detail):
            bare = {"message": event.message or event.detail, "code": event.code, "type": event.type}
            self._fail(event, bare)

    def _note_usage(self, usage: Any) -> None:
        self._raw_usage, self._usage = usage, None
        self.progressed = True

    # Text and reasoning

    def _add(self, kind: type[TextBlock] | type[ReasoningBlock], text: str, out: list[StreamChunk]) -> None:
        if self._kind is not kind:
            self._close_block(out)
            self._kind, self._index, self._parts = kind, self._blocks, []
            self._blocks += 1
            out.append(BlockStart(self._index, kind.type))
        text = self._joiner.push(text)
        if text:
            self._say(kind, text, out)
        else:
            self.progressed = True

    def _say(self, kind: type[TextBlock] | type[ReasoningBlock], text: str, out: list[StreamChunk]) -> None:
        self._parts.append(text)
        out.append(TextDelta(self._index, text) if kind is TextBlock else ReasoningDelta(self._index, text))

    def _close_block(self, out: list[StreamChunk]) -> None:
        kind = self._kind
        if kind is None:
            return
        if half := self._joiner.flush():
            self._say(kind, half, out)
        self._kind = None
        out.append(BlockEnd(self._index, kind("".join(self._parts))))

    def _add_text(self, text: str, out: list[StreamChunk]) -> None:
        if self._tagged:
            self._tagged = False
            text = text.removeprefix("</thought>")
            if not text:
                self.progressed = True
                return
        self._add(TextBlock, text, out)

    def _feed_extra(
        self, extra: Any, content: str | list[ContentPart] | None, out: list[StreamChunk]
    ) -> str | list[ContentPart] | None:
        """What Google adds to a delta; the rest of ``content``, which is none if this is a thought.

        Thoughts are content in a tag, which is closed by the first text behind them ("OpenAI compatibility").
        """
        self.progressed = True
        google = extra.get("google") if isinstance(extra, dict) else None
        if isinstance(google, dict) and google.get("thought") is True and isinstance(content, str):
            thought = content if self._tagged else content.removeprefix("<thought>")
            self._tagged = True
            if self._kind is TextBlock:
                self._close_block(out)  # also where the tag comes alone: the text behind it begins anew
            if thought:
                self._add(ReasoningBlock, thought, out)
            return None
        if self._kept is not None:
            self._kept.add_extra(extra)
        return content

    def _feed_parts(self, parts: list[ContentPart], out: list[StreamChunk]) -> None:
        for part in parts:
            thinking = parts_text(part.thinking)
            if thinking:
                self._add(ReasoningBlock, thinking, out)
            if part.thinking is not None and self._kind is ReasoningBlock and self._kept is not None:
                self._kept.add_part(self._index, part)
            if part.text:
                self._add(TextBlock, part.text, out)

    # Tool calls

    def _feed_call(self, part: ToolCallPart, out: list[StreamChunk]) -> None:
        self.progressed = True
        name, arguments = "", ""
        if part.function is not None:
            name, arguments = part.function.name or "", part.function.arguments
            if arguments is None:
                arguments = ""
            elif type(arguments) is not str:
                arguments = compact(arguments)
        id = CallId(str(part.id)) if part.id not in (None, "") else None
        call = self._calls.find(id, part.index, name, arguments)
        if part.extra_content is not None and self._kept is not None:
            self._kept.add_extra(part.extra_content, self._blocks if call is None else call.index)
        if call is None:
            self._close_block(out)
            call = self._calls.begin(self._blocks, id, part.index, name)
            self._blocks += 1
            out.append(BlockStart(call.index, ToolCallBlock.type))
        elif (call.name or not name) and (call.id is not None or id is None):
            if not arguments or call.repeats(arguments):
                return  # says nothing new
            self._close_block(out)
            name = ""
        else:
            self._close_block(out)
            if call.id is None and id is not None:
                self._calls.name_it(call, id)
            if call.name:
                name = ""
            else:
                call.name = name
        self._calls.latest = call
        arguments = call.joiner.push(arguments)
        call.parts.append(arguments)
        call.length += len(arguments)
        out.append(ToolCallDelta(call.index, call.id, name or None, arguments))

    def _close_call(self, call: OpenCall, out: list[StreamChunk]) -> None:
        half = call.joiner.flush()
        if half:
            call.parts.append(half)
            out.append(ToolCallDelta(call.index, call.id, None, half))
        call.closed = True
        id = call.id if call.id is not None else CallId(f"call-{call.index}")
        out.append(BlockEnd(call.index, ToolCallBlock(id, call.name, call.arguments)))

    # The end

    def _finish(self, out: list[StreamChunk]) -> None:
        if self._error is not None:
            self._end(self._error, out)
            return
        self._close_block(out)
        word = self._word
        known = (word or "stop").lower()
        if known in _LENGTH_WORDS:
            reason: FinishReason = self._cut(word, out)
        elif known not in _STOP_WORDS and known not in _TOOL_WORDS:
            code = _ERROR_CODES.get(known, known.upper())
            reason = Error(self._failed(f"the provider ended the response with {word!r}", code), raw=word)
        elif not self._blocks:
            reason = Error(self._failed("the response is empty", codes.EMPTY_RESPONSE), raw=word)
        elif not all(call.complete for call in self._calls.listed):
            reason = self._cut(word, out)  # some servers say tool_calls where the limit cut one
        else:
            for call in self._calls.listed:
                self._close_call(call, out)
            reason = ToolCalls(raw=word) if self._calls.listed or known in _TOOL_WORDS else Stop(raw=word)
        self._end(reason, out)

    def _cut(self, word: str | None, out: list[StreamChunk]) -> MaxTokens:
        for call in self._calls.listed:
            if call.index < self._blocks - 1 and call.complete:
                self._close_call(call, out)
        return MaxTokens(raw=word)

    def _fail(self, event: ChatChunk, error: Any) -> None:
        """The provider gave up; what it sends from now on is read for its counts alone."""
        if event.usage:
            self._note_usage(event.usage)
        if not error:
            return
        for choice in event.choices or ():
            self._word = choice.finish_reason or self._word
        self._error = Error(self._reported(error), raw=self._word)
        self.ending = self.progressed = True

    def _end(self, reason: FinishReason, out: list[StreamChunk]) -> None:
        usage = self.early_usage
        if usage is not None:
            out.append(Usage(usage))
        state = None
        if self._kept is not None and not isinstance(reason, Error):
            state = self._kept.envelope(self._blocks, self._calls.listed, cut=isinstance(reason, MaxTokens))
        out.append(Finish(reason, state))
        self.terminal = True
