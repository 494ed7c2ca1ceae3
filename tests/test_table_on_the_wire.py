"""Every row of the cancellation table over a real socket, http and https, by an adapter as it ships.

Virtual time: MockClock jumps only while both sides of the loopback connection wait.
"""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
import trio
from trio.testing import MockClock

from tests.transport.http_parts import client_tls, open_descriptors, server_tls
from trio_llm import (
    Aborted,
    AbortSignal,
    ChunkStream,
    Error,
    Finish,
    GenerateOptions,
    LlmRuntime,
    Middleware,
    Next,
    Stop,
    StreamChunk,
    TextBlock,
    TextDelta,
    Timeouts,
    codes,
    create_user_message,
)
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
from trio_llm.runtime.stream import RuntimeStream
from trio_llm.testing.wire_script import Cut, Gate, Hold, Pause, Repeat, Response, event_stream
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.client import HttpClient
from trio_llm.transport.transport import TrioTransport


def word(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return f"data: {json.dumps({'id': 'c', 'model': 'm', 'choices': [choice]})}\n\n".encode()


DONE = b"data: [DONE]\n\n"
ENDLESS = event_stream(word("a"), Repeat((Pause(1), word("b"))))
SILENT = event_stream(word("a"), Hold())


@pytest.fixture(params=["http", "https"])
def secure(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "https")


class Call:
    """A server with one answer for each call, and a stream of the shipped adapter from it."""

    def __init__(self, secure: bool, *answers: Response, layers: Sequence[Middleware] = ()) -> None:
        self.server = WireServer(list(answers), tls=server_tls() if secure else None)
        self.transport = TrioTransport(ssl_context=client_tls(), max_connections=1)
        self._layers = layers

    async def run(
        self,
        body: Callable[[RuntimeStream], object],
        *,
        timeouts: Timeouts | None = None,
        signal: AbortSignal | None = None,
    ) -> RuntimeStream:
        """Run ``body`` in the stream; afterwards nothing of the call may be left."""
        async with self.server as server, LlmRuntime() as runtime:
            http = HttpClient(transport=self.transport)
            config = DeepSeekConfig(api_key="sk-test", base_url=server.base_url)
            runtime.register_adapter("deepseek", DeepSeekAdapter(config, http=http))
            for layer in self._layers:
                runtime.use(layer)
            options = GenerateOptions(
                provider="deepseek",
                model="m",
                messages=[create_user_message("?")],
                timeouts=timeouts,
                signal=signal,
            )
            self.stream = runtime.stream(options)
            try:
                async with self.stream:
                    await body(self.stream)  # type: ignore[misc]  # a body is a coroutine function
            finally:
                assert self.transport.open_connections == self.transport.idle_connections
                await http.aclose()
        return self.stream


async def read_all(stream: ChunkStream) -> list[StreamChunk]:
    chunks = [chunk async for chunk in stream]
    assert isinstance(chunks[-1], Finish)
    assert chunks[-1].reason == stream.finish
    return chunks


def aborting_after(seconds: float, abort: Callable[[], None]) -> Callable[[RuntimeStream], object]:
    async def body(stream: RuntimeStream) -> None:
        async with trio.open_nursery() as nursery:

            async def later() -> None:
                await trio.sleep(seconds)
                abort()

            nursery.start_soon(later)
            await read_all(stream)

    return body


def failure_code(stream: RuntimeStream) -> str:
    assert isinstance(stream.finish, Error | Aborted)
    return stream.finish.failure.code


async def test_the_end(secure: bool, autojump_clock: MockClock) -> None:
    call = Call(secure, event_stream(word("a"), word("b", "stop"), DONE))
    stream = await call.run(read_all)
    assert isinstance(stream.finish, Stop)
    assert stream.origin == "provider"
    assert stream.message is not None
    assert stream.message.content == (TextBlock("ab"),)


@pytest.mark.parametrize("answer", [SILENT, ENDLESS], ids=["silent", "flowing"])
async def test_abort_on_the_stream(secure: bool, autojump_clock: MockClock, answer: Response) -> None:
    call = Call(secure, answer)
    stream = await call.run(aborting_after(2.5, lambda: call.stream.abort("enough")))
    assert (failure_code(stream), stream.origin) == (codes.ABORTED, "signal")
    assert stream.partial[0].text.startswith("a")  # type: ignore[attr-defined]  # a TextBlock
    assert stream.settlement is not None
    assert stream.settlement.abort_to_closed == 0
    assert call.server.connections[0].gone.is_set()


async def test_abort_through_a_signal_while_waiting_for_headers(
    secure: bool, autojump_clock: MockClock
) -> None:
    signal = AbortSignal()
    call = Call(secure, Response(before=(Hold(),)))
    stream = await call.run(aborting_after(2.5, signal.abort), signal=signal)
    assert (failure_code(stream), stream.origin, stream.partial) == (codes.ABORTED, "signal", ())


@pytest.mark.parametrize(
    ("answer", "timeouts", "phase"),
    [
        (Response(before=(Hold(),)), Timeouts(first_event=2), "first_event"),
        (SILENT, Timeouts(idle=2), "idle"),
        (event_stream(word("a"), Repeat((Pause(1), b": ping\n\n"))), Timeouts(progress=3), "progress"),
        (ENDLESS, Timeouts(total=5.5), "total"),
    ],
    ids=["first_event", "idle", "progress", "total"],
)
async def test_a_phase_expires(
    secure: bool, autojump_clock: MockClock, answer: Response, timeouts: Timeouts, phase: str
) -> None:
    stream = await Call(secure, answer).run(read_all, timeouts=timeouts)
    assert (failure_code(stream), stream.origin) == (codes.TIMEOUT, phase)
    assert phase in stream.finish.failure.message  # type: ignore[union-attr]  # an Error, as just seen


async def test_the_wait_for_a_tls_handshake_is_connecting(autojump_clock: MockClock) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    transport = TrioTransport(ssl_context=client_tls())
    http = HttpClient(transport=transport)
    async with LlmRuntime() as runtime:
        config = DeepSeekConfig(api_key="sk-test", base_url=url, timeouts=Timeouts(connect=3))
        runtime.register_adapter("deepseek", DeepSeekAdapter(config, http=http))
        options = GenerateOptions(provider="deepseek", model="m", messages=[create_user_message("?")])
        async with runtime.stream(options) as stream:
            await read_all(stream)
    assert (failure_code(stream), stream.origin) == (codes.TIMEOUT, "connect")
    assert transport.open_connections == 0
    await http.aclose()
    await listeners[0].aclose()


async def test_data_in_the_very_tick_of_its_deadline(secure: bool, autojump_clock: MockClock) -> None:
    answer = event_stream(word("a"), Pause(2), word("b"), Pause(2), word("c", "stop"), DONE)
    stream = await Call(secure, answer).run(read_all, timeouts=Timeouts(idle=2.001))
    assert isinstance(stream.finish, Stop)


@pytest.mark.parametrize("by", ["cancel", "deadline"])
@pytest.mark.parametrize(
    "answer", [Response(before=(Hold(),)), SILENT, ENDLESS], ids=["headers", "silent", "flowing"]
)
async def test_the_enclosing_scope(
    secure: bool, autojump_clock: MockClock, by: str, answer: Response
) -> None:
    call, scopes = Call(secure, answer), list[trio.CancelScope]()

    async def body(stream: RuntimeStream) -> None:
        await read_all(stream)

    async def cancelled() -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            if by == "deadline":
                scope.deadline = trio.current_time() + 2.5
            await call.run(body)
        assert scope.cancelled_caught

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancelled)
        if by == "cancel":
            await trio.sleep(2.5)
            scopes[0].cancel()
    assert isinstance(call.stream.finish, Aborted)
    assert call.stream.origin == "ambient"
    assert len(call.server.requests) == 1


