"""Streams of the runtime: routing, failures, layers, and the ways out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import attrs
import pytest
import trio
import trio.testing

from trio_llm.model import codes
from trio_llm.model.chunks import Aborted, Error, Finish, Stop, StreamChunk, TextDelta
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import ProviderRequestId
from trio_llm.model.messages import ModelSource
from trio_llm.model.policy import AlwaysRetry, NormalRetry, Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.model.signal import AbortSignal
from trio_llm.runtime.generate import GenerateError
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.contract import ChunkSink, LlmAdapter, Produce
from trio_llm.streaming.lanes import Next
from trio_llm.testing.scripted import Script, ScriptedAdapter, text_script
from trio_llm.testing.wire_script import Hold

from .support import answering, raises_code, request, text_of_call


async def chunks_of(runtime: LlmRuntime, options: GenerateOptions) -> list[StreamChunk]:
    async with runtime.stream(options) as stream:
        return [chunk async for chunk in stream]


def playing(*scripts: Script, **settings: object) -> ScriptedAdapter:
    return ScriptedAdapter(scripts, **settings)  # type: ignore[arg-type]


async def test_L01_the_registered_adapter_is_reached_and_chunks_pass_unchanged() -> None:
    script = text_script("a", "b", reasoning=["r"])
    async with LlmRuntime() as runtime:
        one, two = playing(script), answering()
        runtime.register_adapter(["one"], one)
        runtime.register_adapter(["two"], two)
        options = request()
        received = await chunks_of(runtime, options)
    assert all(one is other for one, other in zip(received[:-1], script[:-1], strict=True))
    assert received == script
    assert one.calls[0].options is options  # and with it every message
    assert two.calls == []


async def test_L01_the_message_names_route_and_model() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], answering("hello"))
        result = await runtime.generate(request(model="m2"))
    assert result.message.source == ModelSource("one", "m2")
    assert result.finish == Stop()
    assert result.usage is not None


async def test_L04_an_unregistered_provider_is_one_terminal_finish() -> None:
    async with LlmRuntime() as runtime:
        [chunk] = await chunks_of(runtime, request("nobody"))
    assert isinstance(chunk, Finish)
    assert isinstance(chunk.reason, Error)
    assert chunk.reason.failure.code == codes.NO_ADAPTER


class Failing(LlmAdapter):
    """Fails where it is told to."""

    def __init__(self, where: str) -> None:
        self.where = where

    def _fail(self, where: str) -> None:
        if self.where == where:
            raise LlmError(f"failed at {where}", codes.SERVER, status=503)

    def prepare_call(self, provider: str) -> Produce:
        self._fail("selection")
        return self.produce

    async def resolve_model(self, provider: str, model: str, signal: AbortSignal | None = None) -> None:
        self._fail("look-up")

    async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
        self._fail("dispatch")
        await trio.lowlevel.checkpoint()
        self._fail("first iteration")
        await sink.send_batch(text_script("some")[:2])
        self._fail("later")


@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("where", ["selection", "look-up", "dispatch", "first iteration", "later"])
async def test_L05_failures_anywhere_are_exactly_one_terminal_finish(where: str, layers: int) -> None:
    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            yield chunk

    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], Failing(where))
        for _ in range(layers):
            runtime.use(layer)
        received = await chunks_of(runtime, request())
    assert [type(chunk) is Finish for chunk in received] == [False] * (len(received) - 1) + [True]
    assert len(received) == (3 if where == "later" else 1)
    finish = received[-1]
    assert isinstance(finish, Finish)
    assert isinstance(finish.reason, Error)
    assert finish.reason.failure.message == f"failed at {where}"
    assert finish.reason.failure.status == 503


async def test_L06_facts_survive_and_foreign_exceptions_become_UNKNOWN() -> None:
    known = LlmError(
        "slow down",
        codes.RATE_LIMIT,
        status=429,
        provider_retry_after_ms=1500,
        request_id=ProviderRequestId("req-1"),
    )
    foreign = KeyError("the text of it")
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], playing([known], [foreign]))
        async with runtime.stream(request()) as stream:
            [finish] = [chunk async for chunk in stream]
        assert finish == Finish(Error(known.failure))
        assert stream.error is known
        async with runtime.stream(request()) as stream:
            [finish] = [chunk async for chunk in stream]
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == codes.UNKNOWN
        assert "the text of it" in stream.finish.failure.message
        assert stream.error is foreign


async def test_L07_aborted_is_decided_from_the_cause_and_not_from_a_flag() -> None:
    signal = AbortSignal()
    broken = LlmError("broke first", codes.TRANSPORT)
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], playing([broken], [Hold()]))
        async with runtime.stream(request(signal=signal)) as stream:
            await trio.testing.wait_all_tasks_blocked()
            signal.abort("too late")  # the flag stands when the finish is made, the cause does not
            received = [chunk async for chunk in stream]
        assert received == [Finish(Error(broken.failure))]
        async with runtime.stream(request()) as stream:
            await trio.testing.wait_all_tasks_blocked()
            stream.abort("enough")
            [finish] = [chunk async for chunk in stream]
        assert isinstance(finish, Finish)
        assert isinstance(finish.reason, Aborted)
        assert finish.reason.failure.message == "enough"


async def test_L07_a_signal_aborted_before_the_call_prevents_it() -> None:
    signal = AbortSignal()
    signal.abort("never mind")
    async with LlmRuntime() as runtime:
        adapter = answering()
        runtime.register_adapter(["one"], adapter)
        [finish] = await chunks_of(runtime, request(signal=signal))
    assert isinstance(finish, Finish)
    assert isinstance(finish.reason, Aborted)
    assert adapter.calls == []


class Untidy(LlmAdapter):
    """Counts its cleanups; the cleanup of a cancelled attempt fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.cleanups = 0

    async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
        try:
            await sink.send_batch(text_script("some")[:2])
            await trio.sleep_forever()
        finally:
            self.cleanups += 1
            raise self.error


