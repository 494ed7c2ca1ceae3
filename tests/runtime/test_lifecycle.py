"""Adapters live from their registration until no registration and no call holds them."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

import pytest
import trio
import trio.testing

from trio_llm.model import codes
from trio_llm.model.chunks import Aborted, Error, StreamChunk
from trio_llm.model.failures import LlmError
from trio_llm.model.requests import GenerateOptions
from trio_llm.runtime.lifecycle import CLOSE_SECONDS
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.contract import ChunkSink
from trio_llm.testing.scripted import ScriptedAdapter, text_script
from trio_llm.testing.wire_script import Hold

from .support import Idle, answering, raises_code, request, text_of_call

settle = trio.testing.wait_all_tasks_blocked


def failure_code(finish: object) -> str:
    assert isinstance(finish, (Error, Aborted))
    return finish.failure.code


async def test_an_adapter_under_several_names_and_registrations_is_entered_once() -> None:
    adapter = Idle()
    runtime = LlmRuntime()
    first = runtime.register_adapter(["a", "b"], adapter)
    async with runtime:
        await settle()
        second = runtime.register_adapter(["c"], adapter)
        await settle()
        assert (adapter.opened, adapter.closed) == (1, 0)
        first.close()
        await settle()
        assert adapter.closed == 0
        second.close()
        await settle()
        assert (adapter.opened, adapter.closed) == (1, 1)
        third = runtime.register_adapter(["a"], adapter)
        third.replace(["b"])
        third.replace([])
        await settle()
        assert (adapter.opened, adapter.closed) == (2, 1)
    assert (adapter.opened, adapter.closed) == (2, 2)


async def test_an_adapter_closed_before_the_runtime_was_entered_is_never_opened() -> None:
    adapter, runtime = Idle(), LlmRuntime()
    runtime.register_adapter(["a"], adapter).close()
    async with runtime:
        await settle()
    assert (adapter.opened, adapter.closed) == (0, 0)


async def test_L20_a_registration_that_fails_opens_nothing_and_loses_nothing() -> None:
    async with LlmRuntime() as runtime:
        mine, other = Idle(), Idle()
        runtime.register_adapter(["taken"], answering())
        registration = runtime.register_adapter(["mine"], mine)
        with raises_code(codes.DUPLICATE_ADAPTER):
            runtime.register_adapter(["taken"], other)
        with raises_code(codes.DUPLICATE_ADAPTER):
            registration.replace(["taken"], other)
        await settle()
        assert (mine.opened, mine.closed, other.opened) == (1, 0, 0)
        registration.close()
        await settle()
        assert (mine.closed, other.opened) == (1, 0)


async def test_an_adapter_stays_open_for_a_look_up(autojump_clock: trio.testing.MockClock) -> None:
    class SlowToTell(Idle):
        async def resolve_model(self, provider: str, model: str, signal: object = None) -> None:
            await trio.sleep(3 * CLOSE_SECONDS)
            assert self.closed == 0

    async with LlmRuntime() as runtime, trio.open_nursery() as nursery:
        adapter = SlowToTell()
        registration = runtime.register_adapter(["one"], adapter)
        nursery.start_soon(runtime.resolve_model_info, "one", "m")
        await trio.sleep(1)
        registration.close()
    assert adapter.closed == 1


async def test_an_adapter_replaced_by_another_is_closed_after_its_last_call() -> None:
    async with LlmRuntime() as runtime:
        old = ScriptedAdapter([[Hold()], [Hold()]])
        registration = runtime.register_adapter(["one"], old)
        async with runtime.stream(request()), runtime.stream(request()) as second:
            await settle()
            registration.replace(["one"], answering("new"))
            assert await text_of_call(runtime, request()) == "new"
            second.abort()
            async for _ in second:
                pass
            assert old.exited == 0
        await settle()
        assert old.exited == 1


async def test_an_adapter_registered_again_while_closing_is_opened_after_it_was_closed() -> None:
    class Slow(Idle):
        def __init__(self) -> None:
            super().__init__()
            self.closing = trio.Event()

        async def __aexit__(self, *error: object) -> None:
            assert self.opened == self.closed + 1
            await self.closing.wait()
            self.closed += 1

    async with LlmRuntime() as runtime:
        adapter = Slow()
        registration = runtime.register_adapter(["a"], adapter)
        await settle()
        registration.close()
        runtime.register_adapter(["a"], adapter)
        await settle()
        assert (adapter.opened, adapter.closed) == (1, 0)
        adapter.closing.set()
        await settle()
        assert (adapter.opened, adapter.closed) == (2, 1)
    assert adapter.closed == 2


async def test_calls_wait_until_their_adapter_is_open() -> None:
    class SlowToOpen(ScriptedAdapter):
        async def __aenter__(self) -> Self:
            await gate.wait()
            return await super().__aenter__()

    gate = trio.Event()
    async with LlmRuntime() as runtime, trio.open_nursery() as nursery:
        adapter = SlowToOpen(lambda options: text_script("hi"))
        runtime.register_adapter(["one"], adapter)
        nursery.start_soon(text_of_call, runtime, request())
        await settle()
        assert adapter.calls == []
        gate.set()
    assert len(adapter.calls) == 1


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (LlmError("no key", codes.MISSING_CREDENTIAL), codes.MISSING_CREDENTIAL),
        (OSError("no file"), codes.UNKNOWN),
    ],
)
async def test_an_adapter_that_cannot_be_opened_fails_its_calls_alone(
    raised: Exception, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Idle):
        async def __aenter__(self) -> Self:
            raise raised

    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], Broken())
        runtime.register_adapter(["two"], answering())
        for _ in range(2):
            async with runtime.stream(request()) as stream:
                async for _ in stream:
                    pass
            assert failure_code(stream.finish) == code
            assert str(raised.args[0]) in stream.finish.failure.message  # type: ignore[union-attr]
            assert stream.error is not None
            assert stream.error.__cause__ is raised
        assert await text_of_call(runtime, request("two")) == "hi"
    assert "could not be opened" in caplog.text


class WithNursery(ScriptedAdapter):
    """Holds a nursery open for as long as it lives, as one with session sockets does."""

    def __init__(self) -> None:
        super().__init__(lambda options: text_script("hi"))
        self.crash = trio.Event()
        self.background = 0

    async def _ping(self) -> None:
        self.background += 1
        try:
            await self.crash.wait()
            raise ValueError("the ping failed")
        finally:
            self.background -= 1

    async def __aenter__(self) -> Self:
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._ping)
        return await super().__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._nursery.cancel_scope.cancel()
        await super().__aexit__(exc_type, exc, traceback)
        await self._manager.__aexit__(exc_type, exc, traceback)


async def test_an_adapter_may_hold_a_nursery_from_its_aenter_on() -> None:
    async with LlmRuntime() as runtime:
        adapter = WithNursery()
        runtime.register_adapter(["one"], adapter)
        assert await text_of_call(runtime, request()) == "hi"
        assert adapter.background == 1
    assert (adapter.background, adapter.exited) == (0, 1)


async def test_an_adapter_that_breaks_down_fails_later_calls_and_not_the_runtime(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with LlmRuntime() as runtime:
        adapter = WithNursery()
        runtime.register_adapter(["one"], adapter)
        assert await text_of_call(runtime, request()) == "hi"
        prepared = await runtime.prepare_call(request())
        adapter.crash.set()
        await settle()
        async with runtime.stream(request()) as stream:
            async for _ in stream:
                pass
        assert failure_code(stream.finish) == codes.UNKNOWN
        async with prepared.stream(request()) as stream:
            async for _ in stream:
                pass
        assert failure_code(stream.finish) == codes.UNKNOWN
        assert len(adapter.calls) == 1
    assert "broke down" in caplog.text
    assert adapter.exited == 1


async def test_leaving_the_runtime_aborts_what_runs_and_closes_every_adapter() -> None:
    adapter, idle = ScriptedAdapter([[*text_script("a")[:2], Hold()]]), Idle()
    seen: list[StreamChunk] = []

    async def consume(runtime: LlmRuntime) -> None:
        async with runtime.stream(request()) as stream:
            seen.extend([chunk async for chunk in stream])
        assert failure_code(stream.finish) == codes.ABORTED

    async with trio.open_nursery() as nursery:
        async with LlmRuntime() as runtime:
            runtime.register_adapter(["one"], adapter)
            runtime.register_adapter(["two"], idle)
            nursery.start_soon(consume, runtime)
            await settle()
        assert adapter.calls[0].outcome == "cancelled"
        assert (adapter.exited, idle.closed) == (1, 1)
    assert len(seen) == 3


async def test_an_adapter_is_closed_only_after_its_attempts_have_ended() -> None:
    class Careful(ScriptedAdapter):
        async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    for _ in range(20):
                        await trio.lowlevel.checkpoint()
                assert self.exited == 0
                self.ended = True

    async with trio.open_nursery() as nursery:
        adapter = Careful([])
        async with LlmRuntime() as runtime:
            runtime.register_adapter(["one"], adapter)
            nursery.start_soon(runtime.stream_to, trio.open_memory_channel[StreamChunk](9)[0], request())
            await settle()
        assert adapter.ended
        assert adapter.exited == 1
        nursery.cancel_scope.cancel()


async def test_the_bodys_exception_leaves_the_runtime_as_itself() -> None:
    adapter, mine = Idle(), LookupError("mine")
    with pytest.raises(LookupError) as caught:
        async with LlmRuntime() as runtime:
            runtime.register_adapter(["one"], adapter)
            await settle()
            raise mine
    assert caught.value is mine
    assert adapter.closed == 1


async def test_ambient_cancellation_closes_adapters_in_a_shield() -> None:
    adapter = Idle()
    with trio.CancelScope() as scope:
        async with LlmRuntime() as runtime:
            runtime.register_adapter(["one"], adapter)
            await settle()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert adapter.closed == 1


class Clinging(Idle):
    """Takes longer to close, or to open, than anybody waits."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    async def __aenter__(self) -> Self:
        if self.where == "opening":
            await trio.sleep_forever()
        return await super().__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await trio.sleep_forever()


