"""Attempts: numbered turns, their waits and their records."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from trio_llm.model import codes
from trio_llm.model.chunks import Aborted, Error, Finish, Stop, StreamChunk
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.policy import AlwaysRetry, NormalRetry, RetryPolicy
from trio_llm.model.requests import GenerateOptions
from trio_llm.model.signal import AbortSignal
from trio_llm.runtime.attempts import Attempts, EarlierAttempt
from trio_llm.runtime.records import AttemptRecord, JsonLinesRecorder
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.lanes import Next
from trio_llm.streaming.stream import ChunkStream
from trio_llm.testing.scripted import Script, ScriptedAdapter, text_script
from trio_llm.testing.wire_script import Hold

from .support import request

POLICY = NormalRetry(initial_delay_ms=1000, max_delay_ms=8000, jitter_ratio=0)
DOWN: Script = [LlmError("down", codes.SERVER)]
REFUSED: Script = [LlmError("bad key", codes.AUTH)]
GOOD = text_script("good")


def failing(times: int, policy: RetryPolicy = POLICY, script: Script = DOWN) -> ScriptedAdapter:
    return ScriptedAdapter([script] * times + [GOOD], retry_policy=policy)


async def run(attempts: Attempts) -> list[ChunkStream]:
    """Read every attempt to its end."""
    streams = []
    async for attempt in attempts:
        async with attempt as stream:
            async for _ in stream:
                pass
        streams.append(stream)
    return streams


def codes_of(streams: list[ChunkStream]) -> list[str]:
    return [
        stream.finish.failure.code
        if isinstance(stream.finish, Error)
        else str(stream.finish and stream.finish.kind)
        for stream in streams
    ]


@pytest.fixture
def clock(autojump_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    return autojump_clock


async def test_R01_records_come_before_and_after_the_wait(clock: trio.testing.MockClock) -> None:
    written: list[tuple[float, AttemptRecord]] = []
    started = trio.current_time()
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(2))
        streams = await run(
            runtime.attempts(
                request(model="m7"), record=lambda one: written.append((trio.current_time() - started, one))
            )
        )
    assert codes_of(streams) == [codes.SERVER, codes.SERVER, "stop"]
    assert [(time, one.event, one.attempt, one.retry, one.delay_ms) for time, one in written] == [
        (0, "scheduled", 2, 1, 1000),
        (1, "started", 2, 1, 1000),
        (1, "scheduled", 3, 2, 2000),
        (3, "started", 3, 2, 2000),
    ]
    first = written[0][1]
    assert (first.provider, first.model, first.policy, first.delay_source) == ("one", "m7", POLICY, "backoff")
    assert first.failure == LlmFailure("down", codes.SERVER)


async def test_R01_no_record_says_started_if_the_wait_was_cancelled(clock: trio.testing.MockClock) -> None:
    written: list[AttemptRecord] = []
    async with LlmRuntime() as runtime:
        adapter = failing(1)
        runtime.register_adapter(["one"], adapter)
        with trio.move_on_after(0.5) as scope:
            await run(runtime.attempts(request(), record=written.append))
        assert scope.cancelled_caught
    assert [one.event for one in written] == ["scheduled"]
    assert len(adapter.calls) == 1


async def test_R02_jitter_comes_from_the_given_source(clock: trio.testing.MockClock) -> None:
    written: list[AttemptRecord] = []
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1, attrs.evolve(POLICY, jitter_ratio=0.2)))
        await run(runtime.attempts(request(), record=written.append, random=lambda: 1.0))
    assert {one.delay_ms for one in written} == {1200}


async def test_R03_the_wait_a_provider_asks_for_is_used_verbatim(clock: trio.testing.MockClock) -> None:
    asks: Script = [LlmError("later", codes.RATE_LIMIT, provider_retry_after_ms=2345)]
    written: list[AttemptRecord] = []
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1, script=asks))
        started = trio.current_time()
        await run(runtime.attempts(request(), record=written.append))
        assert trio.current_time() - started == pytest.approx(2.345)
    assert {one.delay_source for one in written} == {"provider"}


async def test_R03_above_the_maximum_normal_ends_and_always_waits_its_own(
    clock: trio.testing.MockClock,
) -> None:
    asks: Script = [LlmError("later", codes.RATE_LIMIT, provider_retry_after_ms=60_000)]
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1, script=asks))
        assert codes_of(await run(runtime.attempts(request()))) == [codes.RATE_LIMIT]
        runtime.register_adapter(["two"], failing(1, AlwaysRetry(initial_delay_ms=10, jitter_ratio=0), asks))
        started = trio.current_time()
        assert codes_of(await run(runtime.attempts(request("two")))) == [codes.RATE_LIMIT, "stop"]
        assert trio.current_time() - started == pytest.approx(0.01)


async def test_R04_unlisted_codes_and_unselected_routes_are_not_retried(
    clock: trio.testing.MockClock,
) -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1, script=REFUSED))
        assert codes_of(await run(runtime.attempts(request()))) == [codes.AUTH]

        class NoRoute(ScriptedAdapter):
            def prepare_call(self, provider: str) -> Any:
                raise LlmError("no endpoint", codes.SERVER)

        runtime.register_adapter(["two"], NoRoute([], retry_policy=AlwaysRetry()))
        asked: list[LlmFailure] = []

        async def recover(failure: LlmFailure, *rest: object) -> bool:
            asked.append(failure)
            return True

        for provider, code in (("nobody", codes.NO_ADAPTER), ("two", codes.SERVER)):
            streams = await run(runtime.attempts(request(provider), recover=recover))
            assert codes_of(streams) == [code]
        assert asked == []


async def test_R05_exhaustion_surfaces_the_last_failure(clock: trio.testing.MockClock) -> None:
    scripts: list[Script] = [[LlmError(f"failure {n}", codes.SERVER)] for n in range(9)]
    async with LlmRuntime() as runtime:
        adapter = ScriptedAdapter(scripts, retry_policy=attrs.evolve(POLICY, max_retries=2))
        runtime.register_adapter(["one"], adapter)
        streams = await run(runtime.attempts(request()))
    assert len(streams) == 3
    assert streams[-1].finish == Error(LlmFailure("failure 2", codes.SERVER))


async def test_R05_budgets_are_keyed_by_provider_and_policy(clock: trio.testing.MockClock) -> None:
    tight = attrs.evolve(POLICY, max_retries=1)
    turn = 0

    async def alternate(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        nonlocal turn
        turn += 1
        async for chunk in next(attrs.evolve(options, provider="one" if turn % 2 else "two")):
            yield chunk

    written: list[AttemptRecord] = []
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], ScriptedAdapter(lambda options: DOWN, retry_policy=tight))
        runtime.register_adapter(["two"], ScriptedAdapter(lambda options: DOWN, retry_policy=tight))
        runtime.use(alternate)
        streams = await run(runtime.attempts(request(), record=written.append))
    assert len(streams) == 3  # one fails, two fails, one again: its budget is used up
    scheduled = [one for one in written if one.event == "scheduled"]
    assert [(one.provider, one.retry, one.delay_ms) for one in scheduled] == [
        ("one", 1, 1000),
        ("two", 1, 1000),
    ]


async def test_R05_a_changed_policy_is_another_budget(clock: trio.testing.MockClock) -> None:
    class Reconfigured(ScriptedAdapter):
        max_delay_ms = 8000

        def provider_retry_policy(self, provider: str) -> RetryPolicy:
            return attrs.evolve(POLICY, max_retries=1, max_delay_ms=self.max_delay_ms)

    async with LlmRuntime() as runtime:
        adapter = Reconfigured(lambda options: DOWN)
        registration = runtime.register_adapter(["one"], adapter)
        policies = []
        async for attempt in runtime.attempts(request()):
            async with attempt as stream:
                async for _ in stream:
                    pass
            policies.append(stream.retry_policy)
            adapter.max_delay_ms = 9000
            registration.replace(["one"])
    # the first failure used up the old policy's one retry, the second the new policy's
    old, new = attrs.evolve(POLICY, max_retries=1), attrs.evolve(POLICY, max_retries=1, max_delay_ms=9000)
    assert policies == [old, new, new]


async def test_R06_always_asks_recovery_first_and_has_no_bound(clock: trio.testing.MockClock) -> None:
    calls: list[tuple[str, int]] = []

    async def recover(
        failure: LlmFailure,
        records: tuple[AttemptRecord, ...],
        policy: RetryPolicy,
        signal: AbortSignal | None,
    ) -> bool:
        calls.append((failure.code, len(records)))
        return len(calls) == 2

    written: list[AttemptRecord] = []
    policy = AlwaysRetry(initial_delay_ms=1000, max_delay_ms=2000, jitter_ratio=0)
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(30, policy, REFUSED))
        streams = await run(runtime.attempts(request(), record=written.append, recover=recover))
    assert len(streams) == 31
    assert calls == [(codes.AUTH, 2 * n) for n in range(30)]
    scheduled = [one for one in written if one.event == "scheduled"]
    assert [(one.retry, one.delay_ms, one.delay_source) for one in scheduled[:4]] == [
        (1, 1000, "backoff"),
        (0, 0, "recovery"),
        (2, 2000, "backoff"),
        (3, 2000, "backoff"),
    ]


async def test_R10_normal_asks_recovery_when_the_policy_declines(clock: trio.testing.MockClock) -> None:
    seen: list[tuple[Any, ...]] = []
    signal = AbortSignal()

    async def recover(
        failure: LlmFailure,
        records: tuple[AttemptRecord, ...],
        policy: RetryPolicy,
        given: AbortSignal | None,
    ) -> bool:
        seen.append((failure, records, policy, given))
        return failure.code == codes.AUTH

    async with LlmRuntime() as runtime:
        policy = attrs.evolve(POLICY, max_retries=1)
        scripts: list[Script] = [REFUSED, DOWN, REFUSED, DOWN, GOOD]
        runtime.register_adapter(["one"], ScriptedAdapter(scripts, retry_policy=policy))
        streams = await run(runtime.attempts(request(signal=signal), recover=recover))
    assert codes_of(streams) == [codes.AUTH, codes.SERVER, codes.AUTH, codes.SERVER]
    assert [(failure.code, len(records)) for failure, records, _, _ in seen] == [
        (codes.AUTH, 0),
        (codes.AUTH, 4),
        (codes.SERVER, 6),
    ]
    assert all(one[2:] == (policy, signal) for one in seen)


async def test_R07_a_signal_ends_the_wait_at_once(clock: trio.testing.MockClock) -> None:
    signal = AbortSignal()
    written: list[AttemptRecord] = []
    async with LlmRuntime() as runtime, trio.open_nursery() as nursery:
        adapter = failing(1)
        runtime.register_adapter(["one"], adapter)

        async def abort_soon() -> None:
            await trio.sleep(0.25)
            signal.abort()

        nursery.start_soon(abort_soon)
        started = trio.current_time()
        attempts = runtime.attempts(request(signal=signal), record=written.append)
        streams = await run(attempts)
        assert trio.current_time() - started == 0.25
        assert await run(attempts) == []  # it is over for good
    assert codes_of(streams) == [codes.SERVER]
    assert [one.event for one in written] == ["scheduled"]


async def test_R05_a_loop_that_has_ended_stays_over(clock: trio.testing.MockClock) -> None:
    asked = 0

    async def recover(*args: object) -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1, script=REFUSED))
        attempts = runtime.attempts(request(), recover=recover)
        assert codes_of(await run(attempts)) == [codes.AUTH]
        assert await run(attempts) == []
    assert asked == 1


async def test_R07_a_signal_ends_a_recovery_at_once(clock: trio.testing.MockClock) -> None:
    signal = AbortSignal()

    async def recover(*args: object) -> bool:
        signal.abort()
        await trio.sleep(math.inf)
        return True

    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1, script=REFUSED))
        assert codes_of(await run(runtime.attempts(request(signal=signal), recover=recover))) == [codes.AUTH]


async def test_R07_an_abort_ends_the_loop(clock: trio.testing.MockClock) -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1, AlwaysRetry(), [Hold()]))
        count = 0
        async for attempt in runtime.attempts(request()):
            async with attempt as stream:
                count += 1
                stream.abort("enough")
                async for _ in stream:
                    pass
        assert isinstance(stream.finish, Aborted)
        assert count == 1


async def test_R07_a_consumer_that_leaves_early_ends_the_loop(clock: trio.testing.MockClock) -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1, AlwaysRetry(), [Hold()]))
        numbers = []
        async for attempt in runtime.attempts(request()):
            async with attempt:
                numbers.append(attempt.number)
        assert numbers == [1]


async def test_R08_the_request_is_identical_and_partial_output_never_enters_it(
    clock: trio.testing.MockClock,
) -> None:
    cut: Script = [*text_script("half")[:2], *DOWN]
    async with LlmRuntime() as runtime:
        adapter = failing(2, script=cut)
        runtime.register_adapter(["one"], adapter)
        options = request()
        previous: list[EarlierAttempt | None] = []
        messages = []
        async for attempt in runtime.attempts(options):
            previous.append(attempt.previous)
            async with attempt as stream:
                async for _ in stream:
                    pass
            messages.append(stream.message)
    assert [call.options is options for call in adapter.calls] == [True] * 3
    shown = Error(LlmFailure("down", codes.SERVER))
    assert previous == [
        None,
        EarlierAttempt(1, shown, (TextBlock("half"),), None),
        EarlierAttempt(2, shown, (TextBlock("half"),), None),
    ]
    # R10: a failed attempt commits no message
    assert messages[:2] == [None, None]
    assert messages[2] is not None
    assert messages[2].content == (TextBlock("good"),)


async def test_R10_a_failed_attempt_commits_no_message(clock: trio.testing.MockClock) -> None:
    cut: Script = [*text_script("half")[:2], *DOWN]
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1, attrs.evolve(POLICY, max_retries=0), cut))
        [stream] = await run(runtime.attempts(request()))
    assert stream.message is None
    assert stream.incomplete_calls == ()
    assert stream.partial == (TextBlock("half"),)


async def test_R08_a_success_at_once_is_one_attempt() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(0))
        [stream] = await run(runtime.attempts(request()))
    assert stream.finish == Stop()


async def test_an_attempt_that_was_not_run_is_an_error() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(0))
        with pytest.raises(RuntimeError, match="run an attempt"):
            async for _ in runtime.attempts(request()):
                pass


async def test_a_layer_that_fails_before_any_attempt_is_not_retried() -> None:
    async def refuse(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        yield Finish(Error(LlmFailure("limited", codes.RATE_LIMIT)))

    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(0))
        runtime.use(refuse)
        assert codes_of(await run(runtime.attempts(request()))) == [codes.RATE_LIMIT]


async def test_R05_the_budget_of_a_call_that_layers_retried_is_that_of_the_finish(
    clock: trio.testing.MockClock,
) -> None:
    async def first_of_two(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for _ in next(options):
            pass
        async for chunk in next(attrs.evolve(options, provider="two")):
            yield chunk

    written: list[AttemptRecord] = []
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1))
        runtime.register_adapter(["two"], failing(1))
        runtime.use(first_of_two)
        await run(runtime.attempts(request(), record=written.append))
    assert [one.provider for one in written] == ["two", "two"]


async def test_R01_what_the_recorder_raises_ends_the_loop(clock: trio.testing.MockClock) -> None:
    def broken(record: AttemptRecord) -> None:
        raise OSError("disk full")

    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1))
        with pytest.raises(OSError, match="disk full"):
            await run(runtime.attempts(request(), record=broken))


async def test_R01_the_json_lines_recorder_writes_each_step_out(tmp_path: Path) -> None:
    path = tmp_path / "retries.jsonl"
    policy = NormalRetry(initial_delay_ms=1, max_delay_ms=1, jitter_ratio=0)
    asks: Script = [LlmError("wait \ud83d", codes.RATE_LIMIT, status=429, provider_retry_after_ms=0.5)]
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], failing(1, policy, asks))
        await run(runtime.attempts(request(), record=JsonLinesRecorder(path)))
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [line["type"] for line in lines] == ["attempt-scheduled", "attempt-started"]
    first = lines[0]
    assert (first["attempt"], first["retry"], first["provider"], first["model"]) == (2, 1, "one", "m")
    assert (first["delayMs"], first["delaySource"]) == (0.5, "provider")
    assert first["failure"]["code"] == codes.RATE_LIMIT
    assert first["failure"]["status"] == 429
    assert first["policy"]["mode"] == "normal"
    assert first["policy"]["retryableCodes"] == list(policy.retryable_codes)
