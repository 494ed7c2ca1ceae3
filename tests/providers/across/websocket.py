"""OpenAI's Responses API over WebSockets: the same answers as over HTTP, one event in a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from trio_llm.protocol.json_text import encode_body
from trio_llm.providers.openai_responses import ResponsesAdapter
from trio_llm.testing.wire_script import Response

from ...transport.websocket_server import Peer, SocketServer
from ..openai_responses.responses import config
from ..published import check_published
from .responses import RESPONSES_WIRE, answer, check_order


class Server:
    """Answers requests with the events of these bodies, one after the other, on whichever connection."""

    def __init__(self, answers: Sequence[Response]) -> None:
        self._answers = iter(answers)
        self._server = SocketServer([self._serve])
        self.requests: list[_Message] = []

    @property
    def base_url(self) -> str:
        return self._server.url

    async def __aenter__(self) -> Server:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._server.__aexit__(*exc_info)

    async def _serve(self, peer: Peer) -> None:
        while True:
            self.requests.append(_Message(await peer.receive()))
            body = b"".join(step for step in next(self._answers).body if isinstance(step, bytes))
            lines = body.decode().splitlines()
            await peer.send(*(line.removeprefix("data: ") for line in lines if line.startswith("data: ")))


@attrs.frozen
class _Message:
    """A request, read as that of a wire over HTTP is."""

    message: dict[str, Any]

    @property
    def body(self) -> bytes:
        return encode_body(self.message)

    def json(self) -> dict[str, Any]:
        return self.message


def check(body: dict[str, Any]) -> None:
    """Whoever spoke in between, what the connection remembers is not built upon."""
    assert "previous_response_id" not in body
    check_order(body)
    check_published(body, "openai.types.responses.responses_client_event_param", "ResponseCreate")


WEBSOCKET_WIRE = attrs.evolve(
    RESPONSES_WIRE,
    name="websocket",
    make=lambda server: ResponsesAdapter(attrs.evolve(config(server), websocket=True)),
    serve=Server,
    answer=lambda number: answer(number, "websocket"),
    check=check,
)
