"""Running the command line: as a process of its own, or in this one where no other can matter."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import attrs
import trio
from click.testing import CliRunner

from trio_llm.cli.commands import trio_llm

KEY = "sk-secret-key"
PATIENCE = 60
"""Seconds of real time after which a test that waits for a process gives up."""


def environment(**variables: str) -> dict[str, str]:
    """The environment of a newcomer: no key, no proxy, no colours."""
    dropped = ("_PROXY", "DEEPSEEK_", "TRIO_LLM_", "COLOR", "COLUMNS", "LINES", "TERM")
    kept = {
        name: value for name, value in os.environ.items() if not any(part in name.upper() for part in dropped)
    }
    return {**kept, "TERM": "dumb", "PYTHONDEVMODE": "1", "PYTHONWARNINGS": "error", **variables}


@attrs.frozen
class Result:
    """What a process that has ended left behind."""

    status: int
    out: str
    err: str


def run_here(*arguments: str, **variables: str | None) -> Result:
    """Run ``trio-llm`` in this process; not from inside Trio. A variable that is None is not set."""
    unset = dict.fromkeys(name for name in os.environ if name.upper().endswith("_PROXY"))
    newcomer = {"DEEPSEEK_API_KEY": None, "TRIO_LLM_CONFIG": None, **unset}
    result = CliRunner().invoke(trio_llm, arguments, env={**newcomer, **variables})
    return Result(result.exit_code, result.stdout, result.stderr)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trio_llm", *arguments]


async def run(*arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Result:
    """Run ``trio-llm`` to its end."""
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            command(*arguments),
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=environment() if env is None else env,
        )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@attrs.define
class Running:
    """A process at work."""

    process: trio.Process
    out: str = ""
    err: str = ""

    async def read_until(self, text: str) -> None:
        """Read standard output until some text was in it."""
        assert self.process.stdout is not None
        while text not in self.out:
            data = await self.process.stdout.receive_some()
            assert data, f"the output ended without {text!r}: {self.out!r}"
            self.out += data.decode()

    async def finish(self) -> Result:
        """Read what is left and wait for the end."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.out += b"".join([bytes(data) async for data in self.process.stdout]).decode()
        self.err += b"".join([bytes(data) async for data in self.process.stderr]).decode()
        return Result(await self.process.wait(), self.out, self.err)


@asynccontextmanager
async def started(*arguments: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Running]:
    """``trio-llm`` while it runs; killed on leaving if it still does."""
    process = await trio.lowlevel.open_process(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment() if env is None else env,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with trio.fail_after(PATIENCE):
            yield Running(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True), trio.move_on_after(5):
            await process.wait()
        await trio.aclose_forcefully(process.stdout)
        await trio.aclose_forcefully(process.stderr)
