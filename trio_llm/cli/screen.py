"""What the user sees: the answer on standard output, everything about it on standard error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import click
from rich.console import Console

from ..model import codes
from ..model.chunks import (
    Aborted,
    BlockEnd,
    Error,
    FinishReason,
    ReasoningDelta,
    StreamChunk,
    TextDelta,
    TokenUsage,
)
from ..model.content import ToolCallBlock
from ..model.failures import LlmFailure
from ..protocol.codec import encode
from ..streaming.settlement import Settlement
from .route import KEY_VARIABLE

# But for tab and line feed: control characters, what turns the direction of text, surrogates.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text without what a terminal would obey or could not encode; a model's words are not trusted."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the caller know; rich would end the process."""
        raise  # called while the BrokenPipeError is handled


def _console() -> _Console:
    return _Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


class Screen(Protocol):
    """Shows one conversation. Every method may raise BrokenPipeError, when nobody reads any more."""

    def notice(self, text: str) -> None:
        """Something the user must know."""

    def ask(self) -> None:
        """The user may write now."""

    def chunk(self, chunk: StreamChunk) -> None:
        """One chunk of an answer, as it arrives."""

    def end(self, finish: FinishReason, usage: TokenUsage | None, settlements: Iterable[Settlement]) -> None:
        """An answer is over."""


class JsonScreen:
    """Chunks as JSON lines on standard output, and nothing else there."""

    def __init__(self) -> None:
        self._errors = _console()

    def notice(self, text: str) -> None:
        self._errors.print(text, style="yellow")

    def ask(self) -> None:
        """Whoever writes here is a program."""

    def chunk(self, chunk: StreamChunk) -> None:
        click.echo(encode(chunk))

    def end(self, finish: FinishReason, usage: TokenUsage | None, settlements: Iterable[Settlement]) -> None:
        """The chunks have said it."""


class TextScreen:
    """Text as it arrives; reasoning dimmed; then what the answer cost and why it ended.

    Args:
        advice: by code, what can be done about a failure.
    """

    def __init__(self, advice: Mapping[str, str]) -> None:
        self._advice = advice
        self._about = _console()
        self._open: Callable[[str], None] | None = None  # whose line is not ended yet

    def notice(self, text: str) -> None:
        self._line()
        self._about.print(text, style="yellow")

    def ask(self) -> None:
        self._line()
        self._about.print("> ", end="", style="bold")

    def chunk(self, chunk: StreamChunk) -> None:
        match chunk:
            case TextDelta(text=text):
                self._write(self._answer, text)
            case ReasoningDelta(text=text):
                self._write(self._thought, text)
            case BlockEnd(block=ToolCallBlock(name=name, arguments=arguments)):
                self._line()
                self._about.print(f"tool call: {printable(name)}({printable(arguments)})", style="cyan")
            case _:  # the end of a block, and what `end` shows
                pass

    def end(self, finish: FinishReason, usage: TokenUsage | None, settlements: Iterable[Settlement]) -> None:
        self._line()
        settled = tuple(settlements)
        seconds = sum(settlement.ended for settlement in settled)
        facts = [_tokens(usage), f"{seconds:.1f} s"]
        match finish:
            case Aborted(failure=failure):
                received = sum(settlement.bytes_received for settlement in settled)
                facts.append(f"{received:,} bytes received")
                closed = [s.abort_to_closed for s in settled if s.abort_to_closed is not None]
                if closed:
                    facts.append(f"connection closed after {max(closed) * 1000:.1f} ms")
                self._about.print(printable(f"{failure.code}: {failure.message}"), style="bold yellow")
                self._about.print(" · ".join(facts), style="dim")
            case Error(failure=failure):
                self._about.print(failure_text(failure, self._advice), style="bold red")
                if usage is not None:
                    self._about.print(" · ".join(facts), style="dim")
            case _:
                raw = "" if finish.raw in (None, finish.kind) else f" ({printable(finish.raw)})"
                self._about.print(" · ".join([finish.kind + raw, *facts]), style="dim")

    def _answer(self, text: str) -> None:
        click.echo(text, nl=False)  # rich would make spaces of tabs

    def _thought(self, text: str) -> None:
        self._about.print(text, end="", style="dim italic")

    def _write(self, show: Callable[[str], None], text: str) -> None:
        if self._open not in (None, show):
            self._line()
        if text:
            show(printable(text))
            self._open = None if text.endswith("\n") else show

    def _line(self) -> None:
        if self._open is not None:
            show, self._open = self._open, None
            show("\n")


def _tokens(usage: TokenUsage | None) -> str:
    if usage is None:
        return "usage not reported"
    cached = f" (+{usage.cache_read_tokens:,} cached)" if usage.cache_read_tokens else ""
    thought = f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
    tokens = "token" if usage.input_tokens == 1 else "tokens"
    return f"{usage.input_tokens:,} {tokens} in{cached}, {usage.output_tokens:,} out{thought}"


_ALWAYS = {
    codes.QUOTA: "Top up the account, or use another key.",
    codes.UNSUPPORTED_REASONING_EFFORT: "`trio-llm models` lists each model's efforts.",
}
CONFIGURED_ADVICE = {
    **_ALWAYS,
    codes.AUTH: "Check the key: it may be mistyped, revoked, or for another endpoint.",
    codes.TRANSPORT: "Check base_url and the network; HTTP(S)_PROXY is honoured.",
}
"""What helps where a configuration file says how a provider is reached."""
ADVICE = {
    **_ALWAYS,
    codes.MISSING_CREDENTIAL: f"Put a key into {KEY_VARIABLE}. Without --base-url the demo provider answers.",
    codes.INVALID_CREDENTIAL: f"Look at what {KEY_VARIABLE} holds.",
    codes.AUTH: f"Check the key in {KEY_VARIABLE}: it may be mistyped, revoked, or for another endpoint.",
    codes.TRANSPORT: "Check --base-url and the network; HTTP(S)_PROXY is honoured.",
    codes.INVALID_BASE_URL: "--base-url is a prefix such as https://api.deepseek.com, no more.",
}
"""What helps where nothing is configured but by options."""


def failure_text(failure: LlmFailure, advice: Mapping[str, str]) -> str:
    """What went wrong, with its code and status, and what can be done about it."""
    status = "" if failure.status is None else f" (HTTP {failure.status})"
    lines = [printable(f"{failure.code}{status}: {failure.message}")]
    if failure.provider_retry_after_ms is not None:
        lines.append(f"The provider asks to wait {failure.provider_retry_after_ms / 1000:g} s.")
    if failure.code in advice:
        lines.append(advice[failure.code])
    if failure.request_id is not None:
        lines.append(f"Request id: {printable(failure.request_id)}")
    return "\n".join(lines)
