"""The answer over a WebSocket, cut at every byte and ended in every way the protocol has.

One clear failure, what came before it is kept, and nothing is left. A session's connection that turns out to
be gone before the first event is replaced instead.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from socket import SO_LINGER, SOL_SOCKET
from struct import pack
from typing import Any, Literal, TypeAlias

import attrs
import pytest
import trio
from trio.testing import MockClock

from trio_llm.model import codes
from trio_llm.model.chunks import Error, Finish, StreamChunk, ToolCalls
from trio_llm.streaming.stream import ChunkStream
from trio_llm.testing.wire_script import Cut, Raw, Reset, Response
from trio_llm.testing.wire_server import WireRequest, WireServer
from trio_llm.transport.websocket import MAX_MESSAGE_SIZE

from ..runtime.test_leaks import tasks_below
from ..transport.http_parts import server_tls
from ..transport.websocket_server import Peer, frame, handshake
from .cutting import paced
from .extent import FULL
from .house import QUIET, House, every_generator_ends, partial_texts, substance, texts
from .shapes import SCHEMES, Scheme
from .sockets import EVENTS, REFUSED, SHAPE, Server, SocketHouse, good_answer

MESSAGES = [json.dumps(event, separators=(",", ":")).encode() for event in EVENTS]
FRAMES = [frame(1, message) for message in MESSAGES]
WIRE = b"".join(FRAMES)
ENDS = list(itertools.accumulate(map(len, FRAMES)))
READ = list(itertools.accumulate(map(len, MESSAGES)))
"""How many bytes of messages have been received after the first, the second..."""

Way: TypeAlias = Literal["closed", "alerted", "reset"]
"""The connection is closed; closed with TLS's alert, where there is TLS; or reset."""

Begin: TypeAlias = Literal["fresh", "reused"]
BEGINS: tuple[Begin, ...] = ("fresh", "reused")


@attrs.frozen
class Ending:
    """How an answer ends.

    Attributes:
        data: what the server sends.
        whole: how many of the good messages can be read from it.
        code: of the failure; None where the answer is good.
        way: what becomes of the connection then; None where the server waits.
    """

    data: bytes = attrs.field(repr=lambda data: repr(data[-40:]))
    whole: int
    code: str | None
    way: Way | None = None


def cut_at(byte: int, way: Way) -> Ending:
    whole = sum(end <= byte for end in ENDS)
    return Ending(WIRE[:byte], whole, codes.TRANSPORT if whole < len(ENDS) else None, way)


def ended_after(whole: int, data: bytes, code: str, way: Way | None = None) -> Ending:
    """After some good messages comes this, and no good one any more."""
    return Ending(b"".join(FRAMES[:whole]) + data, whole, code if whole < len(FRAMES) else None, way)


HALF = frame(1, MESSAGES[0][:10], last=False)
PING = frame(9, b"there?")
BAD: dict[str, tuple[bytes, str, Way | None]] = {
    **{
        f"close-{code}": (frame(8, pack("!H", code) + b"bye"), codes.STREAM_CLOSED, None)
        for code in (1000, 1001, 1011, 4000)
    },
    "close-1009": (frame(8, pack("!H", 1009)), codes.INVALID_REQUEST, None),
    "close-without-code": (frame(8, b""), codes.STREAM_CLOSED, None),
    "half-a-message-and-close": (HALF + PING + frame(8, pack("!H", 1001)), codes.STREAM_CLOSED, None),
    "half-a-message-and-cut": (HALF + PING, codes.TRANSPORT, "closed"),
    "no-utf-8": (frame(1, b'{"type":"\xff"}'), codes.MALFORMED_RESPONSE, None),
    "binary": (frame(2, b"\x00\xff"), codes.MALFORMED_RESPONSE, None),
    "no-json": (frame(1, b"{"), codes.MALFORMED_RESPONSE, None),
    "no-frame": (b"\xff" * 20, codes.TRANSPORT, None),
    "two-messages-in-one": (HALF + frame(1, b"{}"), codes.TRANSPORT, None),
    "masked": (b"\x81\x85mask" + b"hello", codes.TRANSPORT, None),
}
GOOD: dict[str, Callable[[bytes], bytes]] = {
    "fragments": lambda message: b"".join(
        frame(0 if at else 1, message[at : at + 7], last=at + 7 >= len(message))
        for at in range(0, len(message), 7)
    ),
    "pings": lambda message: (
        PING
        + frame(1, message[:5], last=False)
        + PING
        + frame(0, b"", last=False)
        + PING
        + frame(0, message[5:])
    ),
    "binary": lambda message: frame(2, message),
    "unasked-pongs": lambda message: frame(10, b"here") + frame(1, message),
}


