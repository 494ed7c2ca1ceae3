"""Conversations that begin on one wire, go on at another and come back: every ordered pair of adapters.

A wire joins the table in ``across/table.py``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from trio_llm.model.content import (
    Attachment,
    ContentBlock,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from trio_llm.model.identifiers import CallId, SessionId
from trio_llm.model.messages import (
    Message,
    ModelSource,
    UserSource,
    create_assistant_message,
    create_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.requests import GenerateOptions
from trio_llm.runtime.runtime import LlmRuntime

from .across.table import WIRES, row
from .across.wires import Said, Wire

PAIRS = [row(one, other) for one in WIRES for other in WIRES]

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@attrs.define
class Place:
    """One of the two places a conversation is at."""

    wire: Wire
    server: Any

    def body(self, number: int) -> tuple[list[Said], str]:
        """What the n-th request said, and its raw text; its structure is sound."""
        request = self.server.requests[number]
        self.wire.check(request.json())
        return self.wire.read(request.json()), request.body.decode()


def request(provider: str, wire: Wire, history: Sequence[Message]) -> GenerateOptions:
    """The whole conversation is one session, at either place."""
    return GenerateOptions(
        provider=provider, model=wire.model, messages=history, session_id=SessionId("conversation")
    )


def results(answer: Message, number: int) -> list[Message]:
    """The results of an answer's two calls, the second one first, the first one with a picture."""
    look, listing = (block.id for block in answer.content if isinstance(block, ToolCallBlock))
    seen: list[ContentBlock] = [
        TextBlock(f"seen {number}"),
        ImageBlock(Attachment.from_bytes(PICTURE, "image/png")),
    ]
    return [
        create_tool_result_message(listing, f"listed {number}"),
        create_tool_result_message(look, seen),
    ]


def opening() -> list[Message]:
    picture = ImageBlock(Attachment.from_bytes(PICTURE, "image/png"))
    return [create_user_message([TextBlock("look at this"), picture])]


def accident(provider: str) -> list[Message]:
    """A turn that was aborted with two calls open, one of them cut, and what its application left behind."""
    whole, cut = CallId("functions.run:7"), CallId("functions.cut:8")
    aborted: list[ContentBlock] = [
        TextBlock("half an ans"),
        ToolCallBlock(whole, "run", '{"fast": true}'),
        ToolCallBlock(cut, "cut", '{"pa'),
    ]
    return [
        create_assistant_message(aborted, ModelSource(provider, "m")),
        create_tool_result_message(cut, "it made no sense"),
        create_user_message("are you there?"),
        create_user_message("hello?"),
        create_message("system", "be brief", UserSource()),
        create_message("user", [ToolResultBlock(CallId("nobody"), "lost")], UserSource()),
        create_user_message("well?"),
    ]


def check_calls(said: Sequence[Said], wire: Wire, names: Sequence[str]) -> None:
    """The calls of that name stand there in order, each with an id that the wire takes and one result."""
    calls = [each for each in said if each.what == "call"]
    assert [call.text for call in calls] == list(names)
    if wire.call_ids is not None:
        assert all(wire.call_ids.fullmatch(call.of) for call in calls)
        assert len({call.of for call in calls}) == len(calls)
    open_calls: list[str] = []
    for each in said:
        if each.what == "call":
            open_calls.append(each.of)
        elif each.what == "result" and (each.of in open_calls or not wire.keeps_orphans):
            open_calls.remove(each.of)
        elif each.what in ("text", "thinking"):
            assert open_calls == []
    assert open_calls == []


def result_of(said: Sequence[Said], name: str, number: int = 0) -> str:
    """The result of the n-th call of that name."""
    place = [i for i, each in enumerate(said) if each.what == "call" and each.text == name][number]
    return next(each.text for each in said[place:] if each.what == "result" and each.of == said[place].of)


def check_order(said: Sequence[Said], *wanted: str) -> None:
    """These texts stand there in this order, each once."""
    texts = "\n".join(each.text for each in said if each.what == "text")
    assert re.findall("|".join(map(re.escape, wanted)), texts) == list(wanted)


