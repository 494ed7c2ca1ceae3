"""The contract of an adapter, as checks that any adapter can be put through.

A :class:`ContractSubject` says how to make the adapter for a server and what its provider would answer; each
check plays one situation over real sockets of 127.0.0.1, through the runtime, and raises AssertionError
where the adapter breaks the contract::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_contract(check: Check, autojump_clock: MockClock) -> None:
        await check(SUBJECT)

Waits are minutes of Trio's clock: run them under ``MockClock(autojump_threshold=0)``, as pytest-trio's
``autojump_clock`` is.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import outcome
import trio
from trio.testing import wait_all_tasks_blocked

from ..model import codes
from ..model.chunks import Aborted, Error, Finish, FinishReason, Stop, StreamChunk, TextDelta
from ..model.failures import LlmError
from ..model.identity import APP_IDENTITY, attribution_headers
from ..model.messages import create_user_message
from ..model.policy import Timeouts
from ..model.requests import GenerateOptions
from ..model.signal import AbortSignal
from ..protocol.grammar import Grammar
from ..runtime.runtime import LlmRuntime
from ..runtime.stream import RuntimeStream
from ..streaming.contract import LlmAdapter
from .wire_script import Cut, Hold, Pause, Reset, Response, Step, json_response
from .wire_server import WireConnection, WireServer

T = TypeVar("T")

_QUIET: Final = 1.0  # real seconds in which nothing happened: what was to happen at once will not
_PAUSE: Final = 20.0
_IDLE: Final = 100.0
_NONSENSE: Final = b"data: {nonsense\n\n"  # as a server-sent event and as a line of JSON alike


def _steps(value: Sequence[bytes]) -> tuple[bytes, ...]:
    return tuple(value)


@attrs.frozen(kw_only=True)
class ContractSubject:
    """An adapter under check.

    Attributes:
        make: the adapter for a server at ``server.base_url``, serving the route ``p``. Called inside the
            test; the context is given where the server speaks TLS, and is what the adapter verifies it with.
        model: the model id to ask for.
        opening: the first events of an answer, one write each, that together show ``shown``.
        closing: the events after them, up to the end of the stream; the finish is Stop.
        shown: the visible text.
        headers: of a successful response.
        tls: a server's and a client's context for 127.0.0.1, to play everything over https; None: over http.
    """

    make: Callable[[WireServer, ssl.SSLContext | None], LlmAdapter]
    opening: tuple[bytes, ...] = attrs.field(converter=_steps)
    closing: tuple[bytes, ...] = attrs.field(converter=_steps)
    shown: str
    model: str = "m"
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None

    def answer(self, *steps: Step) -> Response:
        """A successful response: the opening, then ``steps``."""
        return Response(200, self.headers, (*self.opening, *steps))

    @property
    def whole(self) -> Response:
        """The whole answer."""
        return self.answer(*self.closing)


Check: TypeAlias = Callable[[ContractSubject], Awaitable[None]]


class _Scene:
    """A server, and a runtime with the adapter."""

    def __init__(self, subject: ContractSubject, server: WireServer, runtime: LlmRuntime) -> None:
        self.subject = subject
        self.server = server
        self.runtime = runtime

    def options(self, **changes: Any) -> GenerateOptions:
        fields = {"provider": "p", "model": self.subject.model, "messages": [create_user_message("hi")]}
        return GenerateOptions(**fields | changes)

    async def run(self, **changes: Any) -> tuple[list[StreamChunk], RuntimeStream]:
        """One whole call."""
        async with self.runtime.stream(self.options(**changes)) as stream:
            chunks = [chunk async for chunk in stream]
        grammar = Grammar()
        for chunk in chunks:
            grammar.check(chunk)
        grammar.end()
        return chunks, stream

    async def receive_opening(self, stream: RuntimeStream) -> None:
        """Receive until the text of the opening was shown."""
        text = ""
        while text != self.subject.shown:
            chunk = await stream.receive()
            assert not isinstance(chunk, Finish), f"finished before its text was shown: {chunk!r}"
            if isinstance(chunk, TextDelta):
                text += chunk.text

    async def gone(self) -> WireConnection:
        """The one connection, once the server has seen that the client closed it."""

        async def gone() -> WireConnection:
            connection = await self.server.wait_connection()
            await connection.gone.wait()
            return connection

        return await _at_once(gone, "the connection of a call that is over was left open, or there was none")


async def _at_once(wait: Callable[[], Awaitable[T]], complaint: str) -> T:
    """What comes before nothing happens any more. Sockets know no mock clock, so neither does this."""
    came: list[outcome.Outcome[T]] = []
    async with trio.open_nursery() as nursery:

        async def until_quiet() -> None:
            await wait_all_tasks_blocked(_QUIET)
            nursery.cancel_scope.cancel()

        nursery.start_soon(until_quiet)
        try:
            came.append(outcome.Value(await wait()))
        except Exception as error:  # raised below, without the nursery's group
            came.append(outcome.Error(error))
        nursery.cancel_scope.cancel()
    if not came:
        raise AssertionError(complaint)
    return came[0].unwrap()


@asynccontextmanager
async def _scene(subject: ContractSubject, *responses: Response) -> AsyncIterator[_Scene]:
    server_side, client_side = subject.tls or (None, None)
    async with WireServer(responses, tls=server_side) as server:
        async with LlmRuntime() as runtime:
            runtime.register_adapter("p", subject.make(server, client_side))
            yield _Scene(subject, server, runtime)
        for connection in server.connections:
            await _at_once(connection.ended.wait, "a closed adapter left a connection open")


def _text(chunks: Sequence[StreamChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


def _failed(reason: FinishReason | None, code: str) -> Error:
    assert isinstance(reason, Error), f"expected Error {code}, not {reason!r}"
    assert reason.failure.code == code, f"expected the code {code}, not {reason.failure!r}"
    return reason


async def answer_is_streamed(subject: ContractSubject) -> None:
    """The chunks follow the grammar, the text is all there, and it took one request, with attribution."""
    async with _scene(subject, subject.whole) as scene:
        chunks, stream = await scene.run()
        assert isinstance(stream.finish, Stop), f"expected Stop, not {stream.finish!r}"
        assert _text(chunks) == subject.shown
        assert stream.message is not None
        (request,) = scene.server.requests
        assert request.header("user-agent") == attribution_headers(APP_IDENTITY)["user-agent"]
        settlement = stream.settlement
        assert settlement is not None
        assert settlement.status == 200
        assert settlement.bytes_received > 0, "the bytes of the body were not counted"
        assert settlement.sent is not None
        assert settlement.first_event is not None


async def text_arrives_as_it_is_sent(subject: ContractSubject) -> None:
    """What a read brought is not held back until the next."""
    scene_of = _scene(subject, subject.answer(Hold()))
    async with scene_of as scene, scene.runtime.stream(scene.options()) as stream:
        await _at_once(lambda: scene.receive_opening(stream), "the text of the opening was not shown")


async def connection_is_used_again(subject: ContractSubject) -> None:
    """Two calls in a row share a connection."""
    async with _scene(subject, subject.whole, subject.whole) as scene:
        await scene.run()
        await scene.run()
        assert len(scene.server.connections) == 1


async def failures_take_one_request(subject: ContractSubject) -> None:
    """A status becomes its code, the provider's wait is kept, and nothing is sent again underneath."""
    error = {"error": {"message": "no", "type": "error"}}
    wanted = ((401, codes.AUTH), (429, codes.RATE_LIMIT), (500, codes.SERVER), (503, codes.SERVER))
    for status, code in wanted:
        answer = json_response(error, status, (("retry-after", "3"), ("x-request-id", "r-1")))
        async with _scene(subject, answer) as scene:
            chunks, stream = await scene.run()
            failure = _failed(stream.finish, code).failure
            assert len(chunks) == 1
            assert failure.status == status
            assert failure.request_id == "r-1"
            assert failure.provider_retry_after_ms == 3000
            assert isinstance(stream.error, LlmError), "the exception itself is lost"
            assert len(scene.server.requests) == 1, "an adapter does not retry"


