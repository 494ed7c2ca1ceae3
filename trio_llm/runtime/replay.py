"""Who gets replay state: only the adapter instance that made it, while it owns both routes."""

from __future__ import annotations

import attrs

from ..model import codes
from ..model.failures import LlmFailure
from ..model.messages import Message, ModelSource
from ..streaming.selection import OnDegraded
from .registry import Registry, Route


def owned_replay_state(
    messages: tuple[Message, ...], route: Route, registry: Registry, on_degraded: OnDegraded
) -> tuple[Message, ...]:
    """The messages as the route's adapter may see them.

    Replay state stays where the route's adapter itself now owns both the historical and the target
    provider name; everywhere else content, provider and model pass without it. Messages are the
    same objects where nothing changes.
    """
    target = registry.find(route.provider)
    owner = target.adapter if target is not None and target.adapter is route.adapter else None

    def visible(message: Message) -> Message:
        source = message.source
        if not isinstance(source, ModelSource) or source.replay_state is None:
            return message
        historical = registry.find(source.provider)
        if owner is not None and historical is not None and historical.adapter is owner:
            if _aligned(message, source):
                return message
            on_degraded(message.id, LlmFailure(_MISALIGNED, codes.INVALID_REPLAY_STATE))
        return attrs.evolve(message, source=attrs.evolve(source, replay_state=None))

    seen = tuple(visible(message) for message in messages)
    return messages if all(one is other for one, other in zip(seen, messages, strict=True)) else seen


_MISALIGNED = "the replay state has not one entry for each block of its message"


def _aligned(message: Message, source: ModelSource) -> bool:
    state = source.replay_state
    return state is None or state.blocks is None or len(state.blocks) == len(message.content)
