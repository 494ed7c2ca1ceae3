"""Cuts the body of an answer at one byte, and judges what came of it."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Error, Finish, StreamChunk, ToolCalls
from trio_llm.streaming.stream import ChunkStream
from trio_llm.testing.wire_script import Cut, Pause, Raw, Reset, Response, Step
from trio_llm.testing.wire_server import WireServer

from ..runtime.test_leaks import tasks_below
from ..transport.http_parts import server_tls
from .house import QUIET, House, every_generator_ends, partial_texts, substance, texts
from .shapes import Scheme, Shape

Way: TypeAlias = Literal["closed", "inside", "short", "reset", "ended"]
"""The connection is closed between two HTTP chunks, within one, or before the content-length is reached; it
is reset; or the body is ended there as HTTP has it, but too early for the wire."""

WAYS: tuple[Way, ...] = get_args(Way)

_ENDED = (codes.STREAM_CLOSED, codes.EMPTY_RESPONSE, codes.MALFORMED_RESPONSE)


def cut_answer(shape: Shape, at: int, way: Way) -> Response:
    """The good answer, but for its body from byte ``at`` on."""
    body = shape.body
    part = body[:at]
    written = (part,) if part else ()
    match way:
        case "closed":
            return shape.answer(*written, Cut())
        case "inside":
            return shape.answer(Raw(b"%x\r\n%b" % (len(body), part)), Cut())
        case "short":
            return shape.answer(*written, Cut(), framing="length", content_length=len(body))
        case "reset":
            return shape.answer(*written, Reset())
        case "ended":
            return shape.answer(*written or (Raw(b""),))


def sweep(shape: Shape, scheme: Scheme, cuts: Iterable[tuple[int, Way]]) -> None:
    """Make all of these cuts, one call each, in one runtime."""
    clock = MockClock(autojump_threshold=QUIET)
    trio.run(_sweep, shape, scheme, list(cuts), clock=clock)


async def _sweep(shape: Shape, scheme: Scheme, cuts: list[tuple[int, Way]]) -> None:
    pace: list[Step] = []
    for event in shape.events:
        pace += [Pause(1), event]
    answer = shape.answer(*pace, Pause(1))
    ends = list(itertools.accumulate(map(len, shape.events)))
    # A last event whose blank line is missing counts, if the body has ended properly.
    said = [end - len(event) + len(event.rstrip()) for event, end in zip(shape.events, ends, strict=True)]

    async def client() -> None:
        nonlocal answer
        house = House(server, shape.adapter, layers=0)
        with every_generator_ends():
            async with house.runtime as runtime:
                whole, counts = await paced(runtime.stream(shape.request()), len(shape.events) + 1)
                tasks = len(tasks_below(trio.lowlevel.current_task()))
                await house.check_after_stream(tasks)
                for at, way in cuts:
                    answer = cut_answer(shape, at, way)
                    stream = runtime.stream(shape.request())
                    async with stream:
                        seen = [chunk async for chunk in stream]
                    try:
                        received = received_bytes(stream, at, way)
                        complete = bisect.bisect_right(said if way == "ended" else ends, received)
                        judge(shape, way, received, stream, seen, whole, counts[complete])
                        assert len(server.requests) == 1, "the request was repeated"
                        await house.check_after_stream(tasks)
                    except BaseException as error:
                        error.add_note(f"{shape.name}: {way} at byte {at}: {shape.body[:at]!r}")
                        raise
        await house.check_after_runtime()

    tls = server_tls() if scheme == "https" else None
    async with WireServer(lambda request: answer, tls=tls) as server, trio.open_nursery() as nursery:
        nursery.start_soon(client)


async def paced(stream: ChunkStream, events: int) -> tuple[list[StreamChunk], list[int]]:
    """The chunks of a good answer, and how many of substance are there after 0, 1, 2... events.

    Each event comes a second after the one before it, and the end of the body counts as one.
    """
    seen: list[StreamChunk] = []
    counts = [0] * (events + 1)
    begun = trio.current_time()
    async with stream:
        async for chunk in stream:
            seen.append(chunk)
            event = round(trio.current_time() - begun)
            counts[event:] = [len(substance(seen))] * (events + 1 - event)
    assert isinstance(stream.finish, ToolCalls)
    return seen, counts


def received_bytes(stream: ChunkStream, at: int, way: Way) -> int:
    """How much of the body came through: up to the cut. A reset may overtake what was sent before it."""
    (settlement,) = stream.settlements
    received = settlement.bytes_received
    assert received == at or (way == "reset" and received < at)
    return received


def judge(
    shape: Shape,
    way: Way,
    at: int,
    stream: ChunkStream,
    seen: list[StreamChunk],
    whole: list[StreamChunk],
    expected: int,
) -> None:
    """One failure with its code and everything that came before it; or all, where only the framing is cut.

    Args:
        expected: how many chunks of substance came before the cut.
    """
    last = seen[-1]
    assert isinstance(last, Finish)
    assert last.reason == stream.finish
    assert sum(isinstance(chunk, Finish) for chunk in seen) == 1
    (settlement,) = stream.settlements
    assert settlement.finish == stream.finish
    if not isinstance(stream.finish, Error):
        assert seen == whole
        if way == "ended":
            return  # a last line without its end counts, where it parses
        assert at == len(shape.body), "a cut went unnoticed"
        assert shape.has_marker or way == "short", "a broken body went unnoticed"
        return
    assert at < len(shape.body) or not shape.has_marker
    failure = stream.finish.failure
    if way == "ended":
        assert failure.code in _ENDED
    else:
        assert failure.code == codes.TRANSPORT
        assert failure.message
    assert substance(seen) == substance(whole)[:expected]
    assert partial_texts(stream) == texts(seen)
    assert stream.message is None
    assert settlement.origin == "provider"