async def cut_body_is_a_transport_failure(subject: ContractSubject) -> None:
    """A body that breaks off keeps what came, and takes one request."""
    for end in (Cut(), Reset()):
        async with _scene(subject, subject.answer(end)) as scene:
            chunks, stream = await scene.run()
            _failed(stream.finish, codes.TRANSPORT)
            assert _text(chunks) == subject.shown
            assert len(scene.server.requests) == 1


async def clean_end_without_a_signal_is_stream_closed(subject: ContractSubject) -> None:
    """A proper end of the body is no end of the answer."""
    async with _scene(subject, subject.answer()) as scene:
        chunks, stream = await scene.run()
        _failed(stream.finish, codes.STREAM_CLOSED)
        assert _text(chunks) == subject.shown


async def undecodable_event_is_malformed(subject: ContractSubject) -> None:
    """An event that makes no sense is a failure, and none is passed over: what came before it is shown."""
    async with _scene(subject, subject.answer(_NONSENSE, *subject.closing)) as scene:
        chunks, stream = await scene.run()
        _failed(stream.finish, codes.MALFORMED_RESPONSE)
        assert _text(chunks) == subject.shown


async def empty_body_is_an_empty_response(subject: ContractSubject) -> None:
    """A body without a byte."""
    async with _scene(subject, Response(200, subject.headers)) as scene:
        _, stream = await scene.run()
        _failed(stream.finish, codes.EMPTY_RESPONSE)