def sweep(scheme: Scheme, endings: Iterable[tuple[Begin, Ending]], *, quiet: float = QUIET) -> None:
    """Make all of these endings, one call each, in one runtime.

    Args:
        quiet: how long nothing may happen until clocks run, in real seconds.
    """
    clock = MockClock(autojump_threshold=quiet)
    trio.run(_sweep, scheme, list(endings), clock=clock)


async def _sweep(scheme: Scheme, endings: list[tuple[Begin, Ending]]) -> None:
    server = Server([], scheme)

    async def client() -> None:
        house = SocketHouse(server)
        with every_generator_ends():
            async with house.runtime as runtime:
                tasks = len(tasks_below(trio.lowlevel.current_task()))
                server.answer = one_by_one
                whole, counts = await paced(runtime.stream(SHAPE.request()), len(EVENTS))
                server.answer = good_answer
                for begin, ending in endings:
                    options = await house.good_call() if begin == "reused" else SHAPE.request()
                    if begin == "fresh":
                        for socket in house.kept:
                            socket.close()
                    server.answer = _once(server, ending)
                    stream = runtime.stream(options)
                    async with stream:
                        seen = [chunk async for chunk in stream]
                    server.answer = good_answer
                    try:
                        judge(begin, ending, stream, seen, whole, counts)
                        await house.check_after_stream(tasks)
                    except BaseException as error:
                        error.add_note(f"{begin}: {ending}")
                        raise
        await house.check_after_runtime()

    async with server, trio.open_nursery() as nursery:
        nursery.start_soon(client)


def _once(server: Server, ending: Ending) -> Callable[[Peer, Any], Any]:
    """Answer so, but once."""

    async def answer(peer: Peer, request: Any) -> None:
        server.answer = good_answer
        stream: Any = peer.socket._stream
        raw = getattr(stream, "transport_stream", stream)
        await stream.send_all(ending.data)
        match ending.way:
            case "closed":
                raw.socket.close()
            case "alerted":
                await stream.aclose()
            case "reset":
                raw.setsockopt(SOL_SOCKET, SO_LINGER, pack("ii", 1, 0))
                raw.socket.close()

    return answer


async def one_by_one(peer: Peer, request: Any) -> None:
    """The good answer, a second between two messages."""
    for event in EVENTS:
        await trio.sleep(1)
        await peer.send(event)


def judge(
    begin: Begin,
    ending: Ending,
    stream: ChunkStream,
    seen: list[StreamChunk],
    whole: list[StreamChunk],
    counts: Sequence[int],
) -> None:
    """One failure with its code and all that came before it; or a second wire attempt; or everything."""
    last = seen[-1]
    assert isinstance(last, Finish)
    assert last.reason == stream.finish
    assert sum(isinstance(chunk, Finish) for chunk in seen) == 1
    first, *rest = stream.settlements
    messages = bisect.bisect_right(READ, first.bytes_received)
    # A reset may overtake what was sent before it.
    assert messages == ending.whole or (ending.way == "reset" and messages < ending.whole)
    if ending.code is None and messages == len(MESSAGES):
        assert seen == whole
        assert not rest
        return
    code = ending.code or codes.TRANSPORT
    assert isinstance(first.finish, Error)
    assert first.finish.failure.code == code
    assert first.finish.failure.message
    assert first.origin == "provider"
    if begin == "reused" and not messages and code in (codes.TRANSPORT, codes.STREAM_CLOSED):
        (second,) = rest
        assert isinstance(second.finish, ToolCalls)
        assert seen == whole
        return
    assert not rest, "the request was repeated"
    assert stream.finish == first.finish
    assert substance(seen) == substance(whole)[: counts[messages]]
    assert partial_texts(stream) == texts(seen)
    assert stream.message is None


