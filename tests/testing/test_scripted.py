"""The scripted adapter plays into a sink what its script says."""

from collections.abc import Mapping, Sequence

import pytest
import trio

from trio_llm.model import codes
from trio_llm.model.catalogue import ModelInfo, ResolvedModelInfo
from trio_llm.model.chunks import (
    BlockEnd,
    BlockStart,
    Finish,
    ReasoningDelta,
    Stop,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCalls,
    Usage,
)
from trio_llm.model.content import ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import CallId, ProviderRequestId
from trio_llm.model.policy import DEFAULT_TIMEOUTS, NormalRetry, Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.streaming.contract import ChunkSink
from trio_llm.testing.scripted import ALIVE, DEFAULT_USAGE, Script, ScriptedAdapter, text_script
from trio_llm.testing.wire_script import Gate, Hold, Pause

OPTIONS = GenerateOptions(provider="p", model="m", messages=[])


class RecordingSink(ChunkSink):
    """Writes down what it is told, as (time, word) and as chunks."""

    def __init__(self) -> None:
        self.log: list[object] = []

    async def send_batch(self, chunks: Sequence[StreamChunk], *, received: int = 0) -> None:
        self.log.append(tuple(chunks))

    async def aclose(self) -> None:
        raise NotImplementedError

    def alive(self, received: int = 0) -> None:
        self.log.append("alive")

    def note_usage(self, usage: TokenUsage) -> None:
        self.log.append(usage)

    def connecting(self) -> None:
        self.log.append("connecting")

    def connected(self) -> None:
        self.log.append("connected")

    def sent(self) -> None:
        self.log.append("sent")

    def note_response(
        self,
        *,
        status: int | None = None,
        request_id: ProviderRequestId | None = None,
        served_model: str | None = None,
        response_id: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        self.log.append(status)

    def socket_closed(self) -> None:
        self.log.append("closed")

    def next_wire_attempt(self, failure: LlmFailure) -> None:
        self.log.append("next")


async def test_plays_every_kind_of_step(autojump_clock: trio.testing.MockClock) -> None:
    gate = Gate()
    gate.open()
    pair = (TextDelta(0, "a"), TextDelta(0, "b"))
    early = TokenUsage(1, 1)
    script: Script = [
        TextDelta(0, "x"),
        pair,
        ALIVE,
        lambda sink: sink.note_usage(early),
        Pause(7),
        gate,
        Finish(Stop()),
    ]
    adapter, sink = ScriptedAdapter([script]), RecordingSink()
    started = trio.current_time()
    await adapter.produce(OPTIONS, sink)
    assert sink.log == [
        "connecting",
        "connected",
        "sent",
        (TextDelta(0, "x"),),
        pair,
        "alive",
        early,
        (Finish(Stop()),),
    ]
    (call,) = adapter.calls
    assert call.options is OPTIONS
    assert (call.outcome, call.played) == ("finished", len(script))
    assert (call.started_at, call.ended_at) == (started, started + 7)


async def test_error_step_is_raised_as_itself() -> None:
    error = LlmError("busy", codes.SERVER)
    adapter, sink = ScriptedAdapter([[TextDelta(0, "x"), error]], marks=False), RecordingSink()
    with pytest.raises(LlmError) as caught:
        await adapter.produce(OPTIONS, sink)
    assert caught.value is error
    assert sink.log == [(TextDelta(0, "x"),)]
    assert (adapter.calls[0].outcome, adapter.calls[0].played) == ("raised", 1)


@pytest.mark.parametrize("waiting", [Hold(), Gate(), Pause(100)])
async def test_cancellation_passes(
    waiting: Hold | Gate | Pause, autojump_clock: trio.testing.MockClock
) -> None:
    adapter = ScriptedAdapter(lambda options: [waiting])
    with trio.move_on_after(3) as scope:
        await adapter.produce(OPTIONS, RecordingSink())
    assert scope.cancelled_caught
    assert adapter.calls[0].outcome == "cancelled"
    assert adapter.calls[0].ended.is_set()


@pytest.mark.parametrize("step", [TextDelta(0, "a"), (TextDelta(0, "a"), TextDelta(0, "b"))])
async def test_every_send_is_a_checkpoint(step: StreamChunk | tuple[StreamChunk, ...]) -> None:
    sink = RecordingSink()
    with trio.CancelScope() as scope:
        scope.cancel()
        await ScriptedAdapter([[step]], marks=False).produce(OPTIONS, sink)
    assert scope.cancelled_caught
    assert sink.log == []


async def test_scripts_are_played_in_order_and_run_out() -> None:
    adapter, sink = ScriptedAdapter([[TextDelta(0, "1")], [TextDelta(0, "2")]], marks=False), RecordingSink()
    await adapter.produce(OPTIONS, sink)
    await adapter.produce(OPTIONS, sink)
    assert sink.log == [(TextDelta(0, "1"),), (TextDelta(0, "2"),)]
    with pytest.raises(AssertionError, match="call 3 of the scripted adapter has no script left"):
        await adapter.produce(OPTIONS, sink)


async def test_says_of_itself_what_it_was_told() -> None:
    policy, timeouts = NormalRetry(max_retries=1), Timeouts(idle=3).over(DEFAULT_TIMEOUTS)
    model, resolved = ModelInfo("p", "m", "M"), ResolvedModelInfo("p", "m", "M", default_max_tokens=9)
    adapter = ScriptedAdapter(
        [], retry_policy=policy, timeouts=timeouts, models=[model], resolved={"m": resolved}
    )
    assert adapter.provider_retry_policy("p") is policy
    assert adapter.provider_timeouts("p") is timeouts
    assert adapter.list_models("p") == (model,)
    assert await adapter.resolve_model("p", "m") is resolved
    assert await adapter.resolve_model("p", "other") is None
    async with adapter as same:
        assert same is adapter
        assert (adapter.entered, adapter.exited) == (1, 0)
    assert (adapter.entered, adapter.exited) == (1, 1)


def test_text_script_has_reasoning_text_and_calls() -> None:
    call = ToolCallBlock(CallId("c"), "add", "{}")
    assert text_script("a", "b", reasoning=["hm"], tool_calls=[call]) == [
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "hm"),
        BlockEnd(0, ReasoningBlock("hm")),
        BlockStart(1, "text"),
        TextDelta(1, "a"),
        TextDelta(1, "b"),
        BlockEnd(1, TextBlock("ab")),
        BlockStart(2, "tool-call"),
        ToolCallDelta(2, CallId("c"), "add", "{}"),
        BlockEnd(2, call),
        Usage(DEFAULT_USAGE),
        Finish(ToolCalls()),
    ]
    assert text_script(usage=None) == [Finish(Stop())]
