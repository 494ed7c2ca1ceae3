"""An adapter that plays a script, for tests of whatever calls a model::

    adapter = ScriptedAdapter([text_script("Hello", " you"), [LlmError("busy", codes.SERVER)]])
    runtime.register_adapter(["test"], adapter)

There is no wire; a server for tests of adapters is in :mod:`trio_llm.testing.wire_server`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self, TypeAlias

import attrs
import trio

from ..model.catalogue import ModelInfo, ResolvedModelInfo
from ..model.chunks import (
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    ReasoningDelta,
    Stop,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCalls,
    Usage,
)
from ..model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from ..model.policy import DEFAULT_TIMEOUTS, RetryPolicy, Timeouts
from ..model.requests import GenerateOptions
from ..model.signal import AbortSignal
from ..streaming.contract import ChunkSink, LlmAdapter
from .wire_script import Gate, Hold, Pause

Step: TypeAlias = (
    StreamChunk | Sequence[StreamChunk] | Pause | Gate | Hold | BaseException | Callable[[ChunkSink], None]
)
"""One thing a script does.

A chunk, or a sequence of chunks, is one send; an exception is raised; a function is called with the
sink, to make a mark or a note: ``ALIVE``, or ``lambda sink: sink.note_usage(usage)``.
"""

Script: TypeAlias = Sequence[Step]


def ALIVE(sink: ChunkSink) -> None:
    """The step that says: bytes passed that made no model event."""
    sink.alive()


@attrs.define(eq=False)
class ScriptedCall:
    """One call of a :class:`ScriptedAdapter`. Times are on Trio's clock.

    Attributes:
        ended: set when ``produce`` has ended.
        outcome: how it ended; ``finished`` means that it returned.
        played: how many steps were done with.
    """

    options: GenerateOptions
    started_at: float
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    ended_at: float | None = attrs.field(default=None, init=False)
    outcome: Literal["finished", "raised", "cancelled"] | None = attrs.field(default=None, init=False)
    played: int = attrs.field(default=0, init=False)


class ScriptedAdapter(LlmAdapter):
    """Plays scripts.

    Args:
        answer: a script for each call, in order, or a function that gives the script for a request.
            A call for which no script is left raises AssertionError.
        retry_policy, timeouts, models: what the adapter says of itself, for every provider name.
        resolved: by model id, what :meth:`resolve_model` answers.
        marks: before the first step, say that the call is connecting, connected and sent. False
            leaves that to the script.

    Attributes:
        calls: the calls so far.
        entered, exited: how often the adapter was entered and left as a context manager.
    """

    def __init__(
        self,
        answer: Callable[[GenerateOptions], Script] | Iterable[Script],
        *,
        retry_policy: RetryPolicy | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        models: Sequence[ModelInfo] = (),
        resolved: Mapping[str, ResolvedModelInfo] | None = None,
        marks: bool = True,
    ) -> None:
        self.calls: list[ScriptedCall] = []
        self.entered = 0
        self.exited = 0
        self._queue: deque[Script] = deque()
        self._answer = answer if callable(answer) else self._next_in_queue
        if not callable(answer):
            self._queue.extend(answer)
        self._retry_policy = retry_policy
        self._timeouts = timeouts
        self._models = tuple(models)
        self._resolved = dict(resolved or {})
        self._marks = marks

    def _next_in_queue(self, options: GenerateOptions) -> Script:
        if not self._queue:
            raise AssertionError(f"call {len(self.calls)} of the scripted adapter has no script left")
        return self._queue.popleft()

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.exited += 1

    def provider_retry_policy(self, provider: str) -> RetryPolicy | None:
        return self._retry_policy

    def provider_timeouts(self, provider: str) -> Timeouts:
        return self._timeouts

    def list_models(self, provider: str) -> Sequence[ModelInfo]:
        return self._models

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> ResolvedModelInfo | None:
        return self._resolved.get(model)

    async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
        call = ScriptedCall(options, trio.current_time())
        self.calls.append(call)
        try:
            script = self._answer(options)
            if self._marks:
                sink.connecting()
                sink.connected()
                sink.sent()
            for step in script:
                await _play(step, sink)
                call.played += 1
            call.outcome = "finished"
        except trio.Cancelled:
            call.outcome = "cancelled"
            raise
        except BaseException:
            call.outcome = "raised"
            raise
        finally:
            call.ended_at = trio.current_time()
            call.ended.set()


async def _play(step: Step, sink: ChunkSink) -> None:
    match step:
        case Pause(seconds):
            await trio.sleep(seconds)
        case Gate():
            await step.pass_through()
        case Hold():
            await trio.sleep_forever()
        case BaseException():
            raise step
        case Sequence():
            await trio.lowlevel.checkpoint()  # as the network read was that a wire's batch comes from
            await sink.send_batch(step)
        case (
            BlockStart() | TextDelta() | ReasoningDelta() | ToolCallDelta() | BlockEnd() | Usage() | Finish()
        ):
            await sink.send(step)
        case _:
            step(sink)


DEFAULT_USAGE = TokenUsage(3, 5)
"""What a script reports where the test does not care."""


def text_script(
    *deltas: str,
    reasoning: Sequence[str] = (),
    tool_calls: Sequence[ToolCallBlock] = (),
    usage: TokenUsage | None = DEFAULT_USAGE,
    finish: FinishReason | None = None,
) -> list[StreamChunk]:
    """The chunks of an answer that obeys the grammar: reasoning, then text, then calls.

    Args:
        deltas: the pieces of the text; without any there is no text block.
        finish: by default ToolCalls where there are calls, else Stop.
    """
    chunks: list[StreamChunk] = []
    index = 0

    def block(kind: ContentBlock, parts: Iterable[StreamChunk]) -> None:
        nonlocal index
        chunks.extend([BlockStart(index, kind.type), *parts, BlockEnd(index, kind)])
        index += 1

    if reasoning:
        block(ReasoningBlock("".join(reasoning)), [ReasoningDelta(index, part) for part in reasoning])
    if deltas:
        block(TextBlock("".join(deltas)), [TextDelta(index, part) for part in deltas])
    for call in tool_calls:
        block(call, [ToolCallDelta(index, call.id, call.name, call.arguments)])
    if usage is not None:
        chunks.append(Usage(usage))
    chunks.append(Finish(finish or (ToolCalls() if tool_calls else Stop())))
    return chunks
