"""Many streams at once leave nothing behind."""

from __future__ import annotations

import gc
import inspect
import random
from collections.abc import AsyncIterator

import trio
import trio.testing

from trio_llm.model import codes
from trio_llm.model.chunks import StreamChunk
from trio_llm.model.failures import LlmError
from trio_llm.model.requests import GenerateOptions
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.lanes import Next
from trio_llm.testing.scripted import Script, ScriptedAdapter, text_script
from trio_llm.testing.wire_script import Hold, Pause

from .support import request

STREAMS = 200


def tasks_below(task: trio.lowlevel.Task) -> list[trio.lowlevel.Task]:
    children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return children + [below for child in children for below in tasks_below(child)]


async def test_two_hundred_streams_through_five_layers_leave_nothing_behind(
    autojump_clock: trio.testing.MockClock,
) -> None:
    open_layers = 0
    choose = random.Random(7)
    scripts: list[Script] = [
        text_script("a", "b"),
        [*text_script("a")[:2], LlmError("broke", codes.TRANSPORT)],
        [*text_script("a")[:2], Hold()],
        [Pause(1), *text_script("a", "b", "c")],
    ]

    async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        nonlocal open_layers
        open_layers += 1
        try:
            async for chunk in next(options):
                yield chunk
        finally:
            open_layers -= 1

    async def consume(runtime: LlmRuntime, how: str) -> None:
        with trio.move_on_after(2):
            async with runtime.stream(request()) as stream:
                if how == "abort":
                    await trio.sleep(0.5)
                    stream.abort()
                async for _ in stream:
                    if how == "leave":
                        break
        assert stream.finish is not None
        assert stream.settlement is not None

    adapter = ScriptedAdapter(lambda options: choose.choice(scripts))
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], adapter)
        for _ in range(5):
            runtime.use(layer)
        await trio.testing.wait_all_tasks_blocked()
        root = trio.lowlevel.current_task()
        before = tasks_below(root)
        async with trio.open_nursery() as nursery:
            for number in range(STREAMS):
                nursery.start_soon(consume, runtime, ("read", "leave", "abort")[number % 3])
        assert tasks_below(root) == before
        assert open_layers == 0
        assert len(adapter.calls) == STREAMS
        assert all(call.outcome is not None for call in adapter.calls)
        assert not runtime._streams
        gc.collect()
        left = [
            thing
            for thing in gc.get_objects()
            if inspect.isasyncgen(thing) and thing.ag_code is layer.__code__
        ]
        assert left == []
    assert adapter.exited == 1
