"""The contract between the engine and an adapter.

An adapter's one duty is ``produce(options, sink)``: send the chunks of ONE provider attempt into
the sink, in the order that :mod:`trio_llm.protocol.grammar` states, ending with a ``Finish``, or
raise an :class:`~trio_llm.model.failures.LlmError`. It never retries, never touches the consumer,
and may be cancelled at any checkpoint: then it lets ``trio.Cancelled`` pass and leaves nothing
open behind it.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeAlias

import trio

from ..model.catalogue import ModelInfo, ProviderInfo, ResolvedModelInfo
from ..model.chunks import StreamChunk, TokenUsage
from ..model.failures import LlmFailure
from ..model.identifiers import MessageId, ProviderRequestId
from ..model.policy import DEFAULT_TIMEOUTS, RetryPolicy, Timeouts
from ..model.requests import GenerateOptions
from ..model.signal import AbortSignal


class ChunkSink(trio.abc.SendChannel[StreamChunk]):
    """Where an adapter sends the chunks of one attempt, and notes what it learns of it.

    Only the sends wait (for a consumer that is behind; the phase clocks stand still meanwhile).
    Everything else is synchronous and cheap.
    """

    @abc.abstractmethod
    async def send_batch(self, chunks: Sequence[StreamChunk], *, received: int = 0) -> None:
        """Send the chunks of one network read, in order.

        Waits only while the consumer is behind; otherwise it is no checkpoint, since the read that
        brought the batch was one. An empty batch says that a model event arrived that made no
        chunk. A batch that ends with ``Finish`` ends the attempt: what follows may only drain the
        body, for at most 50 ms.

        Args:
            chunks: must not be changed afterwards.
            received: how many bytes of body brought them.

        Raises:
            LlmError: INVALID_CHUNK_SEQUENCE, for a chunk after ``Finish``.
        """

    async def send(self, value: StreamChunk) -> None:
        """Send one chunk; see :meth:`send_batch`. Always a checkpoint."""
        await trio.lowlevel.checkpoint()
        await self.send_batch((value,))

    @abc.abstractmethod
    def alive(self, received: int = 0) -> None:
        """Bytes passed, either way, that made no model event.

        Args:
            received: how many of them were body of the response.
        """

    @abc.abstractmethod
    def note_usage(self, usage: TokenUsage) -> None:
        """Token counts known early; they are shown only if the attempt does not end well."""

    def note_degraded(self, message: MessageId, failure: LlmFailure) -> None:
        """A message of the history was sent without its replay state, which is malformed.

        Args:
            failure: says what was wrong with it, with code INVALID_REPLAY_STATE.
        """

    @abc.abstractmethod
    def connecting(self) -> None:
        """The attempt now waits for a connection (or for its turn to get one)."""

    @abc.abstractmethod
    def connected(self) -> None:
        """There is a connection; the request is being sent."""

    @abc.abstractmethod
    def sent(self) -> None:
        """The whole request is sent; the wait for the first model event begins."""

    @abc.abstractmethod
    def note_response(
        self,
        *,
        status: int | None = None,
        request_id: ProviderRequestId | None = None,
        served_model: str | None = None,
        response_id: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        """Facts of the response for the settlement; None leaves what is known, facts add up."""

    @abc.abstractmethod
    def socket_closed(self) -> None:
        """The attempt's connection was closed or given back (for the settlement's times)."""

    @abc.abstractmethod
    def next_wire_attempt(self, failure: LlmFailure) -> None:
        """Settle the wire attempt so far and open another, before any model event.

        Only for the two declared exceptions: a WebSocket that refuses the upgrade falls back to
        HTTP, and previous_response_not_found sends the full context again.

        Args:
            failure: how the wire attempt so far ended.

        Raises:
            LlmError: INVALID_CHUNK_SEQUENCE, if a model event has been sent.
        """


Produce: TypeAlias = Callable[[GenerateOptions, ChunkSink], Awaitable[None]]
"""What :meth:`LlmAdapter.prepare_call` returns: ``produce`` bound to one configuration snapshot."""


class LlmAdapter(abc.ABC):
    """Speaks one wire for one or more provider names. An async context manager that owns its client.

    The runtime enters an adapter in a task of its own before the first call and leaves it when the
    last call pinned to it has ended. ``produce`` is the only method that must be written.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def provider_info(self, provider: str) -> ProviderInfo:
        """How a provider name presents itself. Default: its name is its id."""
        return ProviderInfo(provider, provider)

    def provider_retry_policy(self, provider: str) -> RetryPolicy | None:
        """The policy that registration captures; None means the normal defaults."""
        return None

    def provider_timeouts(self, provider: str) -> Timeouts:
        """The phase clocks of this adapter's calls, where a call does not override them."""
        return DEFAULT_TIMEOUTS

    def list_models(self, provider: str) -> Sequence[ModelInfo]:
        """The models this adapter knows of. Advice, not a limit. Default: none."""
        return ()

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> ResolvedModelInfo | None:
        """What is known of a model's limits, defaults and efforts; None if nothing is.

        Settles promptly; it is called at most once per prepared call, inside the call's phases.
        """
        return None

    def prepare_call(self, provider: str) -> Produce:
        """Pin the present configuration (endpoint, key, profile) and return what runs on it.

        Default: ``self.produce``, for an adapter whose configuration does not change.
        """
        return self.produce

    @abc.abstractmethod
    async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
        """Run one attempt; see the module's first paragraph.

        Raises:
            LlmError: any failure of the attempt whose facts are known. Everything else that is
                raised becomes UNKNOWN.
        """
