"""The commands of ``trio-llm`` and their options."""

from __future__ import annotations

import sys

import click
import trio
from click.core import ParameterSource

from ..config import LlmConfig
from ..model.failures import LlmError
from ..model.identifiers import ReasoningEffortId
from ..model.requests import GenerateOptions
from ..providers.deepseek import DEEPSEEK
from .chat import chat
from .configured import choose, config_option, configured, first_model, named_provider
from .listing import models_command, providers_command
from .main import FAILED
from .route import KEY_VARIABLE, PROVIDER
from .screen import ADVICE, CONFIGURED_ADVICE, JsonScreen, TextScreen, failure_text

DEFAULT_MODEL = DEEPSEEK.models[0].id


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trio-llm")
def trio_llm() -> None:
    """Talk to a language model, and watch its answer arrive."""


@trio_llm.command(
    "chat",
    epilog=f"The key is taken from the usual environment variable, such as {KEY_VARIABLE}. "
    "Without a key for DeepSeek a built-in demo answers. "
    "The exit status is 0 after an answer, 1 after a failure, 2 for wrong use and 130 after Ctrl-C.",
)
@click.argument("prompt", required=False)
@config_option
@click.option(
    "--provider",
    metavar="NAME",
    help="A configured provider, or without a file: anthropic, gemini, groq, ollama, openai, ...",
)
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="The provider's id of the model.")
@click.option("--effort", metavar="ID", help="How hard the model thinks: low, high, max or off.")
@click.option("--system", metavar="TEXT", help="A system prompt.")
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="The most tokens of an answer.")
@click.option("--base-url", metavar="URL", help="Another endpoint that speaks the same wire.")
@click.option("--json", "as_json", is_flag=True, help="Print every chunk as a line of JSON.")
@click.pass_context
def chat_command(
    context: click.Context,
    prompt: str | None,
    config_path: str | None,
    provider: str | None,
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
    if prompt is None and not (sys.stdin and sys.stdin.isatty()):  # it is None where it was closed
        prompt = sys.stdin.read() if sys.stdin else ""
    if prompt is not None and not prompt.strip():
        raise click.UsageError(
            "The prompt is empty. Give it as an argument or on standard input; "
            "at a terminal, leave it out to hold a conversation."
        )
    if not model:
        raise click.UsageError("The model's id is empty.")
    config, route, advice = None, PROVIDER, ADVICE
    if config_path is not None:
        if base_url is not None:
            raise click.UsageError("--base-url and a configuration file say two things; use one of them.")
        chosen = choose(configured(config_path), provider)
        config, route, advice = LlmConfig([chosen]), chosen.name, CONFIGURED_ADVICE
    elif provider is not None:
        config, route, advice = named_provider(provider, base_url), provider, CONFIGURED_ADVICE
        base_url = None
    if config is not None and context.get_parameter_source("model") is ParameterSource.DEFAULT:
        model = first_model(config)
    options = GenerateOptions(
        provider=route,
        model=model,
        messages=(),
        reasoning_effort=None if effort is None else ReasoningEffortId(effort),
        system=system,
        max_tokens=max_tokens,
    )
    screen = JsonScreen() if as_json else TextScreen(advice)
    try:
        status = trio.run(chat, options, prompt, screen, base_url, config)
    except LlmError as error:
        click.echo(failure_text(error.failure, advice), err=True)
        status = FAILED
    sys.exit(status)


trio_llm.add_command(providers_command)
trio_llm.add_command(models_command)
