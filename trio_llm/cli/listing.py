"""``trio-llm providers`` and ``trio-llm models``: what there is to talk to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click
import trio
from rich.console import Console
from rich.table import Table

from ..config import LlmConfig, apply_config
from ..model.catalogue import ResolvedModelInfo
from ..protocol.codec import encode
from ..runtime.runtime import LlmRuntime
from ..transport.credentials import EnvironmentVariable
from ..transport.urls import redact_url
from .configured import choose, config_option, failures_told, known_providers

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
    """List the models of PROVIDER, or of all, that this program knows of; --model takes others too."""
    config = known_providers(config_path)
    if provider is not None:
        config = LlmConfig([choose(config, provider)])
    with failures_told():
        models = trio.run(_models, config)
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
    return credential.name if isinstance(credential, EnvironmentVariable) else None


async def _models(config: LlmConfig) -> list[ResolvedModelInfo]:
    async with LlmRuntime() as runtime:
        with apply_config(runtime, config):
            return [
                await runtime.resolve_model_info(provider.id, model.id)
                for provider in runtime.list_providers()
                for model in runtime.list_models(provider.id)
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
    Console(markup=False, highlight=False, emoji=False).print(table)
