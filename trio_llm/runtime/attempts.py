"""Attempts: numbered turns of one request, repeated by its policy, outside any stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TypeAlias

import attrs
import trio

from ..model.chunks import Error, FinishReason, TokenUsage
from ..model.content import ContentBlock
from ..model.failures import LlmFailure
from ..model.policy import AlwaysRetry, RetryPolicy
from ..model.signal import AbortSignal
from ..streaming.settlement import Settlement
from ..streaming.stream import ChunkStream
from .aborting import cancelled_by
from .records import AttemptRecord, Record
from .retry import Retry, policy_retry

Recover: TypeAlias = Callable[
    [LlmFailure, tuple[AttemptRecord, ...], RetryPolicy, AbortSignal | None], Awaitable[bool]
]
"""May mend what made an attempt fail: given the failure, the earlier records, the policy and the
request's signal, True asks for a retry at once. ``normal`` asks it when the policy declines,
``always`` asks it first."""


@attrs.frozen
class EarlierAttempt:
    """What an attempt that failed had shown. It never enters a request."""

    number: int
    finish: FinishReason
    partial: tuple[ContentBlock, ...]
    usage: TokenUsage | None


class Attempt:
    """One fresh turn: ``async with attempt as stream``.

    Attributes:
        number: from 1.
        previous: what the attempt before this one had shown.
        stream: the attempt's own stream.
    """

    def __init__(self, number: int, previous: EarlierAttempt | None, stream: ChunkStream) -> None:
        self.number = number
        self.previous = previous
        self.stream = stream

    async def __aenter__(self) -> ChunkStream:
        return await self.stream.__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stream.__aexit__(exc_type, exc, traceback)


class Attempts(AsyncIterator[Attempt]):
    """The attempts of one request; made by :meth:`LlmRuntime.attempts`, iterated once.

    It owns no task: the waits happen in the task that asks for the next attempt.
    """

    def __init__(
        self,
        open_stream: Callable[[], ChunkStream],
        signal: AbortSignal | None,
        record: Record | None,
        recover: Recover | None,
        random: Callable[[], float],
    ) -> None:
        self._open_stream = open_stream
        self._signal = signal
        self._record = record
        self._recover = recover
        self._random = random
        self._current: Attempt | None = None
        self._over = False
        self._used: dict[tuple[str, RetryPolicy], int] = {}
        self._records: list[AttemptRecord] = []

    async def __anext__(self) -> Attempt:
        """The next attempt, after the wait it takes. Cancelling ends the wait at once.

        Raises:
            StopAsyncIteration: after a success, an abort or the last failure.
            RuntimeError: the present attempt was not run.
        """
        await trio.lowlevel.checkpoint()
        last = self._current
        if self._over or (last is not None and not await self._again(last)):
            self._over = True
            raise StopAsyncIteration
        number = 1 if last is None else last.number + 1
        self._current = Attempt(number, _shown(last), self._open_stream())
        return self._current

    async def _again(self, last: Attempt) -> bool:
        stream = last.stream
        finish, policy, settlement = stream.finish, stream.retry_policy, _settlement(stream)
        if finish is None:
            raise RuntimeError("run an attempt (async with attempt as stream) before asking for the next")
        if not isinstance(finish, Error) or policy is None or settlement is None:
            return False  # without a policy no adapter was selected
        provider, failure = settlement.provider, finish.failure
        with cancelled_by(self._signal):
            retry = await self._decide(provider, policy, failure)
        if self._aborted() or retry is None:
            return False
        scheduled = AttemptRecord(
            event="scheduled",
            attempt=last.number + 1,
            retry=retry.number,
            provider=provider,
            model=settlement.model,
            failure=failure,
            policy=policy,
            delay_ms=retry.delay_ms,
            delay_source=retry.source,
        )
        await self._write(scheduled)
        with cancelled_by(self._signal):
            await trio.sleep(retry.delay_ms / 1000)
        if self._aborted():
            return False
        await self._write(attrs.evolve(scheduled, event="started"))
        return True

    async def _decide(self, provider: str, policy: RetryPolicy, failure: LlmFailure) -> Retry | None:
        recover_first = isinstance(policy, AlwaysRetry)
        if recover_first and await self._recovered(policy, failure):
            return _RECOVERED
        budget = (provider, policy)
        retry = policy_retry(policy, failure, self._used.get(budget, 0), self._random)
        if retry is not None:
            self._used[budget] = retry.number
        elif not recover_first and await self._recovered(policy, failure):
            return _RECOVERED
        return retry

    async def _recovered(self, policy: RetryPolicy, failure: LlmFailure) -> bool:
        if self._recover is None:
            return False
        return await self._recover(failure, tuple(self._records), policy, self._signal)

    async def _write(self, record: AttemptRecord) -> None:
        self._records.append(record)
        if self._record is not None:
            written = self._record(record)
            if written is not None:
                await written

    def _aborted(self) -> bool:
        return self._signal is not None and self._signal.aborted


_RECOVERED = Retry(0, 0, "recovery")


def _settlement(stream: ChunkStream) -> Settlement | None:
    """The account of the attempt whose finish the consumer saw; layers may have made several."""
    mine = [settlement for settlement in stream.settlements if settlement.finish is stream.finish]
    return mine[-1] if mine else stream.settlement


def _shown(last: Attempt | None) -> EarlierAttempt | None:
    if last is None or last.stream.finish is None:
        return None
    stream = last.stream
    return EarlierAttempt(last.number, last.stream.finish, stream.partial, stream.usage)
