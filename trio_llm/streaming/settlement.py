"""Settlements: the account of each wire attempt, however it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

from ..model.chunks import FinishReason, TokenUsage
from ..model.identifiers import ProviderRequestId
from .verdict import Cause, Origin

UsageState: TypeAlias = Literal["reported", "early", "unknown"]


@attrs.frozen(kw_only=True)
class Settlement:
    """What one wire attempt was and cost. Aborted and failed attempts settle too.

    Times are in seconds since ``started``; None where it did not come to that.

    Attributes:
        provider, model: the route and model that were asked.
        attempt: the number of the engine's attempt within the call, from 1.
        finish: why it ended.
        origin: who ended it.
        started: on trio's clock, in seconds.
        sent: the whole request had been sent.
        first_byte: the first byte of the response's body.
        first_event: the first model event.
        ended: the cause that ended it was observed.
        abort_to_closed: from that cause to the connection closed, where the attempt was stopped.
        bytes_received: of body.
        usage: the counts, None where unknown.
        usage_state: whether they were reported at the end, noted early, or are unknown.
        status: the HTTP status.
        served_model, response_id, request_id: as the provider tells them.
        facts: what else the provider tells, unread.
    """

    provider: str
    model: str
    attempt: int
    finish: FinishReason
    origin: Origin
    started: float
    sent: float | None
    first_byte: float | None
    first_event: float | None
    ended: float
    abort_to_closed: float | None
    bytes_received: int
    usage: TokenUsage | None
    usage_state: UsageState
    status: int | None
    request_id: ProviderRequestId | None
    served_model: str | None
    response_id: str | None
    facts: Mapping[str, object]


class WireAccount:
    """What is noted of a wire attempt while it runs. Times are on trio's clock."""

    __slots__ = (
        "bytes_received",
        "closed",
        "early_usage",
        "ended_by",
        "facts",
        "first_byte",
        "first_event",
        "request_id",
        "response_id",
        "sent",
        "served_model",
        "started",
        "status",
        "usage",
    )

    def __init__(self, now: float) -> None:
        self.started = now
        self.sent: float | None = None
        self.first_byte: float | None = None
        self.first_event: float | None = None
        self.closed: float | None = None
        self.bytes_received = 0
        self.usage: TokenUsage | None = None
        self.early_usage: TokenUsage | None = None
        self.ended_by: Cause | None = None
        self.status: int | None = None
        self.request_id: ProviderRequestId | None = None
        self.served_model: str | None = None
        self.response_id: str | None = None
        self.facts: dict[str, object] = {}

    def note_response(
        self,
        status: int | None,
        request_id: ProviderRequestId | None,
        served_model: str | None,
        response_id: str | None,
        facts: Mapping[str, object] | None,
    ) -> None:
        """Keep what is told; None leaves what is known."""
        self.status = status if status is not None else self.status
        self.request_id = request_id if request_id is not None else self.request_id
        self.served_model = served_model if served_model is not None else self.served_model
        self.response_id = response_id if response_id is not None else self.response_id
        if facts:
            self.facts.update(facts)

    def settle(self, provider: str, model: str, attempt: int, cause: Cause) -> Settlement:
        """The account, closed by the cause that ended it."""

        def since(time: float | None) -> float | None:
            return None if time is None else time - self.started

        stopped = cause.finish.reason.kind == "aborted" or cause.origin not in ("provider", "runtime")
        closed_after = None
        if stopped and self.closed is not None:
            closed_after = max(0.0, self.closed - cause.time)
        usage = self.usage or self.early_usage
        state: UsageState = "unknown"
        if usage is not None:
            state = "reported" if self.usage is not None else "early"
        values: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("bytes_received", "status", "request_id", "served_model", "response_id")
        }
        return Settlement(
            provider=provider,
            model=model,
            attempt=attempt,
            finish=cause.finish.reason,
            origin=cause.origin,
            started=self.started,
            sent=since(self.sent),
            first_byte=since(self.first_byte),
            first_event=since(self.first_event),
            ended=cause.time - self.started,
            abort_to_closed=closed_after,
            usage=usage,
            usage_state=state,
            facts=dict(self.facts),
            **values,
        )