async def test_L08_a_failing_cleanup_of_the_adapter_is_raised_once_when_leaving() -> None:
    async with LlmRuntime() as runtime:
        adapter = Untidy(ValueError("cleanup"))
        runtime.register_adapter(["one"], adapter)
        with pytest.raises(ValueError, match="cleanup") as caught:
            async with runtime.stream(request()) as stream:
                await stream.receive()
        assert caught.value is adapter.error
        assert adapter.cleanups == 1


async def test_L08_the_consumers_own_exception_leaves_as_itself() -> None:
    async with LlmRuntime() as runtime:
        adapter = Untidy(ValueError("cleanup"))
        runtime.register_adapter(["one"], adapter)
        mine = LookupError("mine")
        with pytest.raises(LookupError) as caught:
            async with runtime.stream(request()) as stream:
                await stream.receive()
                raise mine
        assert caught.value is mine
        assert any("cleanup" in note for note in mine.__notes__)
        assert adapter.cleanups == 1


@pytest.mark.parametrize("when", ["before", "within", "after"])
async def test_L08_a_layers_exception_is_raised_as_it_is(when: str) -> None:
    broken = ValueError("layer")

    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        if when == "before":
            raise broken
        async for chunk in next(options):
            if when == "within":
                raise broken
            yield chunk
        raise broken

    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], answering())
        runtime.use(layer)
        with pytest.raises(ValueError, match="layer") as caught:
            await chunks_of(runtime, request())
        assert caught.value is broken


def tagging(tag: str) -> Callable[[GenerateOptions, Next], AsyncIterator[StreamChunk]]:
    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            if isinstance(chunk, TextDelta):
                chunk = TextDelta(chunk.index, f"{tag}({chunk.text})")
            yield chunk

    return layer


async def test_L21_layers_prepend_append_and_are_taken_out_again() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], answering("x"))
        middle = runtime.use(tagging("b"))
        with runtime.use(tagging("c")), runtime.use(tagging("a"), prepend=True):
            assert await text_of_call(runtime, request()) == "a(b(c(x)))"
            middle.close()
            assert await text_of_call(runtime, request()) == "a(c(x))"
        assert await text_of_call(runtime, request()) == "x"
        same = tagging("s")
        outer, _ = runtime.use(same), runtime.use(same)
        outer.close()
        outer.close()
        assert await text_of_call(runtime, request()) == "s(x)"


async def test_L21_a_layer_added_later_does_not_touch_a_stream_that_was_made() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], answering("x"))
        stream = runtime.stream(request())
        runtime.use(tagging("a"))
        async with stream:
            assert [text async for text in stream.text()] == ["x"]


