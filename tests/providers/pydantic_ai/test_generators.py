"""Foreign generators do not outlive the call that started them."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from trio_llm.providers.pydantic_ai.generators import run_and_close


class Layers:
    """Two generators, one inside the other, as an SDK has them."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    async def inner(self) -> AsyncIterator[int]:
        try:
            while True:
                await trio.lowlevel.checkpoint()
                yield 1
        finally:
            self.closed.append("inner")

    async def outer(self) -> AsyncIterator[int]:
        try:
            async for value in self.inner():
                yield value
        finally:
            self.closed.append("outer")


async def test_what_a_loop_left_suspended_is_closed() -> None:
    layers = Layers()

    async def leave() -> int:
        async for value in layers.outer():
            return value
        raise AssertionError

    assert await run_and_close(leave()) == 1
    assert layers.closed == ["outer", "inner"]
    gc.collect()


async def test_an_error_of_the_body_passes() -> None:
    layers = Layers()

    async def fail() -> None:
        async for _ in layers.outer():
            raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        await run_and_close(fail())
    assert layers.closed == ["outer", "inner"]


async def test_cancellation_passes_and_all_is_closed() -> None:
    layers = Layers()
    with trio.CancelScope() as scope:

        async def pull() -> None:
            async for _ in layers.outer():
                scope.cancel()

        await run_and_close(pull())
    assert scope.cancelled_caught
    assert sorted(layers.closed) == ["inner", "outer"]


async def test_one_that_fails_or_hangs_on_closing_stops_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def bad() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("on closing")

    async def slow() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await trio.sleep(1000)

    kept = [bad(), slow()]

    async def leave() -> None:
        for generator in kept:
            await anext(generator)

    await run_and_close(leave())
    assert trio.current_time() < 10


async def test_generators_of_others_are_left_alone() -> None:
    layers = Layers()
    own = layers.inner()
    await anext(own)

    async def nothing() -> None:
        await trio.lowlevel.checkpoint()
        await anext(own)

    await run_and_close(nothing())
    assert layers.closed == []
    await own.aclose()  # type: ignore[attr-defined]  # an async generator has it
