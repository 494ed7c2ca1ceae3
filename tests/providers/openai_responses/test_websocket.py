"""Calls over WebSockets: the same chunks as over HTTP, one connection for a session, ways to lose one."""

from __future__ import annotations

import json
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel
import trio.testing

from trio_llm.model.chunks import Aborted, Error, Stop, StreamChunk, ToolCalls
from trio_llm.model.content import TextBlock
from trio_llm.model.identifiers import CallId, SessionId
from trio_llm.model.identity import AppIdentity
from trio_llm.model.messages import (
    Message,
    ModelSource,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.policy import Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.providers.openai_responses import ResponsesAdapter, ResponsesConfig
from trio_llm.providers.openai_responses.websocket import MAX_AGE, REFUSED_SECONDS
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.stream import ChunkStream
from trio_llm.testing.wire_script import Cut, Gate, Raw, Response, event_stream
from trio_llm.testing.wire_server import WireRequest, WireServer
from trio_llm.transport.client import HttpClient
from trio_llm.transport.websocket import WebSocketClient

from ...shared_data import CASES, requires_cases, requires_recordings
from ...transport.http_parts import SCHEMES, client_tls
from ...transport.websocket_server import Peer, Reject, SocketServer, frame, handshake
from .. import streams
from ..published import check_published
from ..streams import body_bytes
from ..wire import ask, open_stream, run
from .responses import (
    HELLO,
    call,
    created,
    cut,
    end,
    event,
    message_of,
    text,
    thinking,
    translate,
    usage,
)

HI = create_user_message("hi")
AGAIN = create_user_message("again")
Script = Sequence[Callable[[Peer], Awaitable[None]] | Reject]


def flat(*events: Any) -> list[dict[str, Any]]:
    return [one for each in events for one in (each if isinstance(each, list) else [each])]


def hello(id: str = "resp_1", said: str = "Hello") -> list[dict[str, Any]]:
    return flat(created(id), text(0, said), end(usage=usage(), id=id))


def answers(*responses: list[dict[str, Any]]) -> Callable[[Peer], Awaitable[None]]:
    """Answer one request after the other, then keep still."""

    async def serve(peer: Peer) -> None:
        for response in responses:
            request = await peer.receive()
            check_published(request, "openai.types.responses.responses_client_event_param", "ResponseCreate")
            await peer.send(*response)
        await peer.hold()

    return serve


def error(code: str, **fields: Any) -> dict[str, Any]:
    return {"type": "error", "status": 400, "error": {"code": code, "message": f"it is {code}"}, **fields}


FORGOTTEN = error("previous_response_not_found")
EXPIRED = error("websocket_connection_limit_reached")


def config(url: str, **changes: Any) -> ResponsesConfig:
    fields: dict[str, Any] = {"api_key": "sk-test-123", "base_url": f"{url}/v1", "websocket": True}
    return ResponsesConfig(**fields | changes)


def adapter_for(server: SocketServer, **changes: Any) -> ResponsesAdapter:
    return ResponsesAdapter(
        config(server.url, **changes), websockets=WebSocketClient(ssl_context=client_tls())
    )


def said(*messages: Message, session: str = "s", **fields: Any) -> GenerateOptions:
    session_id = SessionId(session)
    return ask(**{"model": "gpt-5.5", "session_id": session_id, "messages": messages or (HI,)} | fields)


async def turn(
    adapter: ResponsesAdapter, *history: Message, **fields: Any
) -> tuple[list[Message], ChunkStream]:
    """One turn; the history with its answer."""
    chunks, stream = await run(adapter, said(*history, **fields))
    answer = message_of(chunks) if stream.message is not None else None
    return [*history, *([answer] if answer is not None else [])], stream


def wires(stream: ChunkStream) -> list[str | None]:
    """The codes of the wire attempts that failed; None for one that went well."""
    return [
        settlement.finish.failure.code if isinstance(settlement.finish, Error) else None
        for settlement in stream.settlements
    ]


@requires_recordings
class TestSameChunks:
    FOLDERS = streams.recordings("openai-responses")

    @staticmethod
    def messages(folder: Path) -> list[str]:
        return [
            line[5:].strip().decode()
            for line in body_bytes(folder).splitlines()
            if line.startswith(b"data:") and line[5:].strip() != b"[DONE]"
        ]

    async def test_every_recording_gives_the_chunks_that_it_gives_over_http(self) -> None:
        received: list[list[StreamChunk]] = []

        async def serve(peer: Peer) -> None:
            for folder in self.FOLDERS:
                await peer.receive()
                await peer.send(*self.messages(folder))
            await peer.hold()

        async with SocketServer([serve]) as server, adapter_for(server) as adapter:
            for number, _ in enumerate(self.FOLDERS):
                chunks, _ = await run(adapter, said(create_user_message(str(number))))
                received.append(chunks)
        assert len(server.peers) == 1
        for folder, chunks in zip(self.FOLDERS, received, strict=True):
            assert chunks == translate([body_bytes(folder)])[0], folder.name


@requires_cases
async def test_10_an_event_larger_than_one_mebibyte() -> None:
    [folder] = CASES.glob("10-*")
    case = streams.load(folder, "case.json")

    def expanded(value: Any) -> Any:
        if isinstance(value, dict):
            if "$repeat" in value:
                return value["$repeat"] * value["times"]
            return {name: expanded(item) for name, item in value.items()}
        return [expanded(item) for item in value] if isinstance(value, list) else value

    events = [expanded(frame["send"]) for frame in case["input"]["frames"] if "send" in frame]
    async with SocketServer([answers(events)]) as server, adapter_for(server) as adapter:
        chunks, stream = await run(adapter, said())
    assert stream.finish == Stop(raw="completed")
    assert message_of(chunks).content == (TextBlock("0123456789"),)
    assert stream.message is not None
    state = streams.finish_of(chunks).replay_state
    assert state is not None
    assert state.blocks is not None
    [entry] = state.blocks
    assert isinstance(entry, dict)
    assert len(entry["before"][0]["encrypted_content"]) == 2_000_000


async def test_10_a_limit_that_is_hit_is_named() -> None:
    async with SocketServer([answers(hello())]) as server, adapter_for(server, max_event_size=50) as adapter:
        _, stream = await run(adapter, said())
    assert isinstance(stream.finish, Error)
    assert stream.finish.failure.code == "MALFORMED_RESPONSE"
    assert "50 bytes" in stream.finish.failure.message


class TestSessions:
    @pytest.mark.parametrize("scheme", SCHEMES)
    async def test_a_session_keeps_its_connection_and_sends_only_what_is_new(self, scheme: str) -> None:
        first = flat(
            created("resp_1"), thinking(0, "hm", encrypted_content="e"), call(1, "{}"), end(id="resp_1")
        )
        serve = answers(first, hello("resp_2", "done"), hello("resp_3"))
        async with SocketServer([serve], scheme) as server, adapter_for(server) as adapter:
            history, stream = await turn(adapter, HI, system="Be kind.")
            assert stream.finish == ToolCalls(raw="completed")
            result = create_tool_result_message(CallId("call_1"), "x")
            history, stream = await turn(adapter, *history, result, system="Be kind.")
            history, stream = await turn(adapter, *history, AGAIN, system="Be kind.")
        [peer] = server.peers
        one, two, three = peer.received
        assert one["type"] == "response.create"
        assert (one["store"], one["instructions"], "stream" in one) == (False, "Be kind.", False)
        assert "previous_response_id" not in one
        assert two["previous_response_id"] == "resp_1"
        assert two["input"] == [{"type": "function_call_output", "call_id": "call_1", "output": "x"}]
        assert two["instructions"] == "Be kind."
        assert three["previous_response_id"] == "resp_2"
        assert len(three["input"]) == 1
        assert peer.path == "/v1/responses"
        assert peer.headers["authorization"] == "Bearer sk-test-123"

    async def test_attribution_is_on_the_upgrade(self) -> None:
        async with SocketServer([answers(hello())]) as server, adapter_for(server) as adapter:
            await run(adapter, said())
        assert server.peers[0].headers["user-agent"].startswith("trio-llm/")

    @pytest.mark.parametrize("handed_in", [False, True])
    async def test_another_identity_is_on_the_upgrade(self, handed_in: bool) -> None:
        other = AppIdentity("other", "2")
        async with SocketServer([answers(hello())]) as server, HttpClient(identity=other) as http:
            settings = config(server.url)
            made = (
                ResponsesAdapter(settings, http=http)
                if handed_in
                else ResponsesAdapter(settings, identity=other)
            )
            async with made as adapter:
                await run(adapter, said())
        assert server.peers[0].headers["user-agent"] == "other/2"

    async def test_facts_of_the_response(self) -> None:
        async with SocketServer([answers(hello(), hello())]) as server, adapter_for(server) as adapter:
            _, first = await run(adapter, said())
            _, second = await run(adapter, said(AGAIN))
        assert first.settlement is not None
        assert second.settlement is not None
        assert (first.settlement.status, first.settlement.request_id) == (101, "req_ws")
        assert first.settlement.response_id == "resp_1"
        assert second.settlement.request_id is None

    @pytest.mark.parametrize(
        "changes",
        [{"system": "Else."}, {"max_tokens": 5}, {"model": "gpt-5.4"}, {"messages": (AGAIN, AGAIN)}],
        ids=["system", "limit", "model", "history"],
    )
    async def test_what_does_not_go_on_from_there_carries_the_whole_context(
        self, changes: dict[str, Any]
    ) -> None:
        async with (
            SocketServer([answers(hello(), hello("resp_2"))]) as server,
            adapter_for(server) as adapter,
        ):
            history, _ = await turn(adapter, HI)
            await run(adapter, said(**{"messages": (*history, AGAIN)} | changes))
        _, two = server.peers[0].received
        assert "previous_response_id" not in two
        assert len(two["input"]) == (2 if "messages" in changes else 3)

    @pytest.mark.parametrize("last", [cut(), end("failed", error={"message": "no"})])
    async def test_after_another_end_the_whole_context_goes_on_the_same_connection(
        self, last: dict[str, Any]
    ) -> None:
        ended = flat(created(), text(0, "a"), last)
        async with SocketServer([answers(ended, hello())]) as server, adapter_for(server) as adapter:
            history, _ = await turn(adapter, HI)
            _, stream = await turn(adapter, *history, AGAIN)
        assert stream.finish == Stop(raw="completed")
        assert len(server.peers) == 1
        assert "previous_response_id" not in server.peers[0].received[1]

    async def test_after_a_foreign_turn_the_whole_context_goes(self) -> None:
        foreign = create_assistant_message("from elsewhere", ModelSource("other", "m"))
        serve = answers(hello(), hello("resp_2"), hello("resp_3"))
        async with SocketServer([serve]) as server, adapter_for(server) as adapter:
            history, _ = await turn(adapter, HI)
            history, _ = await turn(adapter, *history, AGAIN, foreign, create_user_message("and now?"))
            await turn(adapter, *history, AGAIN)
        [peer] = server.peers
        _, two, three = peer.received
        assert "previous_response_id" not in two
        assert len(two["input"]) == 5
        assert (three["previous_response_id"], len(three["input"])) == ("resp_2", 1)

    async def test_without_a_session_the_call_goes_over_http(self) -> None:

        async with (
            WireServer(event_stream(HELLO)) as server,
            ResponsesAdapter(config(server.base_url)) as adapter,
        ):
            await run(adapter, ask())
        assert server.requests[0].method == "POST"

    async def test_two_sessions_have_two_connections(self) -> None:
        async with SocketServer([answers(hello())]) as server, adapter_for(server) as adapter:
            await run(adapter, said(session="a"))
            await run(adapter, said(session="b"))
            assert len(server.peers) == 2

    async def test_another_key_is_another_connection(self) -> None:
        async with SocketServer([answers(hello())]) as server:
            present = [config(server.url)]
            async with ResponsesAdapter(lambda: present[0]) as adapter:
                history, _ = await turn(adapter, HI)
                present[0] = config(server.url, api_key="sk-new")
                await turn(adapter, *history, AGAIN)
                with trio.fail_after(5):
                    await server.peers[0].gone.wait()
        assert [peer.headers["authorization"] for peer in server.peers] == [
            "Bearer sk-test-123",
            "Bearer sk-new",
        ]
        assert "previous_response_id" not in server.peers[1].received[0]

    async def test_two_calls_on_one_session_never_mix(self) -> None:
        gate = trio.Event()

        async def slow(peer: Peer) -> None:
            await peer.receive()
            await peer.send(created("resp_slow"))
            await gate.wait()
            await peer.send(*text(0, "slow"), end(id="resp_slow"))
            await answers(hello("resp_x"))(peer)

        async with (
            SocketServer([slow, answers(hello("resp_2", "fast"))]) as server,
            adapter_for(server) as adapter,
        ):
            results: dict[str, list[Any]] = {}

            async def ask_for(name: str) -> None:
                results[name] = list((await turn(adapter, create_user_message(name)))[0][-1].content)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask_for, "one")
                while not server.peers or not server.peers[0].received:
                    await trio.lowlevel.checkpoint()
                await ask_for("two")
                gate.set()
            assert results == {"one": [TextBlock("slow")], "two": [TextBlock("fast")]}
            assert len(server.peers) == 2

    async def test_leaving_the_adapter_closes_idle_connections(self) -> None:
        async with SocketServer([answers(hello())]) as server:
            async with adapter_for(server) as adapter:
                await run(adapter, said())
                assert not server.peers[0].gone.is_set()
            with trio.fail_after(5):
                await server.peers[0].gone.wait()

    async def test_through_the_runtime(self) -> None:
        async with SocketServer([answers(hello(), hello("resp_2"))]) as server:
            async with LlmRuntime() as runtime:
                runtime.register_adapter(["openai"], adapter_for(server))
                options = said(provider="openai")
                first = await runtime.generate(options)
                again = attrs.evolve(options, messages=[HI, first.message, AGAIN])
                await runtime.generate(again)
            with trio.fail_after(5):
                await server.peers[0].gone.wait()
        assert server.peers[0].received[1]["previous_response_id"] == "resp_1"

    async def test_an_adapter_that_was_never_entered(self) -> None:
        async with SocketServer([answers(hello())]) as server:
            _, stream = await run(adapter_for(server), said())
        assert isinstance(stream.finish, Error)
        assert "open adapter" in stream.finish.failure.message

    async def test_pings_between_turns(self) -> None:
        pinged = trio.Event()

        async def serve(peer: Peer) -> None:
            await peer.receive()
            await peer.send(*hello())
            await peer.socket.ping()
            pinged.set()
            await answers(hello("resp_2"))(peer)

        async with SocketServer([serve]) as server, adapter_for(server) as adapter:
            history, _ = await turn(adapter, HI)
            with trio.fail_after(5):
                await pinged.wait()
            await turn(adapter, *history, AGAIN)
        assert len(server.peers) == 1