async def test_L21_a_layer_may_short_circuit_without_any_adapter() -> None:
    script = text_script("cached")

    async def cache(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        for chunk in script:
            yield chunk

    async with LlmRuntime() as runtime:
        runtime.use(cache)
        result = await runtime.generate(request("nobody"))
        async with runtime.stream(request("nobody")) as stream:
            assert [chunk async for chunk in stream] == script
        assert stream.retry_policy is None
    assert result.message.source == ModelSource("nobody", "m")


async def test_L21_a_layer_may_reroute() -> None:
    async def reroute(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(attrs.evolve(options, provider="two", model="big")):
            yield chunk

    async with LlmRuntime() as runtime:
        runtime.register_adapter(["two"], answering("x", retry_policy=AlwaysRetry()))
        runtime.use(reroute)
        async with runtime.stream(request("one")) as stream:
            async for _ in stream:
                pass
    assert stream.message is not None
    assert stream.message.source == ModelSource("two", "big")
    assert stream.retry_policy == AlwaysRetry()


async def test_L27_a_stream_keeps_policy_and_exception_of_the_registration_that_served_it() -> None:
    broken = LlmError("down", codes.SERVER)
    gate = trio.Event()

    class Gated(ScriptedAdapter):
        async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
            await gate.wait()
            raise broken

    policy = NormalRetry(max_retries=1)
    async with LlmRuntime() as runtime:
        adapter = Gated([], retry_policy=policy)
        registration = runtime.register_adapter(["one"], adapter)
        async with runtime.stream(request()) as stream:
            await trio.testing.wait_all_tasks_blocked()
            registration.replace(["one"], answering(retry_policy=AlwaysRetry()))
            registration.close()
            gate.set()
            async for _ in stream:
                pass
            assert adapter.exited == 0
        assert stream.error is broken
        assert stream.retry_policy is policy
        await trio.testing.wait_all_tasks_blocked()
        assert adapter.exited == 1


async def test_timeouts_of_a_call_override_the_adapters_field_by_field(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with LlmRuntime() as runtime:
        adapter = playing([Hold()], [Hold()], timeouts=Timeouts(idle=7))
        runtime.register_adapter(["one"], adapter)
        for timeouts, message, seconds in (
            (None, "idle", 7),
            (Timeouts(total=3), "total", 3),
        ):
            started = trio.current_time()
            async with runtime.stream(request(timeouts=timeouts)) as stream:
                async for _ in stream:
                    pass
            assert isinstance(stream.finish, Error)
            assert stream.finish.failure.code == codes.TIMEOUT
            assert message in stream.finish.failure.message
            assert trio.current_time() - started == seconds


async def test_timeouts_an_adapter_leaves_open_have_their_defaults(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with LlmRuntime() as runtime:
        adapter = playing([lambda sink: sink.connecting(), Hold()], timeouts=Timeouts(total=500), marks=False)
        runtime.register_adapter(["one"], adapter)
        started = trio.current_time()
        async with runtime.stream(request()) as stream:
            async for _ in stream:
                pass
        assert isinstance(stream.finish, Error)
        assert "connect" in stream.finish.failure.message
        assert trio.current_time() - started == 30


# ---- stream_to


async def test_stream_to_feeds_a_channel_and_closes_it() -> None:
    async with LlmRuntime() as runtime, trio.open_nursery() as nursery:
        runtime.register_adapter(["one"], answering("a", "b"))
        send, receive = trio.open_memory_channel[StreamChunk](0)
        nursery.start_soon(runtime.stream_to, send, request())
        received = [chunk async for chunk in receive]
    assert received == text_script("a", "b")


async def test_stream_to_closes_without_finish_under_ambient_cancellation() -> None:
    async with LlmRuntime() as runtime, trio.open_nursery() as nursery:
        runtime.register_adapter(["one"], playing([*text_script("a")[:2], Hold()]))
        send, receive = trio.open_memory_channel[StreamChunk](10)
        nursery.start_soon(runtime.stream_to, send, request())
        await receive.receive()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            received = [chunk async for chunk in receive]
    assert not any(isinstance(chunk, Finish) for chunk in received)


async def test_stream_to_raises_when_its_receiver_is_closed() -> None:
    async with LlmRuntime() as runtime:
        adapter = playing([*text_script("a")[:2], Hold()])
        runtime.register_adapter(["one"], adapter)
        send, receive = trio.open_memory_channel[StreamChunk](0)
        receive.close()
        with pytest.raises(trio.BrokenResourceError):
            await runtime.stream_to(send, request())
        assert adapter.calls[0].outcome == "cancelled"


async def test_stream_to_closes_its_channel_if_the_runtime_is_not_open() -> None:
    send, receive = trio.open_memory_channel[StreamChunk](0)
    with pytest.raises(RuntimeError, match="open runtime"):
        await LlmRuntime().stream_to(send, request())
    with pytest.raises(trio.EndOfChannel):
        await receive.receive()


# ---- generate


async def test_generate_raises_with_what_there_was() -> None:
    broken = LlmError("cut", codes.TRANSPORT, request_id=ProviderRequestId("r"))
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], playing([*text_script("half an ans")[:2], broken]))
        with pytest.raises(GenerateError) as caught:
            await runtime.generate(request())
    assert caught.value.failure == broken.failure
    assert caught.value.__cause__ is broken
    assert [block.text for block in caught.value.partial] == ["half an ans"]  # type: ignore[attr-defined]
    again = caught.value.__reduce__()
    assert again == (GenerateError, (broken.failure, caught.value.partial, caught.value.usage))


async def test_generate_raises_on_an_abort() -> None:
    signal = AbortSignal()
    signal.abort("no")
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], answering())
        with raises_code(codes.ABORTED):
            await runtime.generate(request(signal=signal))