class Mine(Exception):
    pass


@pytest.mark.parametrize("by", ["break", "return", "raise"])
async def test_the_body_leaves(secure: bool, autojump_clock: MockClock, by: str) -> None:
    async def body(stream: RuntimeStream) -> None:
        async for chunk in stream:
            if isinstance(chunk, TextDelta):
                if by == "raise":
                    raise Mine
                if by == "return":
                    return
                break

    call = Call(secure, ENDLESS)
    try:
        await call.run(body)
    except Mine:
        assert by == "raise"
    assert isinstance(call.stream.finish, Aborted)
    assert call.stream.origin == "consumer"
    assert call.stream.partial == (TextBlock("a"),)
    assert call.server.connections[0].gone.is_set()


async def test_a_layer_drops_the_attempt(secure: bool, autojump_clock: MockClock) -> None:
    async def again(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            if isinstance(chunk, TextDelta):
                break
        async for chunk in next(options):
            yield chunk

    # max_connections=1: the second attempt gets its slot only because the first one's socket is closed.
    call = Call(secure, ENDLESS, event_stream(word("z", "stop"), DONE), layers=[again])
    stream = await call.run(read_all)
    assert stream.message is not None
    assert stream.message.content == (TextBlock("z"),)
    assert [record.origin for record in stream.settlements] == ["middleware", "provider"]


async def test_the_provider_fails(secure: bool, autojump_clock: MockClock) -> None:
    stream = await Call(secure, event_stream(word("a"), Cut())).run(read_all)
    assert (failure_code(stream), stream.origin) == (codes.TRANSPORT, "provider")
    assert stream.partial == (TextBlock("a"),)


async def test_abort_after_the_terminal(secure: bool, autojump_clock: MockClock) -> None:
    async def body(stream: RuntimeStream) -> None:
        await stream.receive()
        await trio.sleep(5)
        stream.abort("too late")
        await read_all(stream)

    stream = await Call(secure, event_stream(word("a", "stop"), DONE)).run(body)
    assert isinstance(stream.finish, Stop)


async def test_ambient_after_another_cause(secure: bool, autojump_clock: MockClock) -> None:
    call = Call(secure, event_stream(word("a", "stop"), DONE))

    async def body(stream: RuntimeStream) -> None:
        await stream.receive()
        await trio.sleep_forever()

    with trio.move_on_after(5) as scope:
        await call.run(body)
    assert scope.cancelled_caught
    assert isinstance(call.stream.finish, Stop)
    assert call.stream.message is not None


async def test_case_48_cancelled_requests_do_not_eat_the_pool(secure: bool) -> None:
    """16 at a time with deadlines from 1 ms up, on four connections: then four streams still succeed."""
    answer = event_stream(word("a", "stop"), DONE)

    def respond(request: object) -> Response:
        return answer

    transport = TrioTransport(ssl_context=client_tls(), max_connections=4)
    http = HttpClient(transport=transport)
    async with WireServer(respond, tls=server_tls() if secure else None) as server, LlmRuntime() as runtime:
        config = DeepSeekConfig(api_key="sk-test", base_url=server.base_url)
        runtime.register_adapter("deepseek", DeepSeekAdapter(config, http=http))
        options = GenerateOptions(provider="deepseek", model="m", messages=[create_user_message("?")])

        async def one(seconds: float) -> None:
            with trio.move_on_after(seconds):
                async with runtime.stream(options) as stream:
                    await read_all(stream)

        for batch in range(12):
            async with trio.open_nursery() as nursery:
                for number in range(16):
                    nursery.start_soon(one, 0.001 * ((number * 7 + batch) % 20))
        assert transport.open_connections == transport.idle_connections <= 4
        finished = []

        async def whole() -> None:
            async with runtime.stream(options) as stream:
                await read_all(stream)
            finished.append(stream.finish)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(whole)
        assert [type(finish) for finish in finished] == [Stop] * 4
        await http.aclose()


async def test_case_49_leaving_the_loop_early_releases_the_socket(
    secure: bool, autojump_clock: MockClock
) -> None:
    transport = TrioTransport(ssl_context=client_tls())
    http = HttpClient(transport=transport)
    answer = event_stream(Repeat((word("a"), Pause(0.01))))
    async with (
        WireServer(lambda request: answer, tls=server_tls() if secure else None) as server,
        LlmRuntime() as runtime,
    ):
        config = DeepSeekConfig(api_key="sk-test", base_url=server.base_url)
        runtime.register_adapter("deepseek", DeepSeekAdapter(config, http=http))
        options = GenerateOptions(provider="deepseek", model="m", messages=[create_user_message("?")])

        async def left() -> None:
            async with runtime.stream(options) as stream:
                async for chunk in stream:
                    if isinstance(chunk, TextDelta):
                        break

        await left()
        gc.collect()
        gc.disable()
        try:
            before = open_descriptors()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for number in range(1, 40):
                    await left()
                    await server.connections[number].gone.wait()
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert not caught
            assert open_descriptors() <= before + 1  # the server closes its end a moment later
        finally:
            gc.enable()
        await http.aclose()


@pytest.mark.parametrize("place", ["headers", "next-delta", "retry-back-off"])
async def test_case_51_cancellation_comes_through(
    secure: bool, autojump_clock: MockClock, place: str
) -> None:
    gate = Gate()
    answers = {
        "headers": [Response(before=(gate,))],
        "next-delta": [event_stream(word("a"), gate)],
        "retry-back-off": [Response(status=503), event_stream(gate)],
    }
    transport = TrioTransport(ssl_context=client_tls())
    http = HttpClient(transport=transport)
    async with (
        WireServer(answers[place], tls=server_tls() if secure else None) as server,
        LlmRuntime() as runtime,
    ):
        config = DeepSeekConfig(api_key="sk-test", base_url=server.base_url)
        runtime.register_adapter("deepseek", DeepSeekAdapter(config, http=http))
        options = GenerateOptions(provider="deepseek", model="m", messages=[create_user_message("?")])
        started = trio.current_time()
        with trio.move_on_after(0.2) as scope:
            async for attempt in runtime.attempts(options):
                async with attempt as stream:
                    await read_all(stream)
        assert scope.cancelled_caught
        assert trio.current_time() - started == pytest.approx(0.2)
        assert len(server.requests) == 1
        assert transport.open_connections == transport.idle_connections
        await http.aclose()


async def test_two_hundred_streams_behind_five_layers_leave_nothing(secure: bool) -> None:
    """Real sockets, real time; a third each is read, aborted, and left."""

    async def pass_through(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
        async for chunk in next(options):
            yield chunk

    answer = event_stream(word("a"), word("b"), word("c", "stop"), DONE)
    transport = TrioTransport(ssl_context=client_tls(), max_connections=50)
    http = HttpClient(transport=transport)
    tasks_before = len(trio.lowlevel.current_root_task().child_nurseries[0].child_tasks)  # type: ignore[union-attr]  # it has one
    async with (
        WireServer(lambda request: answer, tls=server_tls() if secure else None) as server,
        LlmRuntime() as runtime,
    ):
        config = DeepSeekConfig(api_key="sk-test", base_url=server.base_url)
        runtime.register_adapter("deepseek", DeepSeekAdapter(config, http=http))
        for _ in range(5):
            runtime.use(pass_through)
        options = GenerateOptions(provider="deepseek", model="m", messages=[create_user_message("?")])
        finishes: list[object] = []

        async def one(number: int) -> None:
            async with runtime.stream(options) as stream:
                async for chunk in stream:
                    if isinstance(chunk, TextDelta) and number % 3 == 1:
                        stream.abort()
                    elif isinstance(chunk, TextDelta) and number % 3 == 2:
                        break
            finishes.append(stream.finish)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for number in range(200):
                    nursery.start_soon(one, number)
        assert len(finishes) == 200
        assert transport.open_connections == transport.idle_connections
        await http.aclose()
        assert transport.open_connections == 0
    gc.collect()  # an abandoned generator would warn, and warnings are errors
    assert len(trio.lowlevel.current_root_task().child_nurseries[0].child_tasks) == tasks_before  # type: ignore[union-attr]  # it has one
