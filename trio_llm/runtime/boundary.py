"""The final boundary: what happens to a request below the middleware, before its adapter sees it."""

from __future__ import annotations

import attrs

from ..model import codes
from ..model.catalogue import ResolvedModelInfo
from ..model.chunks import Finish, TokenUsage
from ..model.failures import LlmError
from ..model.messages import Message
from ..model.policy import DEFAULT_TIMEOUTS, Timeouts
from ..model.requests import GenerateOptions, LlmCallConfig, call_config_equals
from ..streaming.contract import ChunkSink, Produce
from ..streaming.selection import OnDegraded, Selection
from .blocks import own_blocks_sent
from .budgets import ImageBudget, within_budget
from .catalogue import ask_model
from .defaults import materialise
from .projection import takes_images, without_images
from .registry import Registry, Route
from .replay import owned_replay_state
from .topology import Handle
from .window import review_window


@attrs.frozen
class Boundary:
    """What the final boundary of a runtime's calls needs to know."""

    registry: Registry
    image_budget: ImageBudget | None
    on_degraded: OnDegraded

    def visible(
        self, messages: tuple[Message, ...], route: Route, info: ResolvedModelInfo
    ) -> tuple[Message, ...]:
        """The history as the route's adapter may see it; the same objects where nothing changes."""
        messages = own_blocks_sent(owned_replay_state(messages, route, self.registry, self.on_degraded))
        if not takes_images(info):
            return without_images(messages)
        return messages if self.image_budget is None else within_budget(messages, self.image_budget)


@attrs.frozen
class Pin:
    """A route, held for one prepared call.

    Attributes:
        produce: bound to the adapter's configuration of that moment.
        info: from the one model look-up.
        config: what the call must be dispatched with.
    """

    route: Route
    hold: Handle
    produce: Produce
    info: ResolvedModelInfo
    config: LlmCallConfig


class CallRoutes:
    """The routes one call takes. Their adapters stay open until :meth:`release`.

    Args:
        pin: the one route of a prepared call; without it each attempt finds its own.
    """

    def __init__(self, boundary: Boundary, pin: Pin | None = None) -> None:
        self._boundary = boundary
        self._pin = pin
        self._holds = [] if pin is None else [pin.hold]

    def select(self, options: GenerateOptions) -> Selection:
        """Pick and pin the route of an attempt; the engine's ``Select``.

        Raises:
            LlmError: NO_ADAPTER; INVALID_PREPARED_CALL, the configuration is not the prepared one;
                what the adapter's ``prepare_call`` raised.
        """
        pin = self._pin
        if pin is None:
            route = self._boundary.registry.route(options.provider)
            dispatch = Dispatch(self._boundary, route, route.adapter.prepare_call(route.provider), None)
            self._holds.append(route.tenancy.hold())
        else:
            if not call_config_equals(options, pin.config):
                raise LlmError("a middleware changed a prepared call", codes.INVALID_PREPARED_CALL)
            route = pin.route
            dispatch = Dispatch(self._boundary, route, pin.produce, pin.info)
        return Selection(
            provider=route.provider,
            model=options.model,
            produce=dispatch.produce,
            timeouts=_timeouts(options, route),
            retry_policy=route.retry_policy,
            review=dispatch.review,
            on_degraded=self._boundary.on_degraded,
        )

    def release(self) -> None:
        """The call is over. Again does nothing."""
        for hold in self._holds:
            hold.close()


def _timeouts(options: GenerateOptions, route: Route) -> Timeouts:
    own = route.adapter.provider_timeouts(route.provider).over(DEFAULT_TIMEOUTS)
    return own if options.timeouts is None else options.timeouts.over(own)


class Dispatch:
    """One attempt on one route: completes the request, runs it, and judges its end."""

    def __init__(
        self, boundary: Boundary, route: Route, produce: Produce, info: ResolvedModelInfo | None
    ) -> None:
        self._boundary = boundary
        self._route = route
        self._produce = produce
        self._info = info

    async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
        """The attempt's ``produce``: model look-up, defaults, replay state, images, then the adapter's."""
        route, tenancy = self._route, self._route.tenancy
        with tenancy.running():
            if self._info is None:
                self._info = await ask_model(route, options.model, options.signal)
            else:
                await tenancy.ready()
            complete, _ = materialise(options, self._info)
            messages = self._boundary.visible(complete.messages, route, self._info)
            if messages is not complete.messages:
                complete = attrs.evolve(complete, messages=messages)
            await self._produce(complete, sink)

    def review(self, finish: Finish, usage: TokenUsage | None) -> Finish:
        """The engine's ``Review``: the verdict on the context window."""
        context = self._info.context if self._info is not None else None
        return finish if context is None else review_window(finish, usage, context.context_window)
