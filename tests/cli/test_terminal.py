"""A conversation at a terminal: a pseudo-terminal, with its keys."""

import os
import pty
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import attrs
import trio

from .process import PATIENCE, command, environment

CTRL_C = b"\x03"
CTRL_D = b"\x04"


@attrs.define
class Terminal:
    """A process whose three streams are one terminal."""

    process: trio.Process
    master: int
    shown: str = ""

    async def wait_for(self, text: str) -> None:
        """Read until some text is on the screen; forgets what was before it."""
        while text not in self.shown:
            await trio.lowlevel.wait_readable(self.master)
            self.shown += os.read(self.master, 65536).decode()
        self.shown = self.shown.partition(text)[2]

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)


@contextmanager
def open_terminal() -> Iterator[tuple[int, int]]:
    master, slave = pty.openpty()
    try:
        yield master, slave
    finally:
        os.close(master)


@asynccontextmanager
async def conversation(**variables: str) -> AsyncIterator[Terminal]:
    """``trio-llm chat`` at a terminal that is its controlling one, so that Ctrl-C is a key."""
    # Between fork and exec no code of this process may run, so the new process does it for itself.
    become = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    with open_terminal() as (master, slave), trio.fail_after(PATIENCE):
        try:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-c", become, *command("chat")],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                env=environment(**variables),
            )
        finally:
            os.close(slave)
        try:
            yield Terminal(process, master)
        finally:
            process.kill()
            with trio.CancelScope(shield=True), trio.move_on_after(5):
                await process.wait()


async def test_ctrl_c_ends_the_answer_and_not_the_program() -> None:
    async with conversation() as terminal:
        await terminal.wait_for("Ctrl-C stops an answer; Ctrl-D leaves.")
        await terminal.wait_for("> ")
        terminal.press(b"count to 5000\n")
        await terminal.wait_for(" 9 10 11 12 ")
        terminal.press(CTRL_C)
        await terminal.wait_for("ABORTED: stopped by Ctrl-C")
        await terminal.wait_for("usage not reported")
        await terminal.wait_for("> ")
        terminal.press(b"\ncount to 3\n")
        await terminal.wait_for("1 2 3\r\n")
        await terminal.wait_for("stop")
        await terminal.wait_for("> ")
        terminal.press(CTRL_D)
        assert await terminal.process.wait() == 0


async def test_ctrl_c_at_the_prompt_ends_the_program() -> None:
    async with conversation() as terminal:
        await terminal.wait_for("> ")
        terminal.press(CTRL_C)
        assert await terminal.process.wait() == 130


async def test_thinking_is_dimmed_where_there_are_colours() -> None:
    async with conversation(TERM="xterm-256color") as terminal:
        await terminal.wait_for("> ")
        terminal.press(b"count to 1\n")
        await terminal.wait_for("\x1b[2;3mThere ")
        terminal.press(CTRL_D)
