"""Who is measured: floors, the library, peers. Each driver is one module with the same interface.

A driver's module has ``open_client(url, ca_file)``, an async context manager that gives a
:class:`Client`. The modules import what they measure, so they are loaded in the worker only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Seen = Callable[[Any], object]
"""Called with each piece of the answer as it comes: a text delta (``str``), or from a driver that
only moves bytes what one read gave (``bytes``). A true result leaves the loop over the answer."""

Arm = Callable[[Callable[[], object]], object]
"""Called, where the client has such a thing, with a function that aborts the running answer."""

PROMPT = "Say a few tokens."


class Client(Protocol):
    """An open client, as an application would keep it: with its pool of connections."""

    async def consume(self, scenario: str, seen: Seen, arm: Arm | None = None) -> None:
        """Ask for the scenario and read the answer to its end, or until ``seen`` says to leave."""


@dataclass(frozen=True)
class Driver:
    """What the harness knows of a driver without loading it.

    Attributes:
        imports: the statement an application begins with; its time is measured.
        loop: what the driver runs under.
        pieces: what ``seen`` is given.
        heavy: so many times fewer events are asked of it, to bound the time of a run.
        language: what its worker is written in. One in JavaScript speaks the worker's protocol itself.
        measures: those it knows; None means all.
    """

    name: str
    kind: Literal["floor", "library", "peer"]
    imports: str
    loop: Literal["trio", "asyncio"] = "trio"
    pieces: Literal["text", "bytes"] = "text"
    heavy: int = 1
    language: Literal["python", "javascript"] = "python"
    measures: frozenset[str] | None = None

    @property
    def module(self) -> str:
        """The name of its file, without the ending."""
        return self.name.replace("-", "_")

    def open_client(self, url: str, ca_file: str) -> AbstractAsyncContextManager[Client]:
        """Load the driver and open a client of it."""
        module = importlib.import_module(f"{__name__}.{self.module}")
        return module.open_client(url, ca_file)


DRIVERS = {
    driver.name: driver
    for driver in (
        Driver("raw-socket", "floor", "import trio", pieces="bytes"),
        Driver("h11-floor", "floor", "import trio, h11", pieces="bytes"),
        Driver("httpx-bytes", "floor", "import trio, httpx, attrs", pieces="bytes"),
        Driver("expert", "floor", "import trio, httpx, msgspec"),
        Driver("ceiling", "floor", "import trio, httpx, h11, msgspec"),
        Driver("library", "library", "import trio_llm"),
        Driver("openai-sdk", "peer", "import trio, openai", heavy=10),
        Driver("anthropic-sdk", "peer", "import trio, anthropic", heavy=10),
        Driver("pydantic-ai", "peer", "import trio, pydantic_ai.direct, pydantic_ai.models.openai", heavy=10),
        Driver("litellm-sdk", "peer", "import litellm", loop="asyncio", heavy=20),
        Driver("langchain-openai", "peer", "import langchain_openai", loop="asyncio", heavy=20),
        Driver(
            "pi-ai",
            "peer",
            'await import("@earendil-works/pi-ai");'
            'await import("@earendil-works/pi-ai/api/openai-completions")',
            language="javascript",
            measures=frozenset({"throughput", "requests", "startup"}),
        ),
    )
}
