"""A configuration in force: the routes of a runtime follow it, and another one can take its place."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ..model import codes
from ..model.catalogue import ConfigurableProvider, ModelInfo
from ..model.failures import LlmError
from ..model.policy import RetryPolicy
from ..runtime.directories import DirectoryRegistration
from ..runtime.registry import AdapterRegistration
from ..runtime.runtime import LlmRuntime
from ..runtime.topology import Handle
from ..streaming.contract import LlmAdapter
from .kinds import find_kind, known_kinds
from .values import LlmConfig, ProviderConfig

SETTINGS_NAMESPACE = "trio_llm"
"""The namespace of the directory's entries."""


@attrs.define(eq=False)
class _Served:
    """A provider that is configured. Its adapter reads ``config`` anew for each call."""

    config: ProviderConfig
    adapter: LlmAdapter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.adapter = find_kind(self.config.kind).make_adapter(lambda: self.config.settings)


@attrs.frozen
class _Shown:
    """What others are told of a route when it is registered."""

    display_name: str
    retry_policy: RetryPolicy
    models: tuple[ModelInfo, ...]


class ConfiguredProviders(Handle):
    """The routes of one configuration; leaving its context withdraws them.

    Calls in flight go on as they began, whatever happens to their route.

    Attributes:
        config: what is in force.
    """

    def __init__(self, runtime: LlmRuntime, config: LlmConfig) -> None:
        super().__init__(self._withdraw)
        self.config = LlmConfig()
        self._runtime = runtime
        self._served: dict[str, _Served] = {}
        self._shown: dict[str, _Shown] = {}
        self._registrations: dict[str, AdapterRegistration] = {}
        self._directory: DirectoryRegistration | None = None
        self._listed: list[ConfigurableProvider] = []
        self._closed = False
        self.replace(config)

    def replace(self, config: LlmConfig) -> None:
        """Put another configuration in the place of the present one, as a whole or not at all.

        A provider that did not change is left alone. One whose settings changed keeps its adapter, which
        uses them from the next call on; where its name, its models or its retry policy changed with them,
        its route is replaced in one topology event. One of another kind gets another adapter. One that is
        gone is withdrawn. Synchronous.

        Raises:
            LlmError: REGISTRATION_DISPOSED after close; INVALID_CONFIG, an unknown kind, settings of
                another kind's class, or what the kind's adapter says of them; DUPLICATE_ADAPTER, a name
                is registered by somebody else; INVALID_ADAPTER, INVALID_CATALOG. Then nothing has changed.
        """
        if self._closed:
            raise LlmError("the configuration was withdrawn", codes.REGISTRATION_DISPOSED)
        others = {info.id for info in self._runtime.list_providers()} - set(self._served)
        for provider in config.providers:
            _check_class(provider)
            if provider.name in others:
                raise LlmError(f"{provider.name!r} is already registered", codes.DUPLICATE_ADAPTER)
        before = {name: served.config for name, served in self._served.items()}
        served = {provider.name: self._serve(provider) for provider in config.providers}
        try:
            for provider in config.providers:
                served[provider.name].config = provider
            shown = _rehearse(served)
        except BaseException:
            for name, present in self._served.items():
                present.config = before[name]
            raise
        self._commit(config, served, shown)

    def _serve(self, provider: ProviderConfig) -> _Served:
        """What serves a provider at present, else something new."""
        present = self._served.get(provider.name)
        return present if present and present.config.kind == provider.kind else _Served(provider)

    def _commit(self, config: LlmConfig, served: dict[str, _Served], shown: dict[str, _Shown]) -> None:
        before, self._served = self._served, served
        shown_before, self._shown = self._shown, shown
        self.config = config
        for name, present in served.items():
            registration = self._registrations.get(name)
            if registration is None:
                self._registrations[name] = self._runtime.register_adapter(name, present.adapter)
            elif present is not before[name] or shown[name] != shown_before[name]:
                registration.replace(name, present.adapter)
        for name in before:
            if name not in served:
                self._registrations.pop(name).close()
        self._list()

    def _list(self) -> None:
        """Bring the directory up to date; what another directory lists is left to that."""
        own = {entry.provider for entry in self._listed}
        taken = {entry.provider for entry in self._runtime.list_configurable_providers()} - own
        entries = [entry for entry in _entries(self._shown) if entry.provider not in taken]
        if self._directory is None and entries:
            self._directory = self._runtime.register_configurable_providers(entries)
            self._listed = entries
        elif self._directory is not None and set(entries) != set(self._listed):
            self._directory.replace(entries)
            self._listed = entries

    def _withdraw(self) -> None:
        self._closed = True
        for registration in self._registrations.values():
            registration.close()
        if self._directory is not None:
            self._directory.close()


def apply_config(runtime: LlmRuntime, config: LlmConfig) -> ConfiguredProviders:
    """Register a configuration's providers with a runtime, and list them and the kinds there are.

    ``with apply_config(runtime, load_config("llm.toml")) as providers: ...``, and later
    ``providers.replace(load_config("llm.toml"))``.

    Raises:
        LlmError: as :meth:`ConfiguredProviders.replace`.
    """
    return ConfiguredProviders(runtime, config)


def _check_class(provider: ProviderConfig) -> None:
    try:
        expected = find_kind(provider.kind).config_class()
    except LlmError as error:
        raise LlmError(
            f"the kind {provider.kind!r} of provider {provider.name!r}: {error.failure.message}",
            codes.INVALID_CONFIG,
        ) from error
    if not isinstance(provider.settings, expected):
        raise LlmError(
            f"provider {provider.name!r} of kind {provider.kind!r} is configured by a {expected.__name__}, "
            f"not a {type(provider.settings).__name__}",
            codes.INVALID_CONFIG,
        )


def _rehearse(served: dict[str, _Served]) -> dict[str, _Shown]:
    """Register everything with a runtime that nobody opens, to learn whether it can be and what it shows."""
    stage = LlmRuntime()
    for name, present in served.items():
        stage.register_adapter(name, present.adapter)
    return {
        info.id: _Shown(info.name, stage.provider_retry_policy(info.id), stage.list_models(info.id))
        for info in stage.list_providers()
    }


def _entries(configured: Mapping[str, _Shown]) -> list[ConfigurableProvider]:
    """What is configured, then the kinds of one provider that could be."""
    shipped = {
        name: kind.display_name for name, kind in known_kinds().items() if kind.display_name is not None
    }
    names = {name: shown.display_name for name, shown in configured.items()}
    names |= {name: display for name, display in shipped.items() if name not in names}
    return [
        ConfigurableProvider(
            name, display, SETTINGS_NAMESPACE, ("providers", name), declared=name not in shipped
        )
        for name, display in names.items()
    ]
