"""What counts the leaks sees them."""

import socket
from collections.abc import AsyncIterator

import pytest
import trio

from trio_llm.testing.wire_script import Hold
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.client import HttpClient

from ..runtime.test_leaks import tasks_below
from .house import House, every_generator_ends
from .shapes import SHAPES


def present_tasks() -> int:
    return len(tasks_below(trio.lowlevel.current_task()))


async def test_a_suspended_generator_is_seen() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    generator = numbers()
    with pytest.raises(AssertionError, match="generators"), every_generator_ends():
        await anext(generator)
    with every_generator_ends():
        async for _ in numbers():
            pass
    async for _ in generator:
        pass


async def test_a_task_is_seen(autojump_clock: trio.testing.MockClock) -> None:
    async with WireServer() as server, trio.open_nursery() as nursery:
        house = House(server, SHAPES[0].adapter, layers=0)
        tasks = present_tasks()
        await house.check_after_stream(tasks)
        nursery.start_soon(trio.sleep_forever)
        with pytest.raises(AssertionError, match="task"):
            await house.check_after_stream(tasks)
        nursery.cancel_scope.cancel()


async def test_a_connection_and_a_descriptor_are_seen(autojump_clock: trio.testing.MockClock) -> None:
    shape = SHAPES[0]
    async with WireServer(shape.answer(shape.events[0], Hold())) as server:
        house = House(server, shape.adapter, layers=0)
        async with HttpClient(transport=house.transport).request("GET", server.base_url) as response:
            await response.receive()
            with pytest.raises(AssertionError, match="slot"):
                await house.check_after_stream(present_tasks())
        with socket.socket(), pytest.raises(AssertionError, match="descriptor"):
            await house.check_after_stream(present_tasks())
        await house.check_after_runtime()
