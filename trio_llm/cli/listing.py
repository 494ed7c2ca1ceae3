"""``trio-llm providers`` and ``trio-llm models``: what there is to talk to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import click
import trio
from rich.console import Console
from rich.table import Table

from ..config import LlmConfig, ProviderConfig, apply_config
from ..config.kinds import find_kind
from ..model.catalogue import DiscoveredModel, ModelContext, ModelDiscoveryRequest, ResolvedModelInfo
from ..protocol.codec import encode
from ..providers.model_data import models_dev
from ..runtime.runtime import LlmRuntime
from ..transport.credentials import EnvironmentVariable
from ..transport.urls import redact_url
from .configured import choose, config_option, failures_told, known_providers, named_provider
from .screen import printable

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
    if config_path is None:
        config = _informed(config)
    with failures_told():
        models = trio.run(_models, config)
        if not models and provider is not None:
            models = trio.run(_asked, config.providers[0])
    if as_json:
        for info in models:
            click.echo(encode(info))
    else:
        several = len(config.providers) > 1
        heads = ("model", "name", "context window", "output limit", "efforts (* default)")
        _print(
            ("provider", *heads) if several else heads,
            [(info.provider, *_cells(info)) if several else _cells(info) for info in models],
            numbers=heads[2:4],
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


def _informed(config: LlmConfig) -> LlmConfig:
    """With what the data package knows of models, where it is installed; a file says itself what it wants."""
    try:
        data = models_dev()
    except ImportError:
        return config
    return LlmConfig(
        [
            attrs.evolve(provider, settings=attrs.evolve(provider.settings, model_data=data))
            for provider in config.providers
        ]
    )


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
    async with LlmRuntime() as runtime:
        runtime.register_adapter(provider.name, adapter)
        runtime.register_model_discovery(provider.kind, discover)
        found = await runtime.discover_models(provider.kind, ModelDiscoveryRequest(provider.name))
        return [_told(await runtime.resolve_model_info(provider.name, model.id), model) for model in found]


def _told(info: ResolvedModelInfo, model: DiscoveredModel) -> ResolvedModelInfo:
    """What is known of a model, where its endpoint does not know better."""
    context = info.context if model.context_window is None else ModelContext(model.context_window)
    return attrs.evolve(
        info,
        name=model.name or info.name,
        context=context,
        max_output_tokens=model.max_tokens or info.max_output_tokens,
        input_modalities=model.input_modalities or info.input_modalities,
        reasoning=None if model.reasoning is False else info.reasoning,
    )


def _cells(info: ResolvedModelInfo) -> tuple[str, ...]:
    reasoning = info.reasoning
    efforts = () if reasoning is None else reasoning.efforts
    default = None if reasoning is None else reasoning.default_effort
    return (
        info.id,
        info.name,
        _count(None if info.context is None else info.context.context_window),
        _count(info.max_output_tokens),
        ", ".join(effort.id + "*" * (effort.id == default) for effort in efforts),
    )


def _count(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"


def _print(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = ()) -> None:
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, no_wrap=head != heads[-1], justify="right" if head in numbers else "left")
    for row in rows:
        table.add_row(*(printable(" ".join(cell.splitlines())) for cell in row))
    # A narrow terminal breaks the lines; to cut them would make ids useless, in a pipe above all.
    Console(markup=False, highlight=False, emoji=False, width=10_000).print(table)
