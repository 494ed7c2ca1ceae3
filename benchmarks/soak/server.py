"""The provider of the soak, in a process of its own: it answers well or badly, as the model's name says."""

from __future__ import annotations

import json
import random
import re
import ssl
import sys
from collections.abc import Callable

import attrs
import trio
import trustme

from tests.sweeps.cutting import WAYS, cut_answer
from tests.sweeps.shapes import SHAPES, Shape
from trio_llm.testing.wire_script import Hold, Pause, Repeat, Reset, Response, json_response
from trio_llm.testing.wire_server import WireRequest, WireServer

_BLANK_LINES = b"\n" * 4096
"""Framing of every wire reads over them."""

_chance = random.Random()


def _cut(shape: Shape) -> Response:
    return cut_answer(shape, _chance.randrange(len(shape.body)), _chance.choice(WAYS))


def _slow(shape: Shape) -> Response:
    return shape.answer(*(step for event in shape.events for step in (Pause(0.005), event)))


ANSWERS: dict[str, Callable[[Shape], Response]] = {
    "good": lambda shape: shape.answer(),
    "slow": _slow,
    "closing": lambda shape: shape.answer(shape.body, framing="close"),
    "cut": _cut,
    "empty": lambda shape: Response(200, {"content-type": shape.media_type}),
    "page": lambda shape: Response(200, {"content-type": "text/html"}, b"<html>busy</html>"),
    "busy": lambda shape: json_response({"error": {"message": "slow down"}}, 429, (("retry-after", "1"),)),
    "broken": lambda shape: json_response({"error": {"message": "oops"}}, 503),
    "reset": lambda shape: Response(before=(Reset(),)),
    "silent": lambda shape: Response(before=(Hold(),)),
    "stalled": lambda shape: shape.answer(*shape.events[:2], Hold()),
    "dripping": lambda shape: shape.answer(*shape.events[:2], Repeat((Pause(0.002), b"\n"))),
    "flood": lambda shape: shape.answer(*shape.events[:2], Repeat(_BLANK_LINES)),
}
"""What a model's name asks for."""

ENDLESS = ("silent", "stalled", "dripping", "flood")
"""Those that end only with the client."""

BUSY = ("dripping", "flood")
"""Those of them that no idle clock ends."""

_ASKED = re.compile(rb"soak-(\w+)")
_SHAPES = {shape.name: shape for shape in SHAPES}


class _Provider:
    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.server = WireServer(self._answer, tls=tls)

    def _answer(self, request: WireRequest) -> Response:
        server = self.server
        server.requests.clear()  # what was seen is not needed, and must not pile up
        if len(server.connections) > 1000:
            server.connections[:] = [each for each in server.connections if not each.ended.is_set()]
        asked = _ASKED.search(request.target.encode() + request.body)
        assert asked is not None
        answer = ANSWERS[asked[1].decode()](_SHAPES[request.target.split("/")[1]])
        return attrs.evolve(answer, settle=False)


async def _serve() -> None:
    """Say where, and stay until standard input ends."""
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    plain, secure = _Provider(None), _Provider(tls)
    async with plain.server, secure.server:
        where = {
            "http": plain.server.base_url,
            "https": secure.server.base_url,
            "authority": authority.cert_pem.bytes().decode(),
        }
        print(json.dumps(where), flush=True)
        async with trio.lowlevel.FdStream(sys.stdin.fileno()) as end:
            await end.receive_some()


if __name__ == "__main__":
    trio.run(_serve)
