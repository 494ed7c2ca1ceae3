"""An agent's loop over tools on the Responses wire: over HTTP, and over a session's WebSocket.

Over HTTP each turn sends the whole conversation again, over the WebSocket what is new. The library only.
"""

from __future__ import annotations

import statistics
import time

from trio_llm import (
    GenerateOptions,
    LlmRuntime,
    Message,
    SessionId,
    ToolCallBlock,
    ToolCalls,
    ToolSchema,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.providers.openai_responses import ResponsesAdapter, ResponsesConfig

from ..drivers import PROMPT, Driver
from ..endpoint import Control, Endpoint, control_of

_TOOL = ToolSchema(
    "read_file",
    "Reads a file of the project and returns its text.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


async def measure(
    driver: Driver, endpoint: Endpoint, *, turns: int, result_size: int, loops: int
) -> dict[str, float]:
    """CPU, wall time and bytes sent for each turn, connecting included.

    Args:
        result_size: of each tool's result, in characters.
        loops: how often each way gets a loop; they take turns.
    """
    ways = {"http": False, "websocket": True}
    figures: dict[str, list[float]] = {}
    async with control_of(endpoint) as control:
        for number in range(loops + 1):
            for way, websocket in ways.items():
                loop = await _loop(endpoint.url(), control, websocket, turns, "x" * result_size)
                if number:  # the first one imports
                    for name, value in loop.items():
                        figures.setdefault(f"{way}_{name}", []).append(value / turns)
    return {name: statistics.median(values) for name, values in figures.items()}


async def _loop(url: str, control: Control, websocket: bool, turns: int, result: str) -> dict[str, float]:
    config = ResponsesConfig(api_key="sk-bench", base_url=url, websocket=websocket)
    conversation: list[Message] = [create_user_message(PROMPT)]
    async with LlmRuntime() as runtime:
        runtime.register_adapter("openai", ResponsesAdapter(config))
        before = await control.counts()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(turns):
            conversation += await _turn(runtime, conversation, result)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        after = await control.counts()
    if after["connections"] - before["connections"] != 1:
        raise RuntimeError("a loop is one connection")
    return {
        "us": cpu * 1e6,
        "wall_us": wall * 1e6,
        "sent_bytes": after["received"] - before["received"],
    }


async def _turn(runtime: LlmRuntime, conversation: list[Message], result: str) -> list[Message]:
    """One answer, and the results of its calls."""
    options = GenerateOptions(
        provider="openai",
        model="bench-1",
        messages=conversation,
        tools=[_TOOL],
        session_id=SessionId("bench"),
    )
    async with runtime.stream(options) as stream:
        async for _ in stream:
            pass
    if not isinstance(stream.finish, ToolCalls) or stream.message is None:
        raise RuntimeError(f"the stream ended with {stream.finish}")
    calls = [block for block in stream.message.content if isinstance(block, ToolCallBlock)]
    return [stream.message, *(create_tool_result_message(call.id, result) for call in calls)]
