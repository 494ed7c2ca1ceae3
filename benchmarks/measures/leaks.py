"""What a measure left behind: tasks and open files (sockets among them), counted around each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import sniffio
import trio

_NAMES = ("tasks", "sockets", "files")


def _counts() -> tuple[int, int, int]:
    if sniffio.current_async_library() == "trio":
        tasks = trio.lowlevel.current_statistics().tasks_living
    else:
        tasks = len(asyncio.all_tasks())
    targets = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            targets.append(str(link.readlink()))
        except FileNotFoundError:  # the descriptor that listed the folder
            continue
    sockets = sum(target.startswith("socket:") for target in targets)
    return tasks, sockets, len(targets) - sockets


@asynccontextmanager
async def counting_leaks(leaks: dict[str, float]) -> AsyncIterator[None]:
    """Put into ``leaks`` how many more of each there are after the body than before it.

    No garbage collection helps: what only that would close has leaked.
    """
    # A first name lookup or thread makes what then stays; let it be there before counting.
    await anyio.to_thread.run_sync(lambda: None)
    before = _counts()
    yield
    await anyio.sleep(0.02)  # asyncio closes in a later turn of its loop
    for name, old, new in zip(_NAMES, before, _counts(), strict=True):
        leaks[f"leaked_{name}"] = max(0, new - old)  # an earlier leak may have been collected
