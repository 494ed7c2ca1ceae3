"""The registry: which adapter serves which provider name."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from ..model import codes
from ..model.catalogue import ProviderInfo
from ..model.failures import LlmError
from ..model.policy import AlwaysRetry, NormalRetry, RetryPolicy
from ..streaming.contract import LlmAdapter
from .lifecycle import Tenancies, Tenancy
from .shelf import Shelf
from .topology import Handle


@attrs.frozen(eq=False)
class Route:
    """A provider name and what serves it. Replacing a registration makes new routes.

    Attributes:
        retry_policy: as the adapter gave it at registration.
        tenancy: the adapter's life; hold it to keep the adapter open.
    """

    info: ProviderInfo
    retry_policy: RetryPolicy
    tenancy: Tenancy

    @property
    def provider(self) -> str:
        """The route's name."""
        return self.info.id

    @property
    def adapter(self) -> LlmAdapter:
        """Who serves the route."""
        return self.tenancy.adapter


class Registry:
    """The routes of a runtime.

    Args:
        tenancies: opens and closes the adapters.
        shelf: holds the routes.
    """

    def __init__(self, tenancies: Tenancies, shelf: Shelf[Route]) -> None:
        self._tenancies = tenancies
        self._shelf = shelf

    def register(self, providers: Iterable[str] | str, adapter: LlmAdapter) -> AdapterRegistration:
        """See :meth:`LlmRuntime.register_adapter`."""
        return AdapterRegistration(self._tenancies, self._shelf, providers, adapter)

    def routes(self) -> tuple[Route, ...]:
        """Every route, in the order of registration."""
        return self._shelf.entries()

    def find(self, provider: str) -> Route | None:
        """The route of that name, or None."""
        return self._shelf.get(provider)

    def route(self, provider: str) -> Route:
        """The route of that name.

        Raises:
            LlmError: NO_ADAPTER.
        """
        route = self._shelf.get(provider)
        if route is None:
            raise LlmError(f"no adapter is registered for provider {provider!r}", codes.NO_ADAPTER)
        return route


class AdapterRegistration(Handle):
    """The routes one registration made; leaving its context removes them.

    Calls that were dispatched or prepared before go on, on the adapter and policy they had.
    """

    def __init__(
        self, tenancies: Tenancies, shelf: Shelf[Route], providers: Iterable[str] | str, adapter: LlmAdapter
    ) -> None:
        super().__init__(self._withdraw)
        self._tenancies, self._shelf, self._adapter = tenancies, shelf, adapter
        self._hold: Handle | None = None
        names = _names(providers)
        if not names:
            raise LlmError("an adapter is registered under at least one name", codes.INVALID_ADAPTER)
        self._put(names, adapter)

    def replace(self, providers: Iterable[str] | str, adapter: LlmAdapter | None = None) -> None:
        """Put other routes, or none, in the place of the present ones, in one step.

        Retry policies and provider infos are captured anew.

        Args:
            providers: the names from now on.
            adapter: serves them from now on; None keeps the present one.

        Raises:
            LlmError: REGISTRATION_DISPOSED after close; INVALID_ADAPTER, DUPLICATE_ADAPTER, and
                then nothing has changed.
            RuntimeError: the runtime was left.
        """
        self._shelf.require(self)
        self._put(_names(providers), self._adapter if adapter is None else adapter)

    def _put(self, names: list[str], adapter: LlmAdapter) -> None:
        if not isinstance(adapter, LlmAdapter):
            raise LlmError(f"a {type(adapter).__name__} is no LlmAdapter", codes.INVALID_ADAPTER)
        captured = [(_checked_info(adapter, name), _checked_policy(adapter, name)) for name in names]
        self._shelf.check(self, names)  # before the adapter's life begins
        tenancy = self._tenancies.of(adapter)
        # the registration itself holds the adapter, also while it names no route
        previous, self._hold, self._adapter = self._hold, tenancy.hold(), adapter
        self._shelf.put(self, [(info.id, Route(info, policy, tenancy)) for info, policy in captured])
        if previous is not None:
            previous.close()

    def _withdraw(self) -> None:
        self._shelf.take_down(self)
        if self._hold is not None:
            self._hold.close()


def _names(providers: Iterable[str] | str) -> list[str]:
    names = [providers] if isinstance(providers, str) else list(providers)
    for name in names:
        if not isinstance(name, str) or not name:
            raise LlmError(f"a provider name is a non-empty string, not {name!r}", codes.INVALID_ADAPTER)
    return names


def _checked_info(adapter: LlmAdapter, provider: str) -> ProviderInfo:
    info = adapter.provider_info(provider)
    if not isinstance(info, ProviderInfo) or info.id != provider:
        raise LlmError(f"the adapter describes {provider!r} as {info!r}", codes.INVALID_ADAPTER)
    if not isinstance(info.name, str) or not info.name:
        raise LlmError(f"the adapter gives {provider!r} no name", codes.INVALID_ADAPTER)
    return info


def _checked_policy(adapter: LlmAdapter, provider: str) -> RetryPolicy:
    policy = adapter.provider_retry_policy(provider)
    if policy is None:
        return NormalRetry()
    if not isinstance(policy, (NormalRetry, AlwaysRetry)):
        raise LlmError(f"{policy!r} is no retry policy", codes.INVALID_ADAPTER)
    return policy
