"""A storm: random stacks of layers, random wires, random ends. Whatever happens, nothing is left."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import AsyncIterator

import attrs
import pytest
import trio
from trio.testing import MockClock

from trio_llm.model.chunks import Finish, Stop, StreamChunk
from trio_llm.model.failures import LlmError
from trio_llm.model.policy import Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.streaming.lanes import Next
from trio_llm.streaming.selection import Middleware

from .layers import (
    LayerBug,
    Step,
    Wire,
    assert_nothing_left,
    hedge,
    limit,
    logged,
    raiser,
    retry,
    server_error,
    smooth,
    swallow,
    truncate,
)
from .schedules import BodyError


@attrs.frozen(kw_only=True)
class Storm:
    """One random stack, wire and end."""

    layers: tuple[Middleware, ...]
    names: tuple[str, ...]
    semaphore: trio.Semaphore
    wire: Wire
    how: str
    at: float
    after: int
    buffer: int
    idle: float


BUGS = (LayerBug, RuntimeError, LlmError)
"""What the faulty layers bring about: their own, an ignored GeneratorExit, a chunk after the Finish."""


async def doubled(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
    """Pulls a leg, drops it in the middle, and pulls another."""
    async for _ in next(options):
        break
    async for chunk in next(options):
        yield chunk


def random_storm(seed: int) -> Storm:
    rng = random.Random(seed)
    steps = [rng.choice("xyzFEXH") for _ in range(rng.randint(1, 5))]
    playing = random.Random(seed)
    what: dict[str, str | Finish | Exception | None] = {
        "F": Finish(Stop()),
        "X": server_error(),
        "E": OSError("wire"),
        "H": None,
    }

    def script(name: str) -> list[Step]:
        shuffled = playing.sample(steps, len(steps))
        return [(playing.choice((0, 0.5, 1, 3)), what.get(kind, kind)) for kind in shuffled]

    semaphore = trio.Semaphore(1)
    pool: dict[str, Middleware] = {
        "logged": logged("L", []),
        "retry": retry,
        "hedge": hedge(rng.choice((0, 0.5, 2)), rng.choice(("ab", "abc"))),
        "smooth": smooth(0.5),
        "truncate": truncate,
        "doubled": doubled,
        "raiser": raiser if rng.random() < 0.15 else logged("R", []),
        "swallow": swallow if rng.random() < 0.2 else logged("S", []),
        "limit": limit(semaphore),
    }
    names = rng.sample(sorted(pool), rng.randint(1, 5))
    return Storm(
        layers=tuple(pool[name] for name in names),
        names=tuple(names),
        semaphore=semaphore,
        wire=Wire(script, closing=rng.choice((0, 0, 0.25))),
        how=rng.choice(("read", "abort", "ambient", "leave", "raise", "aclose", "cut short")),
        at=rng.choice((0, 0.5, 1, 1.5, 2, 3, 5)),
        after=rng.randint(0, 3),
        buffer=rng.choice((0, 1, 16)),
        idle=rng.choice((1, 4)),
    )


async def weather(storm: Storm) -> str:
    """Run one; returns how it ended."""
    timeouts = Timeouts(idle=storm.idle)
    stream = storm.wire.stream(*storm.layers, timeouts=timeouts, buffer=storm.buffer)
    outer = trio.CancelScope()
    end = "nothing"

    async def act() -> None:
        await trio.sleep(storm.at)
        if storm.how == "abort":
            stream.abort()
        elif storm.how == "ambient":
            outer.cancel()
        else:
            await stream.aclose()

    async def receive() -> StreamChunk:
        while True:
            with trio.move_on_after(0.25 if storm.how == "cut short" else 1000):
                return await stream.receive()

    async def body() -> str:
        count = 0
        while not isinstance(await receive(), Finish):
            count += 1
            if count == storm.after and storm.how == "leave":
                return "left"
            if count == storm.after and storm.how == "raise":
                raise BodyError
        return "finish"

    with trio.move_on_after(500) as stuck, outer:
        try:
            async with trio.open_nursery() as nursery:
                if storm.how in ("abort", "ambient", "aclose"):
                    nursery.start_soon(act)
                try:
                    async with stream:
                        end = await body()
                except BodyError:
                    end = "raised"
                except BUGS:
                    end = "layer bug"
                except (trio.EndOfChannel, trio.ClosedResourceError) as error:
                    end = type(error).__name__
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            bugs = group.split((*BUGS, trio.Cancelled))[1]
            assert bugs is None, bugs
            end = "layer bug"
    assert not stuck.cancelled_caught, "stuck"
    if outer.cancelled_caught:
        end = "cancelled"
    assert_nothing_left(stream, storm.wire)
    assert storm.semaphore.value == 1, "a slot is lost"
    assert stream.finish is not None
    return f"{storm.how}: {end}"


@pytest.mark.parametrize("part", range(3))
def test_nothing_is_left_after_a_storm(part: int) -> None:
    ends: Counter[str] = Counter()

    async def main() -> None:
        for seed in range(part * 800, part * 800 + 800):
            storm = random_storm(seed)
            try:
                ends[await weather(storm)] += 1
            except BaseException as error:
                error.add_note(f"seed {seed}: {storm}")
                raise
        gc.collect()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert len(ends) > 12, ends