class TestStartingOver:
    @pytest.mark.parametrize(
        "refusal",
        [[FORGOTTEN], [event("failed", response={"status": "failed", "error": FORGOTTEN["error"]})]],
        ids=["error", "failed"],
    )
    async def test_a_forgotten_response_sends_the_whole_context_on_the_same_connection(
        self, refusal: list[dict[str, Any]]
    ) -> None:
        serve = answers(hello(), refusal, hello("resp_3", "ok"))
        async with SocketServer([serve]) as server, adapter_for(server) as adapter:
            history, _ = await turn(adapter, HI)
            history, stream = await turn(adapter, *history, AGAIN)
        assert stream.finish == Stop(raw="completed")
        assert wires(stream) == ["INVALID_REQUEST", None]
        assert history[-1].content == (TextBlock("ok"),)
        [peer] = server.peers
        assert peer.received[1]["previous_response_id"] == "resp_1"
        assert "previous_response_id" not in peer.received[2]
        assert len(peer.received[2]["input"]) == 3

    async def test_a_provider_that_says_it_twice(self) -> None:
        failed = event("failed", response={"status": "failed", "error": FORGOTTEN["error"]})
        serve = answers(hello(), [FORGOTTEN, failed], hello("resp_3", "ok"))
        async with SocketServer([serve]) as server, adapter_for(server) as adapter:
            history, _ = await turn(adapter, HI)
            _, stream = await turn(adapter, *history, AGAIN)
        assert stream.finish == Stop(raw="completed")
        assert wires(stream) == ["INVALID_REQUEST", None]

    async def test_a_provider_that_never_knows_is_a_failure_and_not_waited_for(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        serve = answers(hello(), [FORGOTTEN], [FORGOTTEN])
        async with SocketServer([serve]) as server, adapter_for(server) as adapter:
            history, _ = await turn(adapter, HI)
            _, stream = await turn(adapter, *history, AGAIN)
        assert wires(stream) == ["INVALID_REQUEST", "INVALID_REQUEST"]

    async def test_forgotten_in_answer_to_a_request_that_named_nothing(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with SocketServer([answers([FORGOTTEN])]) as server, adapter_for(server) as adapter:
            _, stream = await turn(adapter, HI)
        assert wires(stream) == ["INVALID_REQUEST"]

    async def test_forgotten_after_the_first_event_is_a_failure(self) -> None:
        late = [*flat(created("resp_2"), text(0, "a")), FORGOTTEN]
        async with SocketServer([answers(hello(), late)]) as server, adapter_for(server) as adapter:
            history, _ = await turn(adapter, HI)
            _, stream = await turn(adapter, *history, AGAIN)
        assert isinstance(stream.finish, Error)
        assert len(stream.settlements) == 1

    @pytest.mark.parametrize("how", ["close", "cut", "after-request", "expired"])
    async def test_a_connection_that_is_gone_is_replaced_with_the_whole_context(self, how: str) -> None:
        async def serve(peer: Peer) -> None:
            await peer.receive()
            await peer.send(*hello())
            if how == "close":
                await peer.socket.aclose(1001)
            elif how == "cut":
                await peer.cut()
            else:
                await peer.receive()
                if how == "expired":
                    await peer.send(EXPIRED)
                    await peer.hold()

        async with (
            SocketServer([serve, answers(hello("resp_9", "ok"))]) as server,
            adapter_for(server) as adapter,
        ):
            history, _ = await turn(adapter, HI)
            if how in ("close", "cut"):
                with trio.fail_after(5):
                    await server.peers[0].gone.wait()
                await trio.testing.wait_all_tasks_blocked(0.01)
            history, stream = await turn(adapter, *history, AGAIN)
        assert history[-1].content == (TextBlock("ok"),)
        assert wires(stream) in (
            [None],
            ["TRANSPORT", None],
            ["STREAM_CLOSED", None],
            ["INVALID_REQUEST", None],
        )
        if how in ("after-request", "expired"):
            assert len(stream.settlements) == 2
        assert "previous_response_id" not in server.peers[1].received[0]
        assert len(server.peers[1].received[0]["input"]) == 3

    async def test_a_new_connection_that_breaks_is_a_failure(self) -> None:
        async def serve(peer: Peer) -> None:
            await peer.receive()

        async with SocketServer([serve]) as server, adapter_for(server) as adapter:
            _, stream = await run(adapter, said())
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code in ("TRANSPORT", "STREAM_CLOSED")
        assert server.asked == 1

    async def test_an_unasked_message_between_turns_retires_the_connection(self) -> None:
        async def serve(peer: Peer) -> None:
            await peer.receive()
            await peer.send(*hello())
            await peer.send(EXPIRED)
            await peer.hold()

        async with SocketServer([serve, answers(hello("resp_2"))]) as server, adapter_for(server) as adapter:
            history, _ = await turn(adapter, HI)
            await trio.testing.wait_all_tasks_blocked(0.01)
            _, stream = await turn(adapter, *history, AGAIN)
            assert len(stream.settlements) == 1
            assert len(server.peers) == 2

    async def test_an_old_connection_is_closed_before_the_provider_does(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with (
            SocketServer([answers(hello(), hello("resp_2"))]) as server,
            adapter_for(server) as adapter,
        ):
            history, _ = await turn(adapter, HI)
            await trio.sleep(MAX_AGE - 10)
            history, _ = await turn(adapter, *history, AGAIN)
            assert len(server.peers) == 1
            await trio.sleep(20)
            with trio.fail_after(5):
                await server.peers[0].gone.wait()
            await turn(adapter, *history, AGAIN)
            assert len(server.peers) == 2
        assert "previous_response_id" not in server.peers[1].received[0]

    async def test_a_long_response_may_outlive_the_age(self, autojump_clock: trio.testing.MockClock) -> None:
        async def serve(peer: Peer) -> None:
            await answers_once(peer, hello())
            await peer.receive()
            await peer.send(created("resp_2"))
            await trio.sleep(MAX_AGE)
            await peer.send(*text(0, "late"), end(id="resp_2"))
            await peer.hold()

        async def answers_once(peer: Peer, response: list[dict[str, Any]]) -> None:
            await peer.receive()
            await peer.send(*response)

        async with SocketServer([serve]) as server, adapter_for(server) as adapter:
            history, _ = await turn(adapter, HI)
            await trio.sleep(60)
            _, stream = await turn(adapter, *history, AGAIN, timeouts=Timeouts(idle=MAX_AGE * 2))
            assert stream.finish == Stop(raw="completed")
            with trio.fail_after(5):
                await server.peers[0].gone.wait()


class TestEnds:
    @pytest.mark.parametrize("how", ["abort", "leave", "cancel"])
    async def test_a_response_that_is_given_up_closes_at_once_and_the_next_call_gets_another_connection(
        self, how: str
    ) -> None:
        async def serve(peer: Peer) -> None:
            await peer.receive()
            await peer.send(*flat(created(), text(0, "Hel")[:2]))
            await peer.hold()

        async with SocketServer([serve, answers(hello())]) as server, adapter_for(server) as adapter:
            with trio.CancelScope() as scope:
                async with open_stream(adapter, said()) as stream:
                    await stream.receive()
                    await stream.receive()
                    if how == "abort":
                        stream.abort("enough")
                        await stream.receive()
                    elif how == "cancel":
                        scope.cancel()
                        await stream.receive()
            assert isinstance(stream.finish, Aborted)
            with trio.fail_after(5):
                await server.peers[0].gone.wait()
            _, stream = await turn(adapter, HI)
            assert stream.finish == Stop(raw="completed")
            assert len(server.peers) == 2

    async def test_pings_are_answered_while_the_consumer_thinks(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Though the answer is longer than all that lies between the socket and the consumer."""
        parts = ["x" * 1000] * 1000
        answered = trio.Event()

        async def serve(peer: Peer) -> None:
            await peer.receive()
            for one in flat(created(), text(0, *parts)):
                await peer.send(one)
                await trio.sleep(0.01)
            await peer.socket.ping()
            answered.set()
            await peer.send(end())
            await peer.hold()

        async with SocketServer([serve]) as server, adapter_for(server) as adapter:
            async with open_stream(adapter, said()) as stream:
                with trio.fail_after(60):
                    await answered.wait()
                await trio.sleep(3000)
                chunks = [chunk async for chunk in stream]
            assert stream.finish == Stop(raw="completed")
        assert message_of(chunks).content == (TextBlock("".join(parts)),)

    @pytest.mark.parametrize(
        ("last", "code"), [("close", "STREAM_CLOSED"), ("cut", "TRANSPORT"), ("{", "MALFORMED_RESPONSE")]
    )
    async def test_a_response_that_breaks_keeps_what_came(self, last: str, code: str) -> None:
        async def serve(peer: Peer) -> None:
            await peer.receive()
            await peer.send(*flat(created(), text(0, "Hel")[:2]))
            if last == "close":
                await peer.socket.aclose(1000)
            elif last == "cut":
                await peer.cut()
            else:
                await peer.send(last)
                await peer.hold()

        async with SocketServer([serve]) as server, adapter_for(server) as adapter:
            _, stream = await run(adapter, said())
            with trio.fail_after(5):
                await server.peers[0].gone.wait()
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == code
        assert stream.partial == (TextBlock("Hel"),)

    async def test_silence_is_a_timeout(self, autojump_clock: trio.testing.MockClock) -> None:
        async with SocketServer([lambda peer: peer.hold()]) as server, adapter_for(server) as adapter:
            _, stream = await run(adapter, said(timeouts=Timeouts(idle=5)))
            with trio.fail_after(5):
                await server.peers[0].gone.wait()
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "TIMEOUT"

    @pytest.mark.parametrize("rest", [[], [end("failed", usage=usage(), error={"message": "again"})], ["{"]])
    async def test_an_error_is_reported_once_and_its_connection_retired(
        self, rest: list[Any], autojump_clock: trio.testing.MockClock
    ) -> None:
        async def serve(peer: Peer) -> None:
            await peer.receive()
            await peer.send(*flat(created(), text(0, "a")[:2]), error("rate_limit_exceeded"))
            await peer.send(*rest)
            await peer.hold()

        async with SocketServer([serve, answers(hello())]) as server, adapter_for(server) as adapter:
            _, stream = await run(adapter, said())
        assert isinstance(stream.finish, Error)
        assert (stream.finish.failure.code, stream.finish.failure.message) == (
            "RATE_LIMIT",
            "it is rate_limit_exceeded",
        )

    async def test_an_error_before_the_close(self) -> None:
        async def serve(peer: Peer) -> None:
            await peer.receive()
            await peer.send(error("server_error", status=500))
            await peer.socket.aclose(1011)

        async with SocketServer([serve]) as server, adapter_for(server) as adapter:
            _, stream = await run(adapter, said())
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "SERVER"

    async def test_pings_of_the_application_are_no_events(self) -> None:
        beat = json.dumps({"type": "keepalive"})
        response: list[Any] = [beat, *hello()[:1], beat, *hello()[1:]]
        async with SocketServer([answers(response)]) as server, adapter_for(server) as adapter:
            _, stream = await run(adapter, said())
        assert stream.finish == Stop(raw="completed")


class TestFallback:
    async def http_and_refusal(
        self, refusal: bytes, calls: int = 1, sleep: float = 0
    ) -> tuple[list[ChunkStream], list[str]]:
        """Calls to a server that knows no WebSockets."""

        script = [Response(int(refusal), {}, b"no", framing="length")]
        done: list[ChunkStream] = []
        async with WireServer(
            [*script, *[event_stream(HELLO)] * calls, *script, event_stream(HELLO)]
        ) as server:
            async with ResponsesAdapter(config(server.base_url)) as adapter:
                done.extend([(await run(adapter, said()))[1] for _ in range(calls)])
                if sleep:
                    await trio.sleep(sleep)
                    done.append((await run(adapter, said()))[1])
            return done, [request.method for request in server.requests]

    @pytest.mark.parametrize("status", [b"400", b"403", b"404", b"405", b"426", b"501", b"503"])
    async def test_a_refused_upgrade_falls_back_to_http(self, status: bytes) -> None:
        [stream], methods = await self.http_and_refusal(status)
        assert stream.finish == Stop(raw="completed")
        assert methods == ["GET", "POST"]
        assert len(stream.settlements) == 2
        assert stream.settlements[0].status is None or stream.settlements[0].status == int(status)

    async def test_a_server_that_refused_is_not_asked_at_each_call(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        done, methods = await self.http_and_refusal(b"404", 2, REFUSED_SECONDS + 1)
        assert methods == ["GET", "POST", "POST", "GET", "POST"]
        assert [len(stream.settlements) for stream in done] == [2, 1, 2]

    @pytest.mark.parametrize(("status", "code"), [(401, "AUTH"), (429, "RATE_LIMIT")])
    async def test_a_refusal_that_http_would_meet_again_is_the_answer(self, status: int, code: str) -> None:
        refused = Reject(status, b'{"error": {"message": "no"}}')
        async with SocketServer([refused]) as server, adapter_for(server) as adapter:
            _, stream = await run(adapter, said())
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == code
        assert server.asked == 1

    async def test_a_refusal_after_a_lost_connection_falls_back_too(self) -> None:
        lost, asked = Gate(), 0
        frames = b"".join(frame(1, json.dumps(each).encode()) for each in hello())

        def answer(request: WireRequest) -> Response:
            nonlocal asked
            if request.method == "POST":
                return event_stream(HELLO)
            asked += 1
            if asked > 1:
                return Response(404, {}, b"no", framing="length")
            return Response(before=(Raw(handshake(request)), Raw(frames), lost, Cut()), framing="none")

        async with WireServer(answer) as server, ResponsesAdapter(config(server.base_url)) as adapter:
            history, _ = await turn(adapter, HI)
            async with trio.open_nursery() as nursery:

                async def lose() -> None:
                    await trio.testing.wait_all_tasks_blocked(0.01)
                    lost.open()

                nursery.start_soon(lose)
                history, stream = await turn(adapter, *history, AGAIN)
        assert history[-1].content == (TextBlock("Hello"),)
        assert wires(stream) == ["TRANSPORT", "INVALID_REQUEST", None]
        body = server.requests[-1].json()
        assert len(body["input"]) == 3
        assert "previous_response_id" not in body

    async def test_nobody_listens(self) -> None:
        async with SocketServer([answers(hello())]) as server:
            pass
        async with adapter_for(server) as adapter:
            _, stream = await run(adapter, said())
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == "TRANSPORT"
        assert len(stream.settlements) == 1


ECHO = "sk-test-123"


async def echo_in_close(peer: Peer) -> None:
    await peer.receive()
    await peer.socket.aclose(1011, f"bad {ECHO}")


async def echo_in_names(peer: Peer) -> None:
    await peer.receive()
    named = event("created", response={"id": ECHO, "model": ECHO, "status": "in_progress"})
    await peer.send(*flat(named, text(0, "a"), end("incomplete", incomplete_details={"reason": ECHO})))


async def echo_in_shape(peer: Peer) -> None:
    await peer.receive()
    await peer.send({"type": "response.created", "response": ECHO})


async def echo_in_error(peer: Peer) -> None:
    await peer.receive()
    await peer.send(error(ECHO))


CUT_SHORT = Reject(401, f'{{"error": {{"message": "{"x" * 1994}{ECHO}"}}}}'.encode())
REFUSED = Reject(401, f'{{"error": {{"message": "{ECHO}"}}}}'.encode(), ((b"x-request-id", ECHO.encode()),))


@pytest.mark.parametrize(
    "script",
    [echo_in_close, echo_in_names, echo_in_shape, echo_in_error, REFUSED, CUT_SHORT],
    ids=["close", "names", "shape", "error", "refusal", "long-refusal"],
)
async def test_D10_a_repeated_key_is_told_to_nobody(script: Any) -> None:
    async with SocketServer([script]) as server, adapter_for(server) as adapter:
        _, stream = await run(adapter, said())
    told = [repr(stream.finish), repr(stream.settlements), repr(stream.error), str(stream.error)]
    if stream.error is not None:
        told += traceback.format_exception(stream.error)
    assert server.asked == 1
    assert "sk-te" not in "".join(told).lower()
