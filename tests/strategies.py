"""Hypothesis strategies for the values of the model floor, and for cutting things into pieces."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar

from hypothesis import strategies as st

from trio_llm.model.catalogue import (
    ConfigurableProvider,
    DiscoveredModel,
    ModelContext,
    ModelDiscoveryRequest,
    ModelInfo,
    ModelReasoning,
    ProviderInfo,
    ReasoningEffort,
    ResolvedModelInfo,
)
from trio_llm.model.chunks import (
    FINISH_REASONS,
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
    TokenUsage,
    ToolCallDelta,
    ToolCalls,
    UnknownFinish,
    Usage,
)
from trio_llm.model.content import (
    BLOCK_TYPES,
    Attachment,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from trio_llm.model.failures import LlmFailure
from trio_llm.model.identifiers import CallId, MessageId, ProviderRequestId, ReasoningEffortId, SessionId
from trio_llm.model.json_value import FrozenObject, freeze_object
from trio_llm.model.messages import (
    FORMS,
    ROLES,
    SOURCES,
    CatalogForm,
    InstructionsForm,
    Message,
    ModelSource,
    NoticeForm,
    PluginForm,
    PluginSource,
    RecallForm,
    RelayForm,
    ReplayEnvelope,
    SnapshotForm,
    SnapshotSection,
    Source,
    ToolSource,
    UnknownForm,
    UnknownSource,
    UserSource,
)
from trio_llm.model.policy import AlwaysRetry, NormalRetry, RetryPolicy, Timeouts
from trio_llm.model.requests import (
    GenerateOptions,
    LlmCallConfig,
    NamedTool,
    RequestHeader,
    ResponseFormat,
    ToolSchema,
    request_header,
)

Cuttable = TypeVar("Cuttable", bytes, str)

PLACES = st.lists(st.integers(min_value=0, max_value=400), max_size=12)
"""Where to cut something; for :func:`cut`."""


def cut(whole: Cuttable, places: list[int]) -> list[Cuttable]:
    """``whole`` in pieces, cut at ``places`` (taken modulo its length; pieces may be empty)."""
    edges = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    return [whole[start:end] for start, end in pairwise(edges)]


# Lone surrogate halves are part of what a history may hold. Two of them side by side are not: JSON
# has no way to tell them from the character they make.
TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", " ", "half \ud83c", "\udf63 half", "\U0001f363", "\u2028"]
)
NAMES = st.text(min_size=1, max_size=8)
COUNTS = st.integers(min_value=0, max_value=2**53)
NUMBERS = st.integers(min_value=-(2**63), max_value=2**64) | st.floats(allow_nan=False, allow_infinity=False)

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
JSON_OBJECTS = st.dictionaries(TEXTS, JSON_VALUES, max_size=3)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def unknown_tags(known: dict[str, type[Any]]) -> st.SearchStrategy[str]:
    """Tags that no class has."""
    return st.sampled_from(["citation", "x-vendor", "unknown", ""]) | NAMES.filter(
        lambda tag: tag not in known
    )


def extra_fields(*taken: str) -> st.SearchStrategy[FrozenObject]:
    """The fields of something of an unknown kind."""
    return JSON_OBJECTS.filter(lambda data: not any(key in data for key in taken)).map(freeze_object)


# Content

CALL_IDS = st.sampled_from(["a", "b", "call-0", "functions.Bash:0", "x" * 70]).map(CallId) | NAMES.map(CallId)
ATTACHMENTS: st.SearchStrategy[Attachment] = (
    st.builds(Attachment.from_bytes, st.binary(max_size=20), st.just("image/png"))
    | st.builds(Attachment.from_url, st.just("https://example.org/ä.png"), optional(st.just("image/png")))
    | st.builds(Attachment, NAMES, optional(NAMES), optional(COUNTS), path=NAMES)
)
TEXT_BLOCKS = st.builds(TextBlock, TEXTS)
REASONING_BLOCKS = st.builds(ReasoningBlock, TEXTS)
CALL_BLOCKS = st.builds(ToolCallBlock, CALL_IDS, NAMES, TEXTS | st.sampled_from(['{"a":1}', "{}"]))
_FLAT: st.SearchStrategy[ContentBlock] = st.one_of(
    TEXT_BLOCKS,
    REASONING_BLOCKS,
    st.builds(ImageBlock, ATTACHMENTS),
    CALL_BLOCKS,
    st.builds(UnknownBlock, unknown_tags(BLOCK_TYPES), extra_fields("type")),
)
RESULT_BLOCKS = st.builds(ToolResultBlock, CALL_IDS, st.lists(_FLAT, max_size=2), st.booleans())
BLOCKS: st.SearchStrategy[ContentBlock] = _FLAT | RESULT_BLOCKS

# Messages

PLUGIN_FORMS: st.SearchStrategy[PluginForm] = st.one_of(
    st.sampled_from([InstructionsForm(), CatalogForm(), RelayForm(), RecallForm()]),
    st.builds(SnapshotForm, st.lists(st.builds(SnapshotSection, NAMES, TEXTS), min_size=1, max_size=2)),
    st.builds(NoticeForm, NAMES.filter(lambda text: bool(text.strip())) | st.just("x" * 200)),
    st.builds(UnknownForm, unknown_tags(FORMS), extra_fields("kind")),
)
ENVELOPES = st.builds(ReplayEnvelope, JSON_VALUES, optional(st.lists(JSON_VALUES, max_size=3)))
SOURCE_VALUES: st.SearchStrategy[Source] = st.one_of(
    st.builds(UserSource),
    st.builds(PluginSource, NAMES, optional(PLUGIN_FORMS)),
    st.builds(ModelSource, TEXTS, TEXTS, optional(ENVELOPES)),
    st.builds(ToolSource, CALL_IDS),
    st.builds(UnknownSource, unknown_tags(SOURCES), extra_fields("kind")),
)
MESSAGES = st.builds(
    Message, NAMES.map(MessageId), st.sampled_from(ROLES), st.lists(BLOCKS, max_size=3), SOURCE_VALUES
)

# Chunks

FAILURES = st.builds(
    LlmFailure,
    NAMES,
    NAMES,
    optional(st.integers(100, 599)),
    optional(st.integers(1, 10**6) | st.floats(min_value=0.001, max_value=1e9)),
    optional(NAMES.map(ProviderRequestId)),
)
USAGES = st.builds(TokenUsage, COUNTS, COUNTS, optional(COUNTS), optional(COUNTS), optional(COUNTS))
FINISHES: st.SearchStrategy[FinishReason] = st.one_of(
    *(st.builds(kind, raw=optional(TEXTS)) for kind in (Stop, ToolCalls, MaxTokens, Pause)),
    *(st.builds(kind, FAILURES, raw=optional(TEXTS)) for kind in (Aborted, Error)),
    st.builds(UnknownFinish, unknown_tags(FINISH_REASONS), extra_fields("kind", "raw"), raw=optional(TEXTS)),
)
INDEXES = st.integers(min_value=0, max_value=3)
BLOCK_TAGS = st.sampled_from(["text", "reasoning", "tool-call"])
CORE_BLOCKS: st.SearchStrategy[ContentBlock] = TEXT_BLOCKS | REASONING_BLOCKS | CALL_BLOCKS
CHUNKS: st.SearchStrategy[StreamChunk] = st.one_of(
    st.builds(BlockStart, INDEXES, BLOCK_TAGS | NAMES),
    st.builds(TextDelta, INDEXES, TEXTS),
    st.builds(ReasoningDelta, INDEXES, TEXTS),
    st.builds(ToolCallDelta, INDEXES, optional(CALL_IDS), optional(NAMES), TEXTS),
    st.builds(BlockEnd, INDEXES, BLOCKS),
    st.builds(Usage, USAGES),
    st.builds(Finish, FINISHES, optional(ENVELOPES)),
)
"""Any chunk at all; a list of them is seldom a proper sequence."""


@st.composite
def responses(draw: st.DrawFn) -> list[StreamChunk]:
    """A proper sequence of chunks of core blocks, interleaved, that ends well."""
    blocks = draw(st.lists(CORE_BLOCKS, min_size=1, max_size=4))
    queues: list[list[StreamChunk]] = []
    for index, block in enumerate(blocks):
        assert isinstance(block, (TextBlock, ReasoningBlock, ToolCallBlock))
        queue: list[StreamChunk] = [BlockStart(index, block.type)]
        if isinstance(block, ToolCallBlock):
            queue.append(ToolCallDelta(index, block.id, block.name))
            queue += [
                ToolCallDelta(index, arguments_delta=piece)
                for piece in cut(block.arguments, draw(PLACES)[:3])
            ]
        else:
            delta = TextDelta if isinstance(block, TextBlock) else ReasoningDelta
            queue += [delta(index, piece) for piece in cut(block.text, draw(PLACES)[:3])]
        queues.append([*queue, BlockEnd(index, block)])
    chunks: list[StreamChunk] = [queue.pop(0) for queue in queues]
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        chunks.append(queue.pop(0))
    if draw(st.booleans()):
        chunks.append(Usage(draw(USAGES)))
    calls = any(isinstance(block, ToolCallBlock) for block in blocks)
    return [*chunks, Finish(ToolCalls() if calls else Stop())]


# Requests

TOOLS = st.builds(ToolSchema, NAMES, TEXTS, JSON_OBJECTS)
_SECONDS = st.floats(min_value=0.001, max_value=1e6) | st.integers(1, 1000)
_SWITCHABLE = optional(_SECONDS | st.just(float("inf")))
TIMEOUTS = st.builds(
    Timeouts,
    connect=_SWITCHABLE,
    first_event=_SWITCHABLE,
    idle=optional(_SECONDS),
    progress=_SWITCHABLE,
    total=_SWITCHABLE,
)
CONFIG: dict[str, st.SearchStrategy[Any]] = {
    "provider": NAMES,
    "model": NAMES,
    "reasoning_effort": optional(NAMES.map(ReasoningEffortId)),
    "temperature": optional(st.floats(0, 2)),
    "max_tokens": optional(st.integers(1, 10**6)),
    "stop": optional(st.lists(TEXTS, max_size=2)),
    "top_p": optional(st.floats(0, 1)),
    "tool_choice": st.sampled_from([None, "auto", "none", "required"]) | st.builds(NamedTool, NAMES),
    "response_format": optional(st.builds(ResponseFormat, JSON_OBJECTS, NAMES, st.booleans())),
    "provider_options": optional(JSON_OBJECTS),
}
CONFIGS = st.builds(LlmCallConfig, **CONFIG)
OPTIONS = st.builds(
    GenerateOptions,
    **CONFIG,
    messages=st.lists(MESSAGES, max_size=3),
    system=optional(TEXTS),
    tools=st.lists(TOOLS, max_size=3),
    session_id=optional(NAMES.map(SessionId)),
    purpose=st.sampled_from([None, "compaction", "session-title"]),
    timeouts=optional(TIMEOUTS),
)
HEADERS: st.SearchStrategy[RequestHeader] = st.builds(
    request_header, OPTIONS, st.lists(st.sampled_from(["max_tokens", "reasoning_effort"]), unique=True)
)

# Policies and the catalogue


@st.composite
def policies(draw: st.DrawFn) -> RetryPolicy:
    backoff: dict[str, Any] = {
        "initial_delay_ms": draw(st.integers(1, 1000)),
        "max_delay_ms": draw(st.integers(1000, 10**5) | st.floats(1000, 10**5)),
        "jitter_ratio": draw(st.floats(0, 1)),
    }
    if draw(st.booleans()):
        return AlwaysRetry(**backoff)
    return NormalRetry(draw(st.integers(0, 9)), draw(st.lists(NAMES, max_size=3, unique=True)), **backoff)


_EFFORTS = st.builds(ReasoningEffort, NAMES.map(ReasoningEffortId), NAMES, optional(TEXTS))
_MODEL: dict[str, st.SearchStrategy[Any]] = {
    "provider": TEXTS,
    "id": TEXTS,
    "name": TEXTS,
    "description": optional(TEXTS),
    "input_modalities": optional(st.lists(NAMES, max_size=2)),
}
CATALOGUE: st.SearchStrategy[object] = st.one_of(
    st.builds(ProviderInfo, TEXTS, TEXTS),
    st.builds(ModelInfo, **_MODEL),
    st.builds(
        ResolvedModelInfo,
        **_MODEL,
        context=optional(st.builds(ModelContext, COUNTS)),
        default_max_tokens=optional(COUNTS),
        reasoning=optional(
            st.builds(ModelReasoning, st.lists(_EFFORTS, max_size=2), optional(NAMES.map(ReasoningEffortId)))
        ),
        max_output_tokens=optional(COUNTS),
    ),
    st.builds(
        ConfigurableProvider, TEXTS, TEXTS, TEXTS, st.lists(TEXTS, max_size=2), optional(st.booleans())
    ),
    st.builds(ModelDiscoveryRequest, optional(TEXTS), optional(TEXTS), optional(TEXTS)),
    st.builds(
        DiscoveredModel,
        TEXTS,
        optional(TEXTS),
        optional(COUNTS),
        optional(COUNTS),
        optional(st.lists(NAMES, max_size=2)),
        optional(st.booleans()),
        optional(st.booleans()),
    ),
)
