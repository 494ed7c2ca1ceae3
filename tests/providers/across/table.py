"""Every wire there is: one joins the tests of all wires with a line in ``WIRES``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from .chat import CHAT_WIRES
from .gemini import GEMINI_WIRE
from .library import LIBRARY_WIRE
from .messages import MESSAGES_WIRE
from .ollama import OLLAMA_WIRE
from .responses import RESPONSES_WIRE
from .websocket import WEBSOCKET_WIRE
from .wires import Wire

WIRES: tuple[Wire, ...] = (
    *CHAT_WIRES,
    MESSAGES_WIRE,
    GEMINI_WIRE,
    OLLAMA_WIRE,
    RESPONSES_WIRE,
    WEBSOCKET_WIRE,
    LIBRARY_WIRE,
)


def row(*wires: Wire) -> Any:
    """The parameters of a test of these wires; skipped where the package of one is missing."""
    missing = {wire.package for wire in wires if wire.package and find_spec(wire.package) is None}
    skip = pytest.mark.skipif(
        bool(missing), reason=f"the package {min(missing, default='')} is not installed"
    )
    return pytest.param(*wires, id="-".join(wire.name for wire in wires), marks=skip)
