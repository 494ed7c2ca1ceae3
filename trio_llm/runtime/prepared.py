"""Prepared calls: everything about a call but its history, decided and pinned before it is sent."""

from __future__ import annotations

from collections.abc import Callable

from ..model import codes
from ..model.catalogue import ModelContext
from ..model.failures import LlmError
from ..model.policy import RetryPolicy
from ..model.requests import GenerateOptions, LlmCallConfig, call_config, call_config_equals
from ..model.signal import AbortSignal
from .boundary import Boundary, CallRoutes, Pin
from .catalogue import resolve_model
from .defaults import materialise
from .stream import RuntimeStream
from .topology import Handle

OpenStream = Callable[[GenerateOptions, CallRoutes], RuntimeStream]


class PreparedLlmCall(Handle):
    """A call that can be dispatched once, on the adapter and policy it was prepared with.

    It keeps its adapter open, whatever becomes of the route, until its stream has been left; one
    that is not dispatched after all is closed, or used as a context manager.

    Attributes:
        config: with the adapter's defaults; dispatch with exactly this configuration.
        retry_policy: as registration captured it.
        context: the model's limits, None where unknown.
        input_modalities: what the model takes, None where unknown.
        adapter_defaults: which fields of ``config`` the adapter supplied.
    """

    def __init__(
        self, boundary: Boundary, pin: Pin, adapter_defaults: tuple[str, ...], open_stream: OpenStream
    ) -> None:
        super().__init__(self._close)
        self.config: LlmCallConfig = pin.config
        self.retry_policy: RetryPolicy = pin.route.retry_policy
        self.context: ModelContext | None = pin.info.context
        self.input_modalities: tuple[str, ...] | None = pin.info.input_modalities
        self.adapter_defaults = adapter_defaults
        self._routes = CallRoutes(boundary, pin)
        self._open_stream = open_stream
        self._spent = False

    def stream(self, options: GenerateOptions) -> RuntimeStream:
        """The call's one stream; see :meth:`LlmRuntime.stream`.

        Raises:
            LlmError: INVALID_PREPARED_CALL, it was dispatched or closed before; or the configuration
                in ``options`` is not ``config``, and then it can still be dispatched.
        """
        if self._spent:
            raise LlmError("a prepared call is dispatched once", codes.INVALID_PREPARED_CALL)
        if not call_config_equals(options, self.config):
            raise LlmError("the configuration is not the one that was prepared", codes.INVALID_PREPARED_CALL)
        stream = self._open_stream(options, self._routes)
        self._spent = True
        return stream

    def _close(self) -> None:
        if not self._spent:
            self._spent = True
            self._routes.release()


async def prepare_call(
    boundary: Boundary, config: LlmCallConfig, signal: AbortSignal | None, open_stream: OpenStream
) -> PreparedLlmCall:
    """See :meth:`LlmRuntime.prepare_call`."""
    route = boundary.registry.route(config.provider)
    hold = route.tenancy.hold()
    try:
        produce = route.adapter.prepare_call(route.provider)
        info = await resolve_model(route, config.model, signal)
        complete, supplied = materialise(call_config(config), info)
    except BaseException:
        hold.close()
        raise
    return PreparedLlmCall(boundary, Pin(route, hold, produce, info, complete), supplied, open_stream)
