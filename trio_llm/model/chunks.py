"""The closed chunk protocol, the finish reasons and the token counts.

A ``match`` over :data:`StreamChunk` ends in ``assert_never``. The order of chunks is stated in
:mod:`trio_llm.protocol.grammar`.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias, TypeVar

import attrs
import msgspec

from .content import ContentBlock
from .failures import LlmFailure
from .identifiers import CallId
from .json_value import FrozenObject, freeze_object
from .messages import ReplayEnvelope

S = TypeVar("S", bound=msgspec.Struct)


def _count(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not int or value < 0:
        raise ValueError(f"{attribute.name} is a count of tokens, not {value!r}")


_optional_count = attrs.validators.optional(_count)


@attrs.frozen
class TokenUsage:
    """How many tokens a call used. The parts are DISJOINT; None means not reported.

    Attributes:
        input_tokens: uncached input only. Billed input is this plus both cache counts.
        output_tokens: everything generated, reasoning included.
        cache_read_tokens: input served from a cache.
        cache_write_tokens: input written to a cache.
        reasoning_tokens: the part of ``output_tokens`` that was thinking.
    """

    input_tokens: int = attrs.field(validator=_count)
    output_tokens: int = attrs.field(validator=_count)
    cache_read_tokens: int | None = attrs.field(default=None, validator=_optional_count)
    cache_write_tokens: int | None = attrs.field(default=None, validator=_optional_count)
    reasoning_tokens: int | None = attrs.field(default=None, validator=_optional_count)

    @property
    def billed_input_tokens(self) -> int:
        """All input: uncached, read from a cache and written to one."""
        return self.input_tokens + (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)


@attrs.frozen
class Stop:
    """The model finished its answer."""

    kind: ClassVar[str] = "stop"
    raw: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class ToolCalls:
    """The model wants its tool calls answered."""

    kind: ClassVar[str] = "tool-calls"
    raw: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class MaxTokens:
    """The answer was cut at a token limit."""

    kind: ClassVar[str] = "max-tokens"
    raw: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class Pause:
    """The provider suspended the turn: send the history again to go on."""

    kind: ClassVar[str] = "pause"
    raw: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class Aborted:
    """The call was stopped on this side; the failure's code is ABORTED."""

    kind: ClassVar[str] = "aborted"
    failure: LlmFailure
    raw: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class Error:
    """The call failed."""

    kind: ClassVar[str] = "error"
    failure: LlmFailure
    raw: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class UnknownFinish:
    """A finish reason this process does not know, kept as it came from a log."""

    kind: ClassVar[str] = "unknown"
    tag: str
    data: FrozenObject = attrs.field(converter=freeze_object)
    raw: str | None = attrs.field(default=None, kw_only=True)


FinishReason: TypeAlias = Stop | ToolCalls | MaxTokens | Pause | Aborted | Error | UnknownFinish
"""Why a response ended. ``raw`` is the provider's own word for it, where it gave one."""

FINISH_REASONS: dict[str, type[FinishReason]] = {
    reason.kind: reason for reason in (Stop, ToolCalls, MaxTokens, Pause, Aborted, Error)
}


def _with_attrs_fields(struct: type[S]) -> type[S]:
    """Let attrs' functions (``fields``, ``evolve``, ``asdict``) take a struct for one of their classes.

    Deltas are structs and no attrs classes because one is made for every event: that costs 0.1
    microseconds instead of 0.45, and the garbage collector need not look at them. In everything
    else they are what the other chunks are: frozen, slotted, compared by value.
    """
    fields = {
        field.name: attrs.field(**({} if field.required else {"default": field.default}), type=field.type)
        for field in msgspec.structs.fields(struct)
    }
    struct.__attrs_attrs__ = attrs.fields(attrs.make_class(struct.__name__, fields))  # type: ignore[attr-defined]  # attrs' own protocol
    return struct


@attrs.frozen
class BlockStart:
    """A block opens."""

    type: ClassVar[str] = "block-start"
    index: int
    block_type: str


@_with_attrs_fields
class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """More visible text."""

    type: ClassVar[str] = "text-delta"
    index: int
    text: str


@_with_attrs_fields
class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """More thinking."""

    type: ClassVar[str] = "reasoning-delta"
    index: int
    text: str


@_with_attrs_fields
class ToolCallDelta(msgspec.Struct, frozen=True, gc=False):
    """More of a tool call.

    Attributes:
        id: the call's id; None where the provider gives none (the assembler then names it).
        name: the tool's name, at least on the first delta.
        arguments_delta: more RAW JSON text.
    """

    type: ClassVar[str] = "tool-call-delta"
    index: int
    id: CallId | None = None
    name: str | None = None
    arguments_delta: str = ""


@attrs.frozen
class BlockEnd:
    """A block is complete; ``block`` is the whole of it."""

    type: ClassVar[str] = "block-end"
    index: int
    block: ContentBlock


@attrs.frozen
class Usage:
    """The token counts; at most once, before the finish."""

    type: ClassVar[str] = "usage"
    usage: TokenUsage


@attrs.frozen
class Finish:
    """The last chunk.

    Attributes:
        replay_state: what the adapter needs to replay a successful response.
    """

    type: ClassVar[str] = "finish"
    reason: FinishReason
    replay_state: ReplayEnvelope | None = None


StreamChunk: TypeAlias = BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | Usage | Finish

CHUNK_TYPES: dict[str, type[StreamChunk]] = {
    chunk.type: chunk
    for chunk in (BlockStart, TextDelta, ReasoningDelta, ToolCallDelta, BlockEnd, Usage, Finish)
}