@pytest.mark.parametrize("where", ["opening", "closing"])
async def test_an_adapter_that_clings_is_given_up_after_a_while(
    where: str, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], Clinging(where))
        runtime.register_adapter(["two"], Clinging(where))
        await settle()
        started = trio.current_time()
    assert trio.current_time() - started == CLOSE_SECONDS
    assert "did not close" in caplog.text


class FailsToClose(Idle):
    async def __aexit__(self, *error: object) -> None:
        self.closed += 1
        raise OSError("close failed")


async def test_L08_what_closing_an_adapter_raises_is_raised_when_the_runtime_is_left() -> None:
    with pytest.raises(OSError, match="close failed"):
        async with LlmRuntime() as runtime:
            with runtime.register_adapter(["one"], FailsToClose()):
                await settle()
            await settle()
            runtime.register_adapter(["two"], answering())
            assert await text_of_call(runtime, request("two")) == "hi"
    with pytest.RaisesGroup(OSError, OSError):
        async with LlmRuntime() as runtime:
            runtime.register_adapter(["one"], FailsToClose())
            runtime.register_adapter(["two"], FailsToClose())
            await settle()


async def test_L08_a_body_that_raises_carries_what_closing_raised_as_a_note() -> None:
    mine = LookupError("mine")
    with pytest.raises(LookupError) as caught:
        async with LlmRuntime() as runtime:
            runtime.register_adapter(["one"], FailsToClose())
            await settle()
            raise mine
    assert caught.value is mine
    assert "close failed" in mine.__notes__[0]


