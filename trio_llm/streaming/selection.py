"""What the engine is told about a route, and the shape of a middleware layer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeAlias

import attrs

from ..model.chunks import Finish, StreamChunk, TokenUsage
from ..model.failures import LlmFailure
from ..model.identifiers import MessageId
from ..model.policy import RetryPolicy, Timeouts
from ..model.requests import GenerateOptions
from .contract import Produce

if TYPE_CHECKING:
    from .lanes import Next

Review: TypeAlias = Callable[[Finish, TokenUsage | None], Finish]
"""Looks at the provider's Finish and the reported usage before the engine records them."""

OnDegraded: TypeAlias = Callable[[MessageId, LlmFailure], None]
"""Told of each message whose replay state was dropped because it is malformed (INVALID_REPLAY_STATE)."""


@attrs.frozen(kw_only=True)
class Selection:
    """One route, pinned.

    Attributes:
        provider, model: whom the attempt asks; they name the message's source.
        produce: what runs the attempt.
        timeouts: complete; a None counts as off.
        retry_policy: as registration captured it.
        review: the last word on the provider's Finish, where the runtime knows more.
        on_degraded: told what the adapter notes of malformed replay state.
    """

    provider: str
    model: str
    produce: Produce
    timeouts: Timeouts
    retry_policy: RetryPolicy
    review: Review | None = None
    on_degraded: OnDegraded | None = None


Select: TypeAlias = Callable[[GenerateOptions], Selection]
"""Picks the route for some options; an LlmError it raises becomes the attempt's Finish."""

Middleware: TypeAlias = Callable[[GenerateOptions, "Next"], AsyncIterator[StreamChunk]]
"""``async def layer(options, next): async for chunk in next(options): yield chunk``"""
