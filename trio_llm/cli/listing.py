"""``trio-llm providers`` and ``trio-llm models``: what there is to talk to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click
import trio
from rich.console import Console
from rich.table import Table

from ..config import LlmConfig, ProviderConfig, apply_config
from ..config.kinds import find_kind
from ..model.catalogue import ModelContext, ModelDiscoveryRequest, ResolvedModelInfo
from ..protocol.codec import encode
from ..runtime.runtime import LlmRuntime
from ..transport.credentials import EnvironmentVariable
from ..transport.urls import redact_url
from .configured import choose, config_option, failures_told, known_providers, named_provider

json_option = click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each.")


@click.command("providers")
@config_option
@json_option
def providers_command(config_path: str | None, as_json: bool) -> None:
    """List the providers that are configured."""
    config = known_providers(config_path)
    with failures_told():
        rows = _providers(config)
    if as_json:
        for row in rows:
            click.echo(json.dumps({key: value for key, value in row.items() if value is not None}))
    else:
        cells = [[value or "default" for value in row.values()] for row in rows]
        _print(("provider", "name", "kind", "base URL", "key from"), cells)


@click.command("models")
@click.argument("provider", required=False)
@config_option
@json_option
def models_command(provider: str | None, config_path: str | None, as_json: bool) -> None:
    """List the models of PROVIDER, or of all, that this program knows of; --model takes others too.

    Without a file, PROVIDER is what `chat --provider` takes. One that lists no models is asked for them.
    """
    if provider is not None and config_path is None:
        config = named_provider(provider, None)
    else:
        config = known_providers(config_path)
        if provider is not None:
            config = LlmConfig([choose(config, provider)])
    with failures_told():
        models = trio.run(_models, config)
        if not models and provider is not None:
            models = trio.run(_asked, config.providers[0])
    if as_json:
        for info in models:
            click.echo(encode(info))
    else:
        several = len(config.providers) > 1
        heads = ("model", "name", "context window", "efforts (* default)")
        _print(
            ("provider", *heads) if several else heads,
            [(info.provider, *_cells(info)) if several else _cells(info) for info in models],
        )


def _providers(config: LlmConfig) -> list[dict[str, str | None]]:
    runtime = LlmRuntime()
    with apply_config(runtime, config):
        names = {info.id: info.name for info in runtime.list_providers()}
    return [
        {
            "provider": provider.name,
            "name": names[provider.name],
            "kind": provider.kind,
            "baseUrl": _base_url(provider.settings),
            "keyVariable": _key_variable(provider.settings),
        }
        for provider in config.providers
    ]


def _base_url(settings: Any) -> str | None:
    own = getattr(settings, "base_url", None)
    url = own or getattr(getattr(settings, "profile", None), "base_url", None)
    return None if url is None else redact_url(url)


def _key_variable(settings: Any) -> str | None:
    credential = getattr(settings, "api_key", None)
    if isinstance(credential, EnvironmentVariable):
        return credential.name
    return getattr(getattr(settings, "profile", None), "key_variable", None)


async def _models(config: LlmConfig) -> list[ResolvedModelInfo]:
    async with LlmRuntime() as runtime:
        with apply_config(runtime, config):
            return [
                await runtime.resolve_model_info(provider.id, model.id)
                for provider in runtime.list_providers()
                for model in runtime.list_models(provider.id)
            ]


async def _asked(provider: ProviderConfig) -> list[ResolvedModelInfo]:
    """What the provider's endpoint says it has; nothing, where its kind cannot ask."""
    adapter = find_kind(provider.kind).make_adapter(lambda: provider.settings)
    discover = getattr(adapter, "discover", None)
    if discover is None:
        return []
    async with LlmRuntime() as runtime, adapter:
        runtime.register_model_discovery(provider.kind, discover)
        found = await runtime.discover_models(provider.kind, ModelDiscoveryRequest(provider.name))
    return [
        ResolvedModelInfo(
            provider.name,
            model.id,
            model.name or model.id,
            context=None if model.context_window is None else ModelContext(model.context_window),
        )
        for model in found
    ]


def _cells(info: ResolvedModelInfo) -> tuple[str, ...]:
    reasoning = info.reasoning
    efforts = () if reasoning is None else reasoning.efforts
    default = None if reasoning is None else reasoning.default_effort
    return (
        info.id,
        info.name,
        "unknown" if info.context is None else f"{info.context.context_window:,}",
        ", ".join(effort.id + "*" * (effort.id == default) for effort in efforts),
    )


def _print(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, no_wrap=head != heads[-1])
    for row in rows:
        table.add_row(*row)
    # A narrow terminal breaks the lines; to cut them would make ids useless, in a pipe above all.
    Console(markup=False, highlight=False, emoji=False, width=10_000).print(table)
