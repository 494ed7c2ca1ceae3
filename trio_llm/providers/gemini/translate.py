"""Events of a ``streamGenerateContent`` stream to chunks.

* Parts come without marks: text goes on in the next event, and a block ends when another kind begins or a
  part comes that no block shows (code that ran, calls of the provider's own tools). Those parts, and the
  signatures that stand on any part, go into replay state (see :mod:`.replay`).
* A call is one part with an object, or from Vertex AI several whose values are put together. It often has
  no id; it is known by its place alone, as equal calls stand side by side.
* There is no terminal marker: a finish reason counts once the body has ended, and the last counts hold.
* An error in the stream, a blocked prompt, a refused answer, an unknown word and an empty response finish
  with Error; a stream that ends without a finish reason is a :attr:`GeminiTranslator.failure`, which the
  caller raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

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
from ...protocol.json_text import compact, decode_lenient, is_complete_json
from ..blocks import BlockWriter
from ..replay_state import envelope_of
from ..translator import ResponseTranslator
from .partial import PartialArguments
from .replay import VERSION
from .types import Candidate, GenerateEvent
from .usage import has_counts, token_usage, usage_facts

_FILTER_WORDS: Final = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MODEL_ARMOR",
    }
)


class GeminiTranslator(ResponseTranslator):
    """Folds the events of one response into chunks. No I/O; one instance for each response."""

    __slots__ = (
        "_blocked",
        "_blocks",
        "_entry",
        "_facts",
        "_items",
        "_partial",
        "_raw_usage",
        "_usage",
        "_word",
    )

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__(secrets)
        self._blocks = BlockWriter()
        self._items: list[tuple[bool, dict[str, Any]]] = []  # as `envelope_of` takes them
        self._entry: dict[str, Any] = {}  # of the latest block
        self._partial: PartialArguments | None = None  # of the call that is still coming
        self._word: str | None = None
        self._blocked: dict[str, Any] | None = None
        self._raw_usage: dict[str, Any] = {}
        self._usage: TokenUsage | None = None
        self._facts: dict[str, object] = {}

    @property
    def early_usage(self) -> TokenUsage | None:
        """The last counts so far; the same object as long as no others came."""
        if self._usage is None and self._raw_usage:
            self._usage = token_usage(self._raw_usage)
        return self._usage

    @property
    def facts(self) -> dict[str, object]:
        """Tiers, modalities, grounding, citations and the like, as the provider calls them."""
        return {**usage_facts(self._raw_usage), **self._facts}

    def feed(self, event: GenerateEvent, out: list[StreamChunk]) -> None:
        """Append the chunks that ``event`` makes.

        Raises:
            LlmError: MALFORMED_RESPONSE, for a piece of arguments that has no place.
        """
        if event.error:
            self._fail(event, out)
            return
        if self.response_id is None:
            self.response_id, self.served_model = event.response_id or None, event.model_version or None
        raw = event.usage_metadata
        if isinstance(raw, dict) and has_counts(raw):
            self._raw_usage, self._usage = raw, None
            self.progressed = True
        feedback = event.prompt_feedback
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            self._blocked = feedback
            self.progressed = True
        for candidate in event.candidates or ():
            if not candidate.index:
                self._feed_candidate(candidate, out)

    def close(self, clean: bool, out: list[StreamChunk]) -> None:
        """The body ended, properly if ``clean``. Sets :attr:`failure` where no finish reason came."""
        if clean and (self._word is not None or self._blocked is not None):
            self._finish(out)
        elif clean:
            self.failure = self._failed("the stream ended without a finish reason", codes.STREAM_CLOSED)

    def _feed_candidate(self, candidate: Candidate, out: list[StreamChunk]) -> None:
        if candidate.content is not None:
            for part in candidate.content.parts or ():
                self._feed_part(part, out)
        if candidate.finish_reason:
            self._word = candidate.finish_reason
            self.progressed = True
        for name, value in (
            ("finishMessage", candidate.finish_message),
            ("groundingMetadata", candidate.grounding_metadata),
            ("urlContextMetadata", candidate.url_context_metadata),
            ("citationMetadata", candidate.citation_metadata),
        ):
            if value is not None:
                self._facts[name] = value
                self.progressed = True

    # Parts

    def _feed_part(self, part: dict[str, Any], out: list[StreamChunk]) -> None:
        text = part.get("text")
        if isinstance(text, str):
            self._feed_text(part, text, out)
        elif isinstance(part.get("functionCall"), dict):
            self._feed_call(part, part["functionCall"], out)
        elif part:
            self._set_aside(part, out)

    def _feed_text(self, part: dict[str, Any], text: str, out: list[StreamChunk]) -> None:
        kind = ReasoningBlock if part.get("thought") else TextBlock
        signature = part.get("thoughtSignature")
        if not text and not signature:
            return
        self.progressed = True
        blocks = self._blocks
        if blocks.kind is not kind:
            self._settle_call(out)
            if not text:  # a signature of its own
                self._set_aside(part, out)
                return
            self._note_block({"type": "thought" if kind is ReasoningBlock else "text"})
            start = 0
        else:
            start = blocks.length
        if text:
            blocks.add(kind, text, out)
        if signature:
            self._entry.setdefault("signed", []).append([start, blocks.length, signature])

    def _feed_call(self, part: dict[str, Any], call: dict[str, Any], out: list[StreamChunk]) -> None:
        name, id, arguments = call.get("name"), call.get("id"), call.get("args")
        known = next((entry for _, entry in self._items if id and entry.get("id") == id), None)
        if known is not None:
            if known is not self._entry or self._partial is None:  # a whole call comes again
                if part.get("thoughtSignature"):
                    known["signature"] = part["thoughtSignature"]
                return
        elif name or (self._partial is None and arguments):
            self._settle_call(out)
            self._blocks.begin_call(id or None, str(name or ""), out)
            self._note_block({"type": "call", "id": id} if id else {"type": "call"})
            if isinstance(arguments, str) and is_complete_json(arguments):
                arguments = decode_lenient(arguments)
            self._partial = PartialArguments(arguments if isinstance(arguments, dict) else {})
        if self._partial is None:  # the end of a call that has ended
            return
        self.progressed = True
        if part.get("thoughtSignature"):
            self._entry["signature"] = part["thoughtSignature"]
        for piece in call.get("partialArgs") or ():
            self._partial.add(piece)
        if not call.get("willContinue"):
            self._settle_call(out)

    def _settle_call(self, out: list[StreamChunk]) -> None:
        """The call that was coming is over; without the rest of a text it stays open."""
        if self._partial is not None and self._partial.whole:
            self._blocks.end_arguments(compact(self._partial.value), out)
        self._partial = None

    def _set_aside(self, part: dict[str, Any], out: list[StreamChunk]) -> None:
        """Keep a part that no block shows, in its place."""
        self.progressed = True
        self._settle_call(out)
        self._blocks.end(out)
        self._items.append((False, part))

    def _note_block(self, entry: dict[str, Any]) -> None:
        self._entry = entry
        self._items.append((True, entry))

    # The end

    def _finish(self, out: list[StreamChunk]) -> None:
        reason = self._reason(out)
        usage = self.early_usage
        if usage is not None:
            out.append(Usage(usage))
        out.append(Finish(reason, None if isinstance(reason, Error) else envelope_of(self._items, VERSION)))
        self.terminal = True

    def _reason(self, out: list[StreamChunk]) -> FinishReason:
        blocks, word = self._blocks, self._word
        known = (word or "").upper()
        self._settle_call(out)
        if known == "MAX_TOKENS":
            if blocks.kind in (TextBlock, ReasoningBlock):  # a call that came last may be cut
                blocks.end(out)
            return MaxTokens(raw=word)
        blocks.end(out)
        if self._blocked is not None and known in ("", "STOP"):
            word = str(self._blocked["blockReason"])
            message = self._blocked.get("blockReasonMessage") or f"the prompt was blocked: {word}"
            return Error(self._failed(str(message), codes.CONTENT_FILTER), raw=word)
        if known != "STOP":
            said = self._facts.get("finishMessage") or f"the provider ended the response with {word!r}"
            code = codes.CONTENT_FILTER if known in _FILTER_WORDS else known
            return Error(self._failed(str(said), code), raw=word)
        if blocks.cut:
            return MaxTokens(raw=word)
        if not blocks.count:
            return Error(self._failed("the response is empty", codes.EMPTY_RESPONSE), raw=word)
        return ToolCalls(raw=word) if blocks.calls else Stop(raw=word)

    def _fail(self, event: GenerateEvent, out: list[StreamChunk]) -> None:
        failure = self._reported({"error": event.error})
        usage = self.early_usage
        if usage is not None:
            out.append(Usage(usage))
        out.append(Finish(Error(failure, raw=self._word)))
        self.terminal = True