def thoughts(said: Sequence[Said]) -> list[str]:
    return [each.text for each in said if each.what == "thinking"]


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_a_conversation_moves_there_and_back(one: Wire, other: Wire) -> None:
    async with (
        one.serve([one.answer(0), one.answer(2)]) as here,
        other.serve([other.answer(1), other.answer(3)]) as there,
        LlmRuntime() as llm,
    ):
        llm.register_adapter("one", one.make(here))
        llm.register_adapter("other", other.make(there))

        async def turn(provider: str, wire: Wire) -> None:
            options = request(provider, wire, history)
            generated = await llm.generate(options)
            history.append(generated.message)

        history = opening()
        await turn("one", one)
        history += results(history[-1], 0) + accident("one")
        await turn("other", other)
        history += results(history[-1], 1)
        await turn("one", one)
        history += results(history[-1], 2)
        await turn("other", other)
        came, left = Place(other, there), Place(one, here)

        # A foreigner's conversation: nothing of its own is there, and all that was said is.
        moved, raw = came.body(0)
        check_order(
            moved, "look at this", f"{one.name} answers 0", "half an ans", "are you there?", "hello?", "well?"
        )
        assert "be brief" in raw
        check_calls(moved, other, ("look", "list", "run", *other.broken_calls))
        assert "seen 0" in result_of(moved, "look")
        assert result_of(moved, "list") == "listed 0"
        assert "interrupted" in result_of(moved, "run")
        assert ("it made no sense" in raw) is bool(other.broken_calls)
        assert ("lost" in raw) is other.keeps_orphans
        assert [
            each.text.endswith(base64.b64encode(PICTURE).decode()) for each in moved if each.what == "image"
        ] == [
            True,
            True,
        ]
        wondered = f"{one.name} wonders 0"
        assert thoughts(moved) == ([wondered] if other.foreign_thinking == "kept" else [])
        assert (wondered in raw) is (other.foreign_thinking != "dropped")
        assert one.secret is None or one.secret not in raw

        # And back: what was its own before is so again.
        back, raw = left.body(1)
        check_order(
            back, "look at this", f"{one.name} answers 0", "half an ans", "well?", f"{other.name} answers 1"
        )
        check_calls(back, one, ("look", "list", "run", *one.broken_calls, "look", "list"))
        assert result_of(back, "list", 1) == "listed 1"
        own = [f"{one.name} wonders 0"] if one.own_thinking else []
        assert thoughts(back) == own + ([f"{other.name} wonders 1"] if one.foreign_thinking == "kept" else [])
        assert one.secret is None or one.secret in raw
        assert other.secret in (None, one.secret) or other.secret not in raw

        # The longer history begins as the shorter one did, so that caches hold.
        again, raw = came.body(1)
        assert again[: len(moved)] == moved
        check_calls(again, other, ("look", "list", "run", *other.broken_calls, *("look", "list") * 2))
        assert (f"{other.name} wonders 1" in thoughts(again)) is other.own_thinking
        assert other.secret is None or other.secret in raw
        assert one.secret in (None, other.secret) or one.secret not in raw


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_ids_that_came_back_are_the_providers_own(one: Wire, other: Wire) -> None:
    """Its own calls keep the ids it gave them, wherever they went meanwhile."""
    async with (
        one.serve([one.answer(0), one.answer(2)]) as here,
        other.serve([other.answer(1)]) as there,
        LlmRuntime() as llm,
    ):
        llm.register_adapter("one", one.make(here))
        llm.register_adapter("other", other.make(there))
        history = opening()
        for provider, wire in (("one", one), ("other", other), ("one", one)):
            options = request(provider, wire, history)
            answer = (await llm.generate(options)).message
            history += [answer, *results(answer, 0)]
        if one.call_ids is None:
            return
        given = [block.id for block in history[1].content if isinstance(block, ToolCallBlock)]
        sent = [each.of for each in Place(one, here).body(1)[0] if each.what == "call"]
        assert [id for id in given if one.call_ids.fullmatch(id)] == [id for id in sent[:2] if id in given]


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire.secret], ids=lambda wire: wire.name)
async def test_what_is_its_own_goes_back_though_its_calls_get_other_ids(wire: Wire) -> None:
    """Calls from elsewhere had the same ids before; signatures and encrypted thinking stay all the same."""
    async with wire.serve([wire.answer(0), wire.answer(1)]) as server, LlmRuntime() as llm:
        llm.register_adapter("own", wire.make(server))
        history = opening()
        options = request("own", wire, history)
        answer = (await llm.generate(options)).message
        calls = [block for block in answer.content if isinstance(block, ToolCallBlock)]
        foreign = create_assistant_message(calls, ModelSource("elsewhere", "m"))
        history += [foreign, *results(foreign, 7), create_user_message("go on"), answer, *results(answer, 0)]
        await llm.generate(attrs.evolve(options, messages=history))
        said, raw = Place(wire, server).body(1)
        check_calls(said, wire, ("look", "list") * 2)
        assert wire.secret is not None
        assert wire.secret in raw
        assert thoughts(said) == [f"{wire.name} wonders 0"]
