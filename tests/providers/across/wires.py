"""What a wire is to the tests of conversations that move."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import attrs

from trio_llm.streaming.contract import LlmAdapter
from trio_llm.testing.wire_script import Response
from trio_llm.testing.wire_server import WireServer

LOOK_AT = {"path": "a"}
"""The arguments of the first call of every answer; the second call, ``list``, has none."""

LOOK = json.dumps(LOOK_AT)
"""The same as text."""


Role: TypeAlias = Literal["system", "user", "assistant"]


@attrs.frozen
class Said:
    """One thing that a request says, whatever its wire.

    Attributes:
        of: the call's id, or its name on a wire without ids; empty where it is neither call nor result.
    """

    what: Literal["text", "thinking", "call", "result", "image"]
    role: Role
    text: str = ""
    of: str = ""


@attrs.frozen(kw_only=True)
class Wire:
    """An adapter, what its provider answers, and how its requests are read.

    Attributes:
        make: an adapter that reaches this server.
        serve: a server for these answers, one for each request; it has a ``base_url`` and ``requests``.
        answer: the n-th answer: it thinks ``NAME wonders N``, says ``NAME answers N`` and calls ``look`` with
            :data:`LOOK`, and ``list`` without arguments.
        read: what a request says, in order. Fails where a part of it is none that the wire has.
        check: fails where the order of the request's parts is none that the provider takes.
        call_ids: what ids of calls match; None where the wire has none.
        foreign_thinking: what becomes of thinking that another adapter brought.
        own_thinking: whether the wire's own thinking goes back to it.
        broken_calls: the names of calls cut in their arguments that stay in the history all the same.
        keeps_orphans: whether results without a call stay.
        package: what must be installed, if anything.
        secret: what of an answer goes back to this adapter and to no other; None where nothing does.
    """

    name: str
    model: str
    make: Callable[[Any], LlmAdapter]
    answer: Callable[[int], Response]
    read: Callable[[dict[str, Any]], list[Said]]
    check: Callable[[dict[str, Any]], None]
    serve: Callable[[list[Response]], Any] = WireServer
    call_ids: re.Pattern[str] | None
    foreign_thinking: Literal["kept", "text", "dropped"]
    own_thinking: bool = True
    broken_calls: tuple[str, ...] = ()
    keeps_orphans: bool = False
    package: str | None = None
    secret: str | None = None
