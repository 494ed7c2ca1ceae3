"""The configuration file that a command is given; none is hunted for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from ..config import LlmConfig, ProviderConfig, apply_config, known_kinds, load_config, read_config
from ..config.suggest import suggestion
from ..model.failures import LlmError
from ..providers.deepseek import DeepSeekConfig
from ..providers.openai_chat.profiles import PROFILES
from ..runtime.runtime import LlmRuntime
from .main import FAILED
from .route import PROVIDER
from .screen import CONFIGURED_ADVICE, failure_text

_NEED_A_FILE = ("openai-chat", "pydantic-ai")  # they say a wire, but not whom to ask

config_option = click.option(
    "--config",
    "config_path",
    envvar="TRIO_LLM_CONFIG",
    show_envvar=True,
    type=click.Path(),
    metavar="FILE",
    help="A TOML file of providers.",
)


def configured(path: str) -> LlmConfig:
    """The providers of a file. A faulty one ends the process, and every fault is told."""
    with failures_told():
        return load_config(path)


def known_providers(path: str | None) -> LlmConfig:
    """The providers of a file; without one, the provider that needs no configuration."""
    if path is None:
        return LlmConfig([ProviderConfig(PROVIDER, "deepseek", DeepSeekConfig())])
    return configured(path)


def named_provider(name: str, base_url: str | None) -> LlmConfig:
    """A provider that needs no file: by the name of its wire, or of a server that speaks chat completions.

    Its key comes from the environment variable that is usual for it.

    Args:
        base_url: another endpoint that speaks the same wire.

    Raises:
        click.UsageError: there is none of that name.
    """
    wires = [kind for kind in known_kinds() if kind not in _NEED_A_FILE]
    names = [*wires, *(profile for profile in PROFILES if profile not in wires)]
    if name not in names:
        raise click.UsageError(
            f"There is no provider {name!r}{suggestion(name, names)}; "
            f"without a file there are: {', '.join(names)}."
        )
    table = {"kind": name} if name in wires else {"kind": "openai-chat", "profile": name}
    if base_url is not None:
        table["base_url"] = base_url
    with failures_told():
        return read_config({"providers": {name: table}}, f"--provider {name}")


def choose(config: LlmConfig, name: str | None) -> ProviderConfig:
    """The provider of that name; without a name, the only one.

    Raises:
        click.UsageError: there is none, or it is not clear which.
    """
    names = [provider.name for provider in config.providers]
    if name is None and len(names) == 1:
        (name,) = names
    for provider in config.providers:
        if provider.name == name:
            return provider
    known = ", ".join(names) or "none"
    raise click.UsageError(
        f"Name one of the configured providers: {known}."
        if name is None
        else f"There is no provider {name!r}; configured: {known}."
    )


def first_model(config: LlmConfig) -> str:
    """The first model that the only provider lists.

    Raises:
        click.UsageError: it lists none.
    """
    runtime = LlmRuntime()
    name = config.providers[0].name
    with failures_told(), apply_config(runtime, config):
        for model in runtime.list_models(name):
            return model.id
    raise click.UsageError(
        f"The provider lists no models; name one with --model. `trio-llm models {name}` asks it what it has."
    )


@contextmanager
def failures_told() -> Iterator[None]:
    """An LlmError ends the process, with its text on standard error."""
    try:
        yield
    except LlmError as error:
        _fail(error)


def _fail(error: LlmError) -> NoReturn:
    click.echo(failure_text(error.failure, CONFIGURED_ADVICE), err=True)
    raise SystemExit(FAILED)