async def abort_ends_the_stream(subject: ContractSubject) -> None:
    """stream.abort(): Finish(Aborted), and the connection closes at once."""
    async with _scene(subject, subject.answer(Hold())) as scene:
        async with scene.runtime.stream(scene.options()) as stream:
            await scene.receive_opening(stream)
            stream.abort("enough")
            rest = [chunk async for chunk in stream]
            await scene.gone()
        assert isinstance(rest[-1], Finish)
        assert isinstance(rest[-1].reason, Aborted)
        assert stream.settlement is not None
        assert stream.settlement.origin == "signal"


async def signal_ends_the_wait_for_the_head(subject: ContractSubject) -> None:
    """options.signal works while no byte of the response is there."""
    signal = AbortSignal()
    async with _scene(subject, Response(200, subject.headers, before=(Hold(),))) as scene:
        async with scene.runtime.stream(scene.options(signal=signal)) as stream:
            await _at_once(scene.server.wait_request, "no request was sent")
            signal.abort("enough")
            chunks = [chunk async for chunk in stream]
            await scene.gone()
        assert len(chunks) == 1
        assert isinstance(stream.finish, Aborted)


async def idle_time_expires(subject: ContractSubject) -> None:
    """Silence is TIMEOUT; bytes that make no event are life."""
    script = (Pause(_IDLE * 0.8), b": ping\n\n", Pause(_IDLE * 0.8), b": ping\n\n", Hold())
    async with _scene(subject, subject.answer(*script)) as scene:
        started = trio.current_time()
        chunks, stream = await scene.run(timeouts=Timeouts(idle=_IDLE))
        _failed(stream.finish, codes.TIMEOUT)
        assert _text(chunks) == subject.shown
        assert trio.current_time() - started > _IDLE * 2, "bytes without an event are signs of life"
        await scene.gone()


async def thinking_consumer_never_times_out(subject: ContractSubject) -> None:
    """The clocks stand still for a consumer that is behind."""
    async with _scene(subject, subject.whole) as scene:
        async with scene.runtime.stream(scene.options(timeouts=Timeouts(idle=_IDLE))) as stream:
            chunks = []
            async for chunk in stream:
                chunks.append(chunk)
                await trio.sleep(_IDLE * 2)
        assert isinstance(stream.finish, Stop)
        assert _text(chunks) == subject.shown


async def ambient_cancellation_passes(subject: ContractSubject) -> None:
    """A cancel scope around the stream wins; the connection closes at once."""
    async with _scene(subject, subject.answer(Hold())) as scene:
        stream = scene.runtime.stream(scene.options())
        with trio.move_on_after(_PAUSE) as scope:
            async with stream:
                await scene.receive_opening(stream)
                await stream.receive()
        assert scope.cancelled_caught, "trio.Cancelled was swallowed"
        assert stream.settlement is not None
        assert stream.settlement.origin == "ambient"
        await scene.gone()


async def leaving_early_closes_the_connection(subject: ContractSubject) -> None:
    """A body that breaks out of its loop."""
    async with _scene(subject, subject.answer(Hold())) as scene:
        async with scene.runtime.stream(scene.options()) as stream:
            await scene.receive_opening(stream)
        assert stream.settlement is not None
        assert stream.settlement.origin == "consumer"
        await scene.gone()


async def leaving_a_flood_closes_the_connection(subject: ContractSubject) -> None:
    """The same while the adapter waits for the consumer."""
    flood = [subject.opening[-1]] * 400
    async with _scene(subject, subject.answer(*flood, Hold())) as scene:
        async with scene.runtime.stream(scene.options()) as stream:
            await stream.receive()
            await trio.sleep(_PAUSE)  # time for the channel to fill
        await scene.gone()


CHECKS: Final[tuple[Check, ...]] = (
    answer_is_streamed,
    text_arrives_as_it_is_sent,
    connection_is_used_again,
    failures_take_one_request,
    cut_body_is_a_transport_failure,
    clean_end_without_a_signal_is_stream_closed,
    undecodable_event_is_malformed,
    empty_body_is_an_empty_response,
    abort_ends_the_stream,
    signal_ends_the_wait_for_the_head,
    idle_time_expires,
    thinking_consumer_never_times_out,
    ambient_cancellation_passes,
    leaving_early_closes_the_connection,
    leaving_a_flood_closes_the_connection,
)
"""Every check there is."""
