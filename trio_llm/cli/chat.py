"""``trio-llm chat``: one answer, or a conversation."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import attrs
import click
import trio

from ..config import LlmConfig
from ..model.chunks import Aborted, Error
from ..model.messages import Message, ModelSource, create_assistant_message, create_user_message
from ..model.requests import GenerateOptions
from ..runtime.runtime import LlmRuntime
from ..streaming.stream import ChunkStream
from .main import FAILED, INTERRUPTED
from .route import open_route
from .screen import Screen


class Chat:
    """A conversation on one runtime.

    Args:
        options: what every request has; its messages are put in here.
    """

    def __init__(self, runtime: LlmRuntime, options: GenerateOptions, screen: Screen) -> None:
        self._runtime = runtime
        self._options = options
        self._screen = screen
        self._history: list[Message] = []
        self._stream: ChunkStream | None = None

    def interrupt(self) -> bool:
        """End the answer that is being given; False if none is, or if that was asked for already."""
        stream, self._stream = self._stream, None
        if stream is None:
            return False
        stream.abort("stopped by Ctrl-C")
        return True

    async def ask(self, prompt: str) -> int:
        """Show the answer to a prompt; gives the exit status it stands for.

        An answer that was stopped stays in the conversation as far as it came; one that failed leaves
        the conversation as it was.
        """
        asked = [*self._history, create_user_message(prompt)]
        async with self._runtime.stream(attrs.evolve(self._options, messages=asked)) as stream:
            self._stream = stream
            try:
                async for chunk in stream:
                    self._screen.chunk(chunk)
            finally:
                self._stream = None
        finish = stream.finish
        assert finish is not None  # the stream has been left
        self._screen.end(finish, stream.usage, stream.settlements)
        answer = stream.message
        if answer is None and stream.partial and isinstance(finish, Aborted):
            source = ModelSource(self._options.provider, self._options.model)
            answer = create_assistant_message(stream.partial, source)
        if answer is not None:
            self._history = [*asked, answer]
        if isinstance(finish, Aborted):
            return INTERRUPTED
        return FAILED if isinstance(finish, Error) else 0


async def chat(
    options: GenerateOptions,
    prompt: str | None,
    screen: Screen,
    base_url: str | None,
    config: LlmConfig | None = None,
) -> int:
    """Answer one prompt, or, without one, what is typed line by line. Gives the exit status.

    Ctrl-C ends the answer; when none is being given, or a second time, it ends the program.

    Raises:
        LlmError: as :func:`open_route`.
    """
    status = INTERRUPTED  # where the program is ended from outside the conversation
    with trio.open_signal_receiver(signal.SIGINT) as interrupts:
        async with AsyncExitStack() as stack:
            route = await open_route(stack, base_url, config)
            conversation = Chat(route.runtime, options, screen)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, interrupts, conversation, nursery.cancel_scope)
                try:
                    if route.notice is not None:
                        screen.notice(route.notice)
                    if prompt is not None:
                        status = await conversation.ask(prompt)
                    else:
                        screen.notice("Ctrl-C stops an answer; Ctrl-D leaves.")
                        await _converse(conversation, screen)
                        status = 0
                except OSError as error:  # of the user's streams; a provider's is a finish
                    status = FAILED
                    if not isinstance(error, BrokenPipeError):  # else nobody reads any more
                        click.echo(f"The conversation cannot go on: {error.strerror}", err=True)
                nursery.cancel_scope.cancel()
    return status


async def _watch(interrupts: AsyncIterator[int], conversation: Chat, program: trio.CancelScope) -> None:
    async for _ in interrupts:
        if not conversation.interrupt():
            program.cancel()


async def _converse(conversation: Chat, screen: Screen) -> None:
    """Answer line after line until the input ends."""
    while True:
        screen.ask()
        line = await _read_line()
        if not line:
            return
        if line.strip():
            await conversation.ask(line.strip())


async def _read_line() -> str:
    """A line of the terminal; empty at its end. Cancellable, and no thread is left behind reading."""
    if sys.platform == "win32":
        return await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    stdin = sys.stdin.fileno()
    await trio.lowlevel.wait_readable(stdin)
    return os.read(stdin, 65536).decode(errors="replace")  # a terminal gives one line at a time