def places(scheme: Scheme) -> list[int]:
    """Each byte; in short, those in and around the heads of frames and some others."""
    heads = {start + near for start in (0, *ENDS) for near in range(-1, 6)}
    return [at for at in range(len(WIRE) + 1) if FULL or at in heads or at % 11 == 0]


@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_cut_at_every_byte(scheme: Scheme, begin: Begin) -> None:
    assert len(WIRE) <= 600
    ways: tuple[Way, ...] = ("closed", "reset") if scheme == "http" else ("closed", "alerted", "reset")
    if FULL:
        cuts = list(itertools.product(places(scheme), ways))
    else:
        cuts = list(zip(places(scheme), itertools.cycle(ways), strict=False))
    sweep(scheme, [(begin, cut_at(at, way)) for at, way in cuts])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", BAD)
def test_every_other_ending_after_every_message(name: str, scheme: Scheme) -> None:
    data, code, way = BAD[name]
    endings = [ended_after(whole, data, code, way) for whole in range(len(FRAMES) + 1)]
    sweep(scheme, [(begin, ending) for begin in BEGINS for ending in endings])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", GOOD)
def test_every_other_way_to_send_a_message(name: str, scheme: Scheme) -> None:
    data = b"".join(map(GOOD[name], MESSAGES))
    sweep(scheme, [(begin, Ending(data, len(MESSAGES), None)) for begin in BEGINS])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_message_of_more_than_sixteen_mebibytes_after_every_message(scheme: Scheme) -> None:
    data = frame(1, b" " * (MAX_MESSAGE_SIZE + 1))
    wholes = range(len(FRAMES)) if FULL else (0, 2)
    endings = [ended_after(whole, data, codes.MALFORMED_RESPONSE) for whole in wholes]
    sweep(scheme, [("fresh", ending) for ending in endings], quiet=0.2)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("step", [Cut(), Reset()], ids=["closed", "reset"])
def test_the_handshake_cut_at_every_byte(step: Cut | Reset, scheme: Scheme) -> None:
    trio.run(_cut_handshakes, step, scheme, clock=MockClock(autojump_threshold=QUIET))


async def _cut_handshakes(step: Cut | Reset, scheme: Scheme) -> None:
    size, at = 200, 0

    def answer(request: WireRequest) -> Response:
        nonlocal size
        head = handshake(request)
        size = len(head)
        return Response(before=(Raw(head[:at]), step) if at else (step,), framing="none")

    async def client() -> None:
        nonlocal at
        house = House(server, REFUSED.adapter, layers=0)
        async with house.runtime as runtime:
            tasks = len(tasks_below(trio.lowlevel.current_task()))
            while at <= size:
                async with runtime.stream(REFUSED.request()) as stream:
                    seen = [chunk async for chunk in stream]
                assert isinstance(stream.finish, Error), at
                assert stream.finish.failure.code == codes.TRANSPORT
                assert seen == [Finish(stream.finish)]
                assert len(stream.settlements) == len(server.requests) == 1
                await house.check_after_stream(tasks)
                at += 1 if FULL else 7 if at < size - 9 else 1
        await house.check_after_runtime()

    tls = server_tls() if scheme == "https" else None
    async with WireServer(answer, tls=tls) as server, trio.open_nursery() as nursery:
        nursery.start_soon(client)
