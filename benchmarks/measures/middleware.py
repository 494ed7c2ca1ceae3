"""What layers of middleware cost, against a bare hop through a memory channel. The library only.

An adapter in the same process stands for the network: each of its reads is one checkpoint and
gives one batch of chunks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import trio

from trio_llm import (
    BlockEnd,
    BlockStart,
    ChunkSink,
    Finish,
    GenerateOptions,
    LlmAdapter,
    LlmRuntime,
    Next,
    Stop,
    StreamChunk,
    TextBlock,
    TextDelta,
    create_user_message,
)

from ..drivers import PROMPT, Driver
from ..endpoint import Endpoint

BATCH = 8
LAYERS = 5


async def measure(driver: Driver, endpoint: Endpoint, *, reads: int, rounds: int) -> dict[str, float]:
    """CPU per read, with one chunk a read and with several, without layers and with some."""
    runs: dict[str, Callable[[], Awaitable[None]]] = {
        "reading": lambda: _read_only(reads),
        "reading_and_hop": lambda: _read_and_hop(reads),
    }
    for batch in (1, BATCH):
        for layers in (0, 1, LAYERS):
            runs[f"{layers}_layers_{batch}_a_read"] = _stream_of(reads, batch, layers)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.process_time()
            await run()
            times[name].append((time.process_time() - begin) / reads * 1e6)
    us = {name: statistics.median(values) for name, values in times.items()}
    return {
        **us,
        "hop_us": us["reading_and_hop"] - us["reading"],
        "first_layer_us": us["1_layers_1_a_read"] - us["0_layers_1_a_read"],
        "layer_per_chunk_us": (us[f"{LAYERS}_layers_{BATCH}_a_read"] - us[f"1_layers_{BATCH}_a_read"])
        / ((LAYERS - 1) * BATCH),
    }


async def _read_only(reads: int) -> None:
    for _ in range(reads):
        await trio.lowlevel.checkpoint()


async def _read_and_hop(reads: int) -> None:
    send, receive = trio.open_memory_channel[list[int]](16)

    async def produce() -> None:
        async with send:
            for number in range(reads):
                await trio.lowlevel.checkpoint()
                await send.send([number])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        async for batch in receive:
            for _ in batch:
                pass


class InProcessAdapter(LlmAdapter):
    """Sends one block of text, in equal batches."""

    def __init__(self, reads: int, batch: int) -> None:
        self._reads = reads
        self._batch = [TextDelta(0, "token")] * batch

    async def produce(self, options: GenerateOptions, sink: ChunkSink) -> None:
        await sink.send_batch([BlockStart(0, "text")])
        for _ in range(self._reads):
            await trio.lowlevel.checkpoint()
            await sink.send_batch(self._batch)
        text = "token" * (self._reads * len(self._batch))
        await sink.send_batch([BlockEnd(0, TextBlock(text)), Finish(Stop())])


async def _pass_through(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
    async for chunk in next(options):
        yield chunk


def _stream_of(reads: int, batch: int, layers: int) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        async with LlmRuntime() as runtime:
            runtime.register_adapter("bench", InProcessAdapter(reads, batch))
            for _ in range(layers):
                runtime.use(_pass_through)
            options = GenerateOptions(
                provider="bench", model="bench-1", messages=[create_user_message(PROMPT)]
            )
            count = 0
            async with runtime.stream(options) as stream:
                async for _ in stream:
                    count += 1
        if count != reads * batch + 3:
            raise RuntimeError(f"{count} chunks came of {reads * batch + 3}: {stream.finish}")

    return run
