"""The commands of ``trio-llm`` and their options."""

from __future__ import annotations

import sys

import click
import trio
from rich.console import Console
from rich.table import Table

from ..model.catalogue import ResolvedModelInfo
from ..model.failures import LlmError
from ..model.identifiers import ReasoningEffortId
from ..model.requests import GenerateOptions
from ..providers.deepseek import DEEPSEEK, DeepSeekAdapter, DeepSeekConfig
from ..runtime.runtime import LlmRuntime
from .chat import FAILED, chat
from .route import KEY_VARIABLE, PROVIDER
from .screen import JsonScreen, TextScreen, failure_text

DEFAULT_MODEL = DEEPSEEK.models[0].id


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trio-llm")
def trio_llm() -> None:
    """Talk to a language model, and watch its answer arrive."""


@trio_llm.command("chat", epilog=f"The key is taken from {KEY_VARIABLE}. Without it a built-in demo answers.")
@click.argument("prompt", required=False)
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="The provider's id of the model.")
@click.option("--effort", metavar="ID", help="How hard the model thinks: low, high, max or off.")
@click.option("--system", metavar="TEXT", help="A system prompt.")
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="The most tokens of an answer.")
@click.option("--base-url", metavar="URL", help="Another endpoint that speaks DeepSeek's wire.")
@click.option("--json", "as_json", is_flag=True, help="Print every chunk as a line of JSON.")
def chat_command(
    prompt: str | None,
    model: str,
    effort: str | None,
    system: str | None,
    max_tokens: int | None,
    base_url: str | None,
    as_json: bool,
) -> None:
    """Answer PROMPT, or hold a conversation where there is none.

    The answer goes to standard output; thinking, costs and errors go to standard error. Without
    PROMPT, what comes through a pipe is the prompt. Ctrl-C stops the answer.
    """
    if prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.read()
    if prompt is not None and not prompt.strip():
        raise click.UsageError(
            "The prompt is empty. Give it as an argument or on standard input; "
            "at a terminal, leave it out to hold a conversation."
        )
    if not model:
        raise click.UsageError("The model's id is empty.")
    options = GenerateOptions(
        provider=PROVIDER,
        model=model,
        messages=(),
        reasoning_effort=None if effort is None else ReasoningEffortId(effort),
        system=system,
        max_tokens=max_tokens,
    )
    screen = JsonScreen() if as_json else TextScreen()
    try:
        status = trio.run(chat, options, prompt, screen, base_url)
    except LlmError as error:
        click.echo(failure_text(error.failure), err=True)
        status = FAILED
    sys.exit(status)


@trio_llm.command("models")
def models_command() -> None:
    """List the models this program knows of; --model takes others too."""
    table = Table("model", "name", "context window", "efforts (* default)", box=None, pad_edge=False)
    for info in trio.run(_models):
        reasoning = info.reasoning
        efforts = () if reasoning is None else reasoning.efforts
        default = None if reasoning is None else reasoning.default_effort
        table.add_row(
            info.id,
            info.name,
            "unknown" if info.context is None else f"{info.context.context_window:,}",
            ", ".join(effort.id + "*" * (effort.id == default) for effort in efforts),
        )
    Console().print(table)


async def _models() -> list[ResolvedModelInfo]:
    async with LlmRuntime() as runtime:
        runtime.register_adapter([PROVIDER], DeepSeekAdapter(DeepSeekConfig()))
        return [
            await runtime.resolve_model_info(PROVIDER, model.id) for model in runtime.list_models(PROVIDER)
        ]