async def test_a_runtime_is_entered_once_and_takes_no_adapters_afterwards() -> None:
    runtime = LlmRuntime()
    async with runtime:
        with pytest.raises(RuntimeError, match="once"):
            await runtime.__aenter__()
        registration = runtime.register_adapter(["one"], Idle())
    with pytest.raises(RuntimeError, match="left"):
        runtime.register_adapter(["two"], Idle())
    with pytest.raises(RuntimeError, match="left"):
        registration.replace(["one"])
    registration.close()
    assert runtime.list_providers() == ()
    with pytest.raises(RuntimeError, match="open runtime"):
        runtime.stream(request())


async def test_nothing_is_opened_while_the_runtime_is_being_left() -> None:
    class Meddling(Idle):
        async def __aexit__(self, *error: object) -> None:
            with pytest.raises(RuntimeError, match="left"):
                registration.replace(["one"], Idle())
            self.closed += 1

    adapter = Meddling()
    async with LlmRuntime() as runtime:
        registration = runtime.register_adapter(["one"], adapter)
        await settle()
    assert adapter.closed == 1


async def test_a_stream_made_before_and_entered_after_the_runtime_was_left_fails_in_order() -> None:
    async with LlmRuntime() as runtime:
        adapter = answering()
        runtime.register_adapter(["one"], adapter)
        stream = runtime.stream(request())
        await settle()
    async with stream:
        async for _ in stream:
            pass
    assert failure_code(stream.finish) == codes.REGISTRATION_DISPOSED
    assert adapter.calls == []


async def test_a_stream_entered_while_the_runtime_is_being_left_reaches_no_adapter() -> None:
    """Nobody would abort it, and no clock would end it."""

    class Slow(ScriptedAdapter):
        async def __aexit__(self, *error: object) -> None:
            async with stream:
                async for _ in stream:
                    pass

    adapter = Slow([[Hold()]])
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], adapter)
        stream = runtime.stream(request())
        await settle()
    assert failure_code(stream.finish) == codes.REGISTRATION_DISPOSED
    assert adapter.calls == []


async def test_the_log_of_a_quiet_runtime_is_empty(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="trio_llm.runtime"):
        async with LlmRuntime() as runtime:
            runtime.register_adapter(["one"], answering())
            await text_of_call(runtime, request())
    assert caplog.text == ""


async def test_entering_a_stream_twice_does_not_let_its_adapter_go() -> None:
    async with LlmRuntime() as runtime:
        adapter = ScriptedAdapter([[Hold()]])
        registration = runtime.register_adapter(["one"], adapter)
        async with runtime.stream(request()) as stream:
            with pytest.raises(RuntimeError, match="once"):
                await stream.__aenter__()
            registration.close()
            await settle()
            assert adapter.exited == 0
        await settle()
        assert adapter.exited == 1
