"""Events of a Responses stream to chunks.

* An item is known by its ``output_index``: some gateways give it another id with every event. Text, refusals
  and summaries that came in no delta are taken from the events that state them in all.
* Provider-side items, citations and log probabilities make no chunk. A response of nothing else gets one
  empty text block, as a message needs one to carry what the next request must bring back.
* Usage and finish come with the terminal event: ``response.completed``, ``response.incomplete`` or
  ``response.failed``. An ``error`` event may stand in front of the last, or alone; it is reported once.
* Failures that the provider reports, reasons to end that are none of the vocabulary's, and empty responses
  finish with Error; a stream that ends without a terminal event is a :attr:`ResponsesTranslator.failure`,
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
    Stop,
    StreamChunk,
    TokenUsage,
    ToolCalls,
    Usage,
)
from ...model.content import ContentBlock
from ...model.failures import LlmFailure
from ..translator import ResponseTranslator
from .items import OutputItem, part_text
from .replay import write_replay
from .types import ResponseEvent, ResponseObject
from .usage import token_usage, usage_facts

_LENGTH_WORDS: Final = frozenset({"max_output_tokens", "max_tokens", "length"})
_ERROR_CODES: Final = {"content_filter": codes.CONTENT_FILTER}
_DELTAS: Final = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "function_call",
    "response.custom_tool_call_input.delta": "custom_tool_call",
}
_STATEMENTS: Final = {
    "response.output_text.done": "text",
    "response.refusal.done": "refusal",
    "response.reasoning_text.done": "text",
    "response.reasoning_summary_text.done": "text",
    "response.function_call_arguments.done": "arguments",
    "response.custom_tool_call_input.done": "input",
}
_TERMINAL: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)


class ResponsesTranslator(ResponseTranslator):
    """Folds the events of one response into chunks. No I/O; one instance for each response.

    Attributes:
        ending: only ``response.failed`` with its counts may still come; :meth:`close` ends it at any time.
        early_usage: the counts so far, which this wire tells only at the end.
        blocks: those that ended, in that order.
    """

    __slots__ = (
        "_error",
        "_facts",
        "_indexes",
        "_items",
        "_latest",
        "_sequence",
        "blocks",
        "early_usage",
    )

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__(secrets)
        self.early_usage: TokenUsage | None = None
        self.blocks: dict[int, ContentBlock] = {}
        self._items: dict[int, OutputItem] = {}  # by output index
        self._sequence: list[OutputItem] = []
        self._latest: OutputItem | None = None
        self._indexes = 0
        self._error: LlmFailure | None = None
        self._facts: dict[str, object] = {}

    @property
    def facts(self) -> dict[str, object]:
        """The service tier and what stands beside the counts, as the provider calls it."""
        return self._facts

    def feed(self, event: ResponseEvent, out: list[StreamChunk]) -> None:
        """Append the chunks that ``event`` makes."""
        type = event.type
        self.progressed = True
        if type == "response.output_text.delta":  # nearly every event there is
            item = None if event.output_index is None else self._items.get(event.output_index)
            if item is None or item.stopped or item.type != "message":
                item = self._item_for(event, "message", out)
            if event.delta and isinstance(event.delta, str):
                item.show(event.content_index or 0, event.delta, out)
        elif type in _DELTAS:
            if event.delta and isinstance(event.delta, str):
                item = self._item_for(event, _DELTAS[type], out)
                summary = "summary" in type
                part = event.summary_index if summary else event.content_index
                item.show(part or 0, event.delta, out, summary=summary)
        elif type == "response.output_item.added":
            if event.item is not None:
                self._announce(self._place(event), event.item, out)
        elif type == "response.output_item.done":
            if event.item is not None:
                self._stop(event, out)
        elif type in _STATEMENTS:
            self._restate(event, getattr(event, _STATEMENTS[type]), out, summary="summary" in type)
        elif type in ("response.content_part.done", "response.reasoning_summary_part.done"):
            self._restate(event, part_text(event.part), out, summary="summary" in type)
        elif type == "error":
            self._fail(event.error)
        elif event.response is not None:
            self._feed_response(type or "", event.response, out)

    def close(self, clean: bool, out: list[StreamChunk]) -> None:
        """The body ended, properly if ``clean``. Sets :attr:`failure` where no terminal event came."""
        if self.terminal:
            return
        if self._error is not None:
            self._end(Error(self._error), out)
        elif clean:
            self.failure = self._failed("the stream ended without a terminal event", codes.STREAM_CLOSED)

    # Items

    def _place(self, event: ResponseEvent) -> int:
        """Where the item of an event stands: as it says, else by the item's id, else the last one."""
        if event.output_index is not None:
            return event.output_index
        id = event.item_id if event.item is None else event.item.get("id")
        last = max(self._items, default=-1)
        for place, item in self._items.items():
            if id is not None and item.raw.get("id") == id:
                return place
        return max(last, 0) if event.item is None else last + 1

    def _item_for(self, event: ResponseEvent, type: str, out: list[StreamChunk]) -> OutputItem:
        """The item that an event speaks of; one that never began, or was closed, begins here."""
        place = self._place(event)
        item = self._items.get(place)
        if item is None or item.stopped or item.type != type:
            item = self._begin(place, {"type": type, "id": event.item_id}, out)
        return item

    def _begin(self, place: int, raw: dict[str, Any], out: list[StreamChunk]) -> OutputItem:
        item = OutputItem(raw, self._indexes)
        before, self._latest = self._latest, item
        if before is not None and before.stopped:
            self._end_item(before, out)
        self._items[place] = item
        self._sequence.append(item)
        if item.block is not None:
            self._indexes += 1
            out.append(BlockStart(item.index, item.block.type))
            item.begin(out)
        return item

    def _announce(self, place: int, raw: dict[str, Any], out: list[StreamChunk]) -> None:
        """An item begins; or it is named after its first deltas, or once more, as some servers do."""
        item = self._items.get(place)
        if item is None or item.stopped or not item.may_be(raw):
            self._begin(place, raw, out)
        else:
            item.announce(raw, out)

    def _restate(self, event: ResponseEvent, said: Any, out: list[StreamChunk], *, summary: bool) -> None:
        item = self._items.get(self._place(event))
        if item is not None and not item.stopped and isinstance(said, str):
            part = event.summary_index if summary else event.content_index
            item.restate(part or 0, said, out, summary=summary)

    def _stop(self, event: ResponseEvent, out: list[StreamChunk]) -> None:
        raw = event.item
        assert raw is not None
        place = self._place(event)
        item = self._items.get(place)
        if item is not None and item.stopped and item.is_same(raw):
            return
        if item is None or item.stopped or item.type != str(raw.get("type")):
            item = self._begin(place, raw, out)
        item.update(raw, out)
        item.stopped = True
        if not item.is_call or item is not self._latest:
            self._end_item(item, out)

    def _end_item(self, item: OutputItem, out: list[StreamChunk]) -> None:
        """Close a block, once; a call that is not whole stays open."""
        if item.block is None or item.ended or (item.is_call and not item.complete):
            return
        item.ended = True
        block = self.blocks[item.index] = item.settle(out)
        out.append(BlockEnd(item.index, block))

    def _reconcile(self, output: Sequence[dict[str, Any]], out: list[StreamChunk]) -> None:
        """Take what only the terminal event tells: items that no event brought, and fields that none had."""
        taken: list[OutputItem] = []
        for place, raw in enumerate(output):
            item = next((known for known in self._sequence if known.is_same(raw)), None)
            if item is None:
                item = self._items.get(place)
                if item is not None and (item.type != str(raw.get("type")) or item in taken):
                    item = None
            if item is None:
                item = self._add_late(raw, taken, out)
            else:
                item.update(raw, out)
            taken.append(item)

    def _add_late(
        self, raw: dict[str, Any], taken: Sequence[OutputItem], out: list[StreamChunk]
    ) -> OutputItem:
        item = OutputItem(raw, self._indexes)
        if self._indexes and not item.is_call and not item.shown_by(raw):
            # It shows nothing, so it is kept for replay alone, where it stood.
            item.block, item.index, item.stopped = None, -1, True
            at = self._sequence.index(taken[-1]) + 1 if taken else 0
            self._sequence.insert(at, item)
            return item
        item = self._begin(-1 - len(self._sequence), raw, out)
        item.update(raw, out)
        item.stopped = True
        return item

    # The end

    def _feed_response(self, type: str, response: ResponseObject, out: list[StreamChunk]) -> None:
        self.response_id = self.response_id or response.id or None
        self.served_model = self.served_model or response.model or None
        usage = token_usage(response.usage)
        if usage is not None:
            self.early_usage = usage
        if type not in _TERMINAL:
            return
        self._facts.update(usage_facts(response.usage))
        if response.service_tier is not None:
            self._facts["service_tier"] = response.service_tier
        word = response.status if f"response.{response.status}" in _TERMINAL else None
        word = word or type.removeprefix("response.")
        self._reconcile(response.output or (), out)
        if word == "completed":
            reason = self._well_ended(word, out)
        elif word == "incomplete":
            reason = self._cut_short(response.incomplete_details, out)
        else:
            reason = Error(self._error or self._failed_response(word, response.error), raw=word)
        self._end(reason, out)

    def _well_ended(self, word: str, out: list[StreamChunk]) -> FinishReason:
        calls = [item for item in self._sequence if item.is_call]
        for item in calls:
            item.stopped = True
        if not all(item.complete for item in calls):
            return self._at_the_limit(word, out)
        if not self._sequence:
            return Error(self._failed("the response is empty", codes.EMPTY_RESPONSE), raw=word)
        for item in list(self._sequence):
            self._end_item(item, out)
        if not self._indexes:
            self._end_item(self._begin(-1, {"type": "message"}, out), out)
        return ToolCalls(raw=word) if calls else Stop(raw=word)

    def _cut_short(self, details: Any, out: list[StreamChunk]) -> FinishReason:
        said = details.get("reason") if isinstance(details, dict) else None
        cause = said if isinstance(said, str) and said else "incomplete"
        raw = "incomplete" if cause == "incomplete" else f"incomplete:{cause}"
        if cause in _LENGTH_WORDS:
            return self._at_the_limit(raw, out)
        code = _ERROR_CODES.get(cause, cause.upper())
        return Error(self._failed(f"the provider ended the response with {cause!r}", code), raw=raw)

    def _at_the_limit(self, raw: str, out: list[StreamChunk]) -> MaxTokens:
        for item in self._sequence:
            # A call in front of the last block was whole when that began; the last one may be cut.
            if not item.is_call or item is not self._latest:
                self._end_item(item, out)
        return MaxTokens(raw=raw)

    def _fail(self, error: Any) -> None:
        """The provider gave up; what it sends from now on is read for its last event alone."""
        self._error = self._error or self._reported(error)
        self.ending = True

    def _failed_response(self, word: str, error: Any) -> LlmFailure:
        if error:
            return self._reported(error)
        code = codes.SERVER if word == "failed" else word.upper()
        return self._failed(f"the provider ended the response with {word!r}", code)

    def _end(self, reason: FinishReason, out: list[StreamChunk]) -> None:
        if self.early_usage is not None:
            out.append(Usage(self.early_usage))
        replay = None if isinstance(reason, Error) else write_replay(self._sequence)
        out.append(Finish(reason, replay))
        self.terminal = True
