"""``python -m benchmarks.soak``: run the soak, print its figures, fail if anything piles up."""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import attrs
import trio
from trio._core._run import GLOBAL_RUN_CONTEXT

from tests.sweeps.shapes import SCHEMES, SHAPES
from trio_llm.model.chunks import StreamChunk
from trio_llm.model.policy import NormalRetry
from trio_llm.model.requests import GenerateOptions
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.lanes import Next
from trio_llm.transport.transport import TrioTransport

from ..endpoint import PROJECT
from .streams import Soaked

ROUNDS = 20
"""After each of them everything is closed and counted."""

WARM_UP = 5
"""So many rounds are not compared: caches fill, the allocator finds its size."""

MEMORY_LIMIT = 6.0
"""How much the resident memory may grow after the warm-up, in MiB: more than an allocator's tide."""

OBJECTS_LIMIT = 100
"""How many more objects may be alive after the collector ran: a kept stream is more than that."""

QUICK = NormalRetry(3, initial_delay_ms=1, max_delay_ms=10)


@attrs.frozen
class Figures:
    """What there is between two rounds, when nothing runs."""

    memory: float
    objects: int
    descriptors: int
    tasks: int
    threads: int

    @classmethod
    def now(cls) -> Figures:
        """Count."""
        GLOBAL_RUN_CONTEXT.runner.deadlines._prune()  # trio forgets up to a thousand that are over only later
        gc.collect()
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[1])
        return cls(
            memory=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            objects=len(gc.get_objects()),
            descriptors=len(os.listdir("/proc/self/fd")),
            tasks=trio.lowlevel.current_statistics().tasks_living,
            threads=len(os.listdir("/proc/self/task")),
        )

    def __str__(self) -> str:
        return (
            f"{self.memory:7.1f} MiB {self.objects:8d} objects {self.descriptors:4d} descriptors "
            f"{self.tasks:3d} tasks {self.threads:3d} threads"
        )

    def piled_up_since(self, before: Figures) -> list[str]:
        """What there is too much of."""
        limits: dict[str, float] = {
            "memory": MEMORY_LIMIT, "objects": OBJECTS_LIMIT, "descriptors": 0, "tasks": 0, "threads": 0
        }  # fmt: skip
        return [name for name, limit in limits.items() if getattr(self, name) - getattr(before, name) > limit]


async def pass_through(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
    """A layer that does nothing."""
    async for chunk in next(options):
        yield chunk


async def run_round(
    streams: int, at_once: int, where: dict[str, Any], tls: ssl.SSLContext, chance: random.Random
) -> Counter[str]:
    """Run so many streams in a runtime of their own, and leave it; returns how they ended."""
    ends: Counter[str] = Counter()
    transports = []
    async with LlmRuntime() as runtime:
        for shape in SHAPES:
            for scheme in SCHEMES:
                transport = TrioTransport(
                    ssl_context=tls, max_connections=chance.choice((None, at_once // 2))
                )
                transports.append(transport)
                adapter = shape.adapter(f"{where[scheme]}/{shape.name}", transport)
                adapter.provider_retry_policy = lambda provider: QUICK  # type: ignore[method-assign]
                runtime.register_adapter([f"{shape.name}-{scheme}"], adapter)
        for _ in range(chance.choice((0, 2))):
            runtime.use(pass_through)
        soaked = Soaked(runtime, chance, ends)
        left = streams

        async def one_after_another() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await soaked.stream()

        async with trio.open_nursery() as nursery:
            for _ in range(at_once):
                nursery.start_soon(one_after_another)
        for transport in transports:
            assert transport.open_connections == transport.idle_connections, "a slot is lost"
    assert not any(transport.open_connections for transport in transports)
    return ends


async def soak(arguments: argparse.Namespace, where: dict[str, Any]) -> list[str]:
    """Run every round; returns what piled up."""
    tls = ssl.create_default_context(cadata=where["authority"])
    chance = random.Random(arguments.seed)
    ends: Counter[str] = Counter()
    history: list[Figures] = [Figures.now()]
    print(f"{'':>14}{history[0]}", flush=True)
    for number in range(1, ROUNDS + 1):
        began = time.monotonic()
        ends += await run_round(arguments.streams // ROUNDS, arguments.at_once, where, tls, chance)
        history.append(Figures.now())
        seconds = time.monotonic() - began
        print(f"{number:3d} {seconds:7.1f} s {history[-1]}", flush=True)
    for end, count in ends.most_common():
        print(f"{count:8d} {end}")
    return history[-1].piled_up_since(history[WARM_UP])


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--streams", type=int, default=60_000, help="how many; default: %(default)s")
    parser.add_argument("--short", dest="streams", action="store_const", const=2000, help="2,000 streams")
    parser.add_argument("--at-once", type=int, default=40, help="how many at a time; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.soak.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            piled_up = trio.run(soak, arguments, json.loads(server.stdout.readline()))
        finally:
            server.stdin.close()
    if piled_up:
        sys.exit(f"piled up: {', '.join(piled_up)}")
    print("nothing piled up")


if __name__ == "__main__":
    main()
