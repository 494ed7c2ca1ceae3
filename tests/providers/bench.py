"""One adapter against a server of its own: what it refuses, sends, finds and does with its connections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trio_llm.model.catalogue import DiscoveredModel, ModelDiscoveryRequest
from trio_llm.model.chunks import BlockStart, Error, Finish, FinishReason, TextDelta
from trio_llm.model.content import TextBlock
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import MessageId
from trio_llm.model.messages import ModelSource, ReplayEnvelope, create_assistant_message, create_user_message
from trio_llm.providers.http_adapter import HttpAdapter
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.testing.wire_script import Cut, Hold, Response, event_stream
from trio_llm.testing.wire_server import WireServer

from .streams import load
from .wire import RecordingSink, ask, open_stream, run

_OUR_CODES = {"BAD_REQUEST": "INVALID_REQUEST"}


@attrs.frozen
class Bench:
    """Makes a server and an adapter for each question.

    Attributes:
        adapter: made of the server and of changes to its configuration.
        answer: a good one.
        reason: how that ends.
    """

    adapter: Callable[..., HttpAdapter[Any]]
    answer: Response
    reason: FinishReason

    async def refusal_of(self, changes: dict[str, Any] | None = None, **fields: Any) -> LlmError:
        """What a request raises before any I/O."""
        async with WireServer() as server, self.adapter(server, **changes or {}) as adapter:
            with pytest.raises(LlmError) as caught:
                await adapter.produce(ask(**fields), RecordingSink())
        assert server.connections == []
        return caught.value

    async def sent_with(self, changes: dict[str, Any] | None = None, **fields: Any) -> Any:
        """The request that reaches the server."""
        async with WireServer(self.answer) as server, self.adapter(server, **changes or {}) as adapter:
            _, stream = await run(adapter, ask(**fields))
        assert stream.finish == self.reason
        [request] = server.requests
        return request

    async def failure_of(self, *responses: Response) -> LlmFailure:
        """How a call fails."""
        async with WireServer(responses) as server, self.adapter(server) as adapter:
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        return stream.finish.failure

    async def discovered(
        self, answer: Response, path: str = "", changes: dict[str, Any] | None = None, **request: Any
    ) -> tuple[list[DiscoveredModel], Any]:
        """The models that an answer tells of, and the request that asked; ``path`` is of another endpoint."""
        async with WireServer(answer) as server, self.adapter(server, **changes or {}) as adapter:
            if path:
                request["base_url"] = server.base_url + path
            found = await adapter.discover(ModelDiscoveryRequest(**{"provider": "p"} | request))  # type: ignore[attr-defined]  # every one that is put here has it
        return found, server.requests[0]

    async def check_reuse(self) -> None:
        """Two calls take one connection."""
        async with WireServer([self.answer] * 2) as server, self.adapter(server) as adapter:
            await run(adapter)
            await run(adapter)
            assert len(server.connections) == 1

    async def check_abort(self, begun: bytes) -> None:
        """Aborted behind the text ``a``, which ``begun`` says, a call closes its socket."""
        answer = attrs.evolve(self.answer, body=(begun, Hold()))
        async with WireServer(answer) as server, self.adapter(server) as adapter:
            async with open_stream(adapter, ask()) as stream:
                assert await stream.receive() == BlockStart(0, "text")
                stream.abort("enough")
                finish = None
                async for chunk in stream:
                    finish = chunk
            assert isinstance(finish, Finish)
            assert finish.reason.kind == "aborted"
            with trio.fail_after(5):
                await (await server.wait_connection()).gone.wait()
        assert stream.partial == (TextBlock("a"),)

    async def check_cuts(self, body: bytes, mark: bytes, *, terminal: bool = True) -> None:
        """Cut at any byte a body is one clear failure, and what came is kept.

        Args:
            body: says ``one`` and ``two`` in an event each.
            mark: what completes an event.
            terminal: whether the body ends with a terminal marker, and so is complete before its end.
        """
        sizes = range(len(body) + (not terminal))
        cuts = [attrs.evolve(self.answer, body=(*([body[:size]] if size else []), Cut())) for size in sizes]
        ends = [body.find(mark, body.find(word)) + len(mark) for word in (b"one", b"two")]
        async with WireServer(cuts) as server, self.adapter(server) as adapter:
            for size in sizes:
                chunks, stream = await run(adapter)
                shown = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))
                assert shown == ("", "one", "onetwo")[sum(size >= end for end in ends)]
                assert isinstance(stream.finish, Error)
                assert stream.finish.failure.code == "TRANSPORT"
                assert stream.partial == ((TextBlock(shown),) if shown else ())

    async def check_degraded(self) -> None:
        """Replay state that makes no sense is told to the runtime's hook."""
        told: list[tuple[MessageId, str]] = []
        message = create_assistant_message("a", ModelSource("p", "m", ReplayEnvelope(None, [None])))
        async with (
            WireServer(self.answer) as server,
            LlmRuntime(on_degraded=lambda id, failure: told.append((id, failure.code))) as runtime,
        ):
            runtime.register_adapter(["p"], self.adapter(server))
            await runtime.generate(ask(messages=[create_user_message("hi"), message]))
        assert told == [(message.id, "INVALID_REPLAY_STATE")]

    async def check_recorded_error(self, folder: Path) -> None:
        """A recorded error is what was recorded of it."""
        meta = load(folder, "meta.json")
        body = folder.joinpath(meta["bodyFile"]).read_bytes()
        whole = meta["delivery"] == "http-status"
        failure = await self.failure_of(
            Response(meta["status"], meta["headers"], body, framing="length") if whole else event_stream(body)
        )
        assert failure.code == _OUR_CODES.get(meta["class"], meta["class"])
        assert meta["message"] in failure.message
        assert failure.status == (meta["status"] if whole else None)
        delay = failure.provider_retry_after_ms
        assert (None if delay is None else int(delay)) == meta.get("retryAfterMs")
