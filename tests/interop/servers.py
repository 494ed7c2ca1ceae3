"""Servers of others as processes on this machine, for as long as a test module runs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_SECONDS = 30.0


def script(name: str) -> str | None:
    """The command of that name that is installed beside this Python."""
    path = Path(sys.executable).with_name(name)
    return str(path) if path.exists() else None


@contextmanager
def serving(command: Callable[[int], Sequence[str]], log: Path, cwd: Path) -> Iterator[tuple[str, int]]:
    """Run a server on a free port of 127.0.0.1 until the end of the block; gives its base URL and process id.

    Args:
        command: for a port.
        log: where its output goes.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("wb") as out, subprocess.Popen(command(port), stdout=out, stderr=out, cwd=cwd) as process:
        try:
            _wait(port, process, log)
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.kill()


@contextmanager
def aimock(folder: Path, node: str, cli: Path, fixtures: Sequence[Any], *flags: str) -> Iterator[str]:
    """Run aimock with these fixtures, strictly; gives its base URL."""
    file = folder / "fixtures.json"
    file.write_text(json.dumps({"fixtures": fixtures}))

    def command(port: int) -> list[str]:
        return [node, str(cli), "--port", str(port), "--fixtures", str(file), "--strict", *flags]

    with serving(command, folder / "log", folder) as (base_url, _):
        yield base_url


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the server does not come up:\n{log.read_text()}")
