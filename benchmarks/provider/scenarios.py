"""What a response shall be like. A client asks for it in the model's name, which every client can send."""

from __future__ import annotations

import re
from dataclasses import dataclass

KINDS = (
    "tiny",  # one event, the whole response in one write
    "burst",  # many events in each HTTP chunk and each write
    "varied",  # as burst, but what is around the texts is never the same
    "chunks",  # one HTTP chunk per event, many of them in each write
    "spaced",  # one HTTP chunk per event, one write each, `interval` apart: one per network read
    "paced",  # as spaced, slower, for many streams at once; each text is the time it was sent
    "hold",  # headers, then nothing for `interval`, then the end: keeps connections busy
    "no-headers",  # nothing at all, for ever
    "silent",  # headers and the opening events, then nothing, for ever
    "flow",  # an event each `interval`, for ever
    "flood",  # events as fast as the client takes them, for ever
)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One response, as asked for.

    Attributes:
        events: how many text deltas.
        interval: seconds between them.
        tag: names the request, so that one may ask later when its client went away.
    """

    kind: str
    events: int = 1
    interval: float = 0.0
    tag: int = 0

    def __str__(self) -> str:
        return f"{self.kind},events={self.events},interval={self.interval:f},tag={self.tag}"

    @classmethod
    def parse(cls, name: str) -> Scenario:
        """From a model's name.

        Raises:
            ValueError: no such scenario.
        """
        kind, *settings = name.split(",")
        fields = dict(setting.split("=", 1) for setting in settings)
        if kind not in KINDS:
            raise ValueError(f"no scenario is called {kind!r}")
        return cls(
            kind=kind,
            events=int(fields.get("events", 1)),
            interval=float(fields.get("interval", 0)),
            tag=int(fields.get("tag", 0)),
        )


_MODEL = re.compile(rb'"model"\s*:\s*"([^"]*)"')


def scenario_of(body: bytes) -> Scenario:
    """The scenario that a request's JSON body asks for.

    Raises:
        ValueError: the body names no scenario.
    """
    found = _MODEL.search(body)
    if found is None:
        raise ValueError("the request names no model")
    return Scenario.parse(found[1].decode())
