"""Model responses as they arrive, from many providers, under Trio's structured concurrency.

Everything an application needs is here; adapters are under ``trio_llm.providers``, and what tests
need under ``trio_llm.testing``. Those are loaded only when they are imported.
"""

from typing import TYPE_CHECKING, Any

from .model import codes
from .model.catalogue import (
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
from .model.chunks import (
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
from .model.classify import is_context_window_exceeded, is_quota_exceeded
from .model.content import (
    Attachment,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
    register_block_type,
    text_of,
)
from .model.error_chain import error_chain
from .model.failures import LlmError, LlmFailure
from .model.identifiers import CallId, MessageId, ProviderRequestId, ReasoningEffortId, SessionId
from .model.messages import (
    CatalogForm,
    InstructionsForm,
    Message,
    ModelSource,
    NoticeForm,
    PluginSource,
    RecallForm,
    RelayForm,
    ReplayEnvelope,
    SnapshotForm,
    SnapshotSection,
    ToolSource,
    UnknownForm,
    UnknownSource,
    UserSource,
    create_assistant_message,
    create_message,
    create_tool_result_message,
    create_user_message,
)
from .model.policy import AlwaysRetry, NormalRetry, RetryPolicy, Timeouts, retry_policy
from .model.requests import (
    GenerateOptions,
    LlmCallConfig,
    NamedTool,
    RequestHeader,
    ResponseFormat,
    ToolSchema,
    call_config,
    call_config_equals,
    is_agent_loop_request,
    mark_agent_loop_request,
    options_from_header,
    request_header,
    without_adapter_defaults,
)
from .model.signal import AbortSignal
from .protocol.assembler import BlockAssembler
from .protocol.codec import decode, encode
from .protocol.grammar import Grammar
from .runtime.attempts import Attempt, EarlierAttempt
from .runtime.budgets import ImageBudget
from .runtime.generate import Generated, GenerateError
from .runtime.prepared import PreparedLlmCall
from .runtime.records import AttemptRecord, JsonLinesRecorder
from .runtime.runtime import LlmRuntime
from .runtime.topology import AdaptersUpdated
from .streaming.contract import ChunkSink, LlmAdapter, Produce
from .streaming.lanes import Entrant, Next, Race
from .streaming.selection import Middleware
from .streaming.settlement import Settlement
from .streaming.stream import ChunkStream

if TYPE_CHECKING:
    from .model.identity import APP_IDENTITY, AppIdentity, attribution_headers

__all__ = [
    # The runtime and its streams
    "LlmRuntime",
    "ChunkStream",
    "Settlement",
    "Generated",
    "GenerateError",
    "PreparedLlmCall",
    "Attempt",
    "EarlierAttempt",
    "AttemptRecord",
    "JsonLinesRecorder",
    "AbortSignal",
    "ImageBudget",
    "AdaptersUpdated",
    # Requests
    "GenerateOptions",
    "LlmCallConfig",
    "ToolSchema",
    "NamedTool",
    "ResponseFormat",
    "Timeouts",
    "RequestHeader",
    "request_header",
    "options_from_header",
    "call_config",
    "call_config_equals",
    "without_adapter_defaults",
    "mark_agent_loop_request",
    "is_agent_loop_request",
    # Messages and content
    "Message",
    "create_message",
    "create_user_message",
    "create_assistant_message",
    "create_tool_result_message",
    "ContentBlock",
    "TextBlock",
    "ReasoningBlock",
    "ImageBlock",
    "Attachment",
    "ToolCallBlock",
    "ToolResultBlock",
    "UnknownBlock",
    "register_block_type",
    "text_of",
    "UserSource",
    "ModelSource",
    "ToolSource",
    "PluginSource",
    "UnknownSource",
    "InstructionsForm",
    "CatalogForm",
    "SnapshotForm",
    "SnapshotSection",
    "NoticeForm",
    "RelayForm",
    "RecallForm",
    "UnknownForm",
    "ReplayEnvelope",
    # Chunks
    "StreamChunk",
    "BlockStart",
    "TextDelta",
    "ReasoningDelta",
    "ToolCallDelta",
    "BlockEnd",
    "Usage",
    "TokenUsage",
    "Finish",
    "FinishReason",
    "Stop",
    "ToolCalls",
    "MaxTokens",
    "Pause",
    "Aborted",
    "Error",
    "UnknownFinish",
    "BlockAssembler",
    "Grammar",
    "encode",
    "decode",
    # Failures and policy
    "LlmError",
    "LlmFailure",
    "codes",
    "error_chain",
    "is_context_window_exceeded",
    "is_quota_exceeded",
    "RetryPolicy",
    "NormalRetry",
    "AlwaysRetry",
    "retry_policy",
    # Catalogue
    "ProviderInfo",
    "ModelInfo",
    "ResolvedModelInfo",
    "ModelContext",
    "ModelReasoning",
    "ReasoningEffort",
    "ConfigurableProvider",
    "ModelDiscoveryRequest",
    "DiscoveredModel",
    # Writing adapters and layers
    "LlmAdapter",
    "ChunkSink",
    "Produce",
    "Middleware",
    "Next",
    "Race",
    "Entrant",
    # Identity and identifiers
    "AppIdentity",
    "APP_IDENTITY",
    "attribution_headers",
    "CallId",
    "MessageId",
    "ProviderRequestId",
    "ReasoningEffortId",
    "SessionId",
]


def __getattr__(name: str) -> Any:
    # Only who sends requests needs an identity, and to look up the version is a tenth of the import.
    if name in ("APP_IDENTITY", "AppIdentity", "attribution_headers"):
        from .model import identity

        return getattr(identity, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
