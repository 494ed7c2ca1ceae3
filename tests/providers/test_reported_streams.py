"""Streams that real servers and gateways were reported to send, and that other clients read wrongly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trio_llm.model.chunks import Aborted, Error, Finish, StreamChunk
from trio_llm.model.content import ReasoningBlock, TextBlock, ToolCallBlock
from trio_llm.protocol.assembler import BlockAssembler
from trio_llm.protocol.grammar import Grammar

from . import streams
from .anthropic import messages as m
from .gemini import events as g
from .ollama import lines as o
from .openai_responses import responses as r

ARGS = '{"a":1}'


def chat(*deltas: dict[str, Any], word: str | None = "stop", **choice: Any) -> list[StreamChunk]:
    """The chunks of a chat stream; the last choice has the word and what else is given."""
    choices = [{"index": 0, "delta": delta} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": word, **choice})
    events = [b"data: %b\n\n" % json.dumps({"choices": [each]}).encode() for each in choices]
    return streams.translate([b"".join(events) + b"data: [DONE]\n\n"])[0]


def part(index: int | None, id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    said = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [said]}


def messages(*frames: bytes) -> list[StreamChunk]:
    return m.chunks_of(m.start(), *frames)


def blocks(chunks: list[StreamChunk]) -> list[Any]:
    """What was said: texts as they are, thinking in a tuple, calls as name and arguments."""
    grammar, assembler, said = Grammar(), BlockAssembler(), list[Any]()
    for chunk in chunks:
        grammar.check(chunk)
        assembler.push(chunk)
    for block in assembler.blocks():
        match block:
            case TextBlock(text):
                said.append(text)
            case ReasoningBlock(text):
                said.append((text,))
            case ToolCallBlock(_, name, arguments):
                said.append({name: arguments})
    return said


F = {"f": ARGS}
LATE = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": ""}
WHOLE = LATE | {"arguments": ARGS}
SAID = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
OPEN = m.begin(0, type="tool_use", id="t", name="f", input={})
JSON = m.delta(0, "input_json_delta", partial_json=ARGS)

REPORTED: dict[str, tuple[list[StreamChunk], list[Any]]] = {
    # Chat: arguments that are said again, whole, with and without the call's name.
    "chat-again": (chat(part(0, "x", "f", ""), part(0, None, None, ARGS), part(0, None, None, ARGS)), [F]),
    "chat-again-named": (chat(part(0, "x", "f", ARGS), part(0, "x", "f", ARGS)), [F]),
    "chat-again-in-all": (
        chat(part(0, "x", "f", '{"a"'), part(0, None, None, ":1}"), part(0, "x", "f", ARGS)),
        [F],
    ),
    "chat-equal-pieces": (
        chat(
            part(0, "x", "f", '{"a":'),
            part(0, None, None, "1"),
            part(0, None, None, "1"),
            part(0, None, None, "}"),
        ),
        [{"f": '{"a":11}'}],
    ),
    "chat-one-id-for-two": (chat(part(0, "x", "f", ARGS), part(1, "x", "h", ARGS)), [F, {"h": ARGS}]),
    "chat-an-id-for-each-part": (chat(part(0, "x", "f", '{"a"'), part(0, "y", None, ":1}")), [F]),
    "chat-an-id-for-each-part-from-the-start": (chat(part(0, "x", "f", ""), part(0, "y", None, ARGS)), [F]),
    "chat-new-id-new-call": (chat(part(0, "x", "f", ARGS), part(0, "y", None, ARGS)), [F, {"": ARGS}]),
    # Chat: gateways that put an empty list, an early word, or everything, into each event.
    "chat-empty-calls": (
        chat({"reasoning": "r", "tool_calls": []}, {"reasoning": "s", "tool_calls": []}, {"content": "a"}),
        [("rs",), "a"],
    ),
    "chat-all-in-one": (chat(word="stop", delta={"content": "a", **part(0, "x", "f", ARGS)}), ["a", F]),
    "chat-late-thinking": (
        chat({"reasoning": "r"}, {"content": "a"}, {"reasoning": "s"}, {"content": "b"}),
        [("r",), "a", ("s",), "b"],
    ),
    # Messages: text in the block of a call, deltas without a start, a block begun anew.
    "messages-text-in-a-call": (
        messages(OPEN, m.delta(0, "text_delta", text="hi"), JSON, m.stop(0), m.end()),
        [F, "hi"],
    ),
    "messages-thinking-in-a-text": (
        messages(
            m.begin(0, type="text", text=""),
            m.delta(0, "text_delta", text="a"),
            m.delta(0, "thinking_delta", thinking="r"),
            m.delta(0, "text_delta", text="b"),
            m.delta(0, "thinking_delta", thinking="s"),
            m.stop(0),
            m.end(),
        ),
        ["ab", ("rs",)],
    ),
    "messages-no-starts": (
        messages(m.delta(0, "thinking_delta", thinking="r"), m.delta(1, "text_delta", text="a"), m.end()),
        [("r",), "a"],
    ),
    "messages-one-index": (messages(m.text(0, "a"), m.call(0, ARGS, name="f"), m.end("tool_use")), ["a", F]),
    # Gemini: a call that comes again, arguments as text, parts of nothing.
    "gemini-again": (
        g.chunks_of(g.event(g.call("f", {"a": 1}, "S", id="1")), g.end(g.call("f", {"a": 1}, id="1"))),
        [F],
    ),
    "gemini-twice-without-ids": (
        g.chunks_of(g.event(g.call("f", {"a": 1})), g.end(g.call("f", {"a": 1}))),
        [F, F],
    ),
    "gemini-text-arguments": (g.chunks_of(g.end(g.call("f", ARGS))), [F]),
    "gemini-text-that-is-no-object": (g.chunks_of(g.end(g.call("f", "[1"))), [{"f": "{}"}]),
    "gemini-null-parts": (
        g.chunks_of(g.frame({"candidates": [{"content": {"parts": None}}]}), g.end(g.text("a"))),
        ["a"],
    ),
    # Responses: items named late, twice, out of order, or only at their end.
    "responses-named-late": (
        r.chunks_of(
            r.created(),
            r.delta("function_call_arguments", 0, ARGS, item_id="fc"),
            r.added(0, **LATE),
            r.done(0, **WHOLE),
            r.end(),
        ),
        [F],
    ),
    "responses-begun-twice": (
        r.chunks_of(r.created(), r.added(0, **LATE), r.added(0, **LATE), r.done(0, **WHOLE), r.end()),
        [F],
    ),
    "responses-ended-twice": (r.chunks_of(r.created(), r.done(0, **WHOLE), r.done(0, **WHOLE), r.end()), [F]),
    "responses-another-at-the-place": (
        r.chunks_of(r.created(), r.text(0, "a", id="m1"), r.text(0, "b", id="m2"), r.end()),
        ["a", "b"],
    ),
    "responses-only-ends": (
        r.chunks_of(r.created(), r.done(0, **SAID), r.done(1, **WHOLE), r.end()),
        ["a", F],
    ),
    "responses-only-the-whole": (r.chunks_of(r.created(), r.end(output=[SAID, WHOLE])), ["a", F]),
    "responses-no-places": (
        r.chunks_of(r.created(), {"type": "response.output_text.delta", "delta": "a"}, r.end(output=[])),
        ["a"],
    ),
    # Ollama: calls in the last line, arguments as text.
    "ollama-last-line": (
        o.chunks_of(o.line(message={"content": "", "tool_calls": [o.call("f", {"a": 1})]}, done=True)),
        [F],
    ),
    "ollama-text-arguments": (o.chunks_of(o.says("", tool_calls=[o.call("f", ARGS)]), o.done()), [F]),
}


@pytest.mark.parametrize(("chunks", "said"), REPORTED.values(), ids=REPORTED)
def test_what_was_said(chunks: list[StreamChunk], said: list[Any]) -> None:
    assert blocks(chunks) == said
    last = chunks[-1]
    assert isinstance(last, Finish)
    assert not isinstance(last.reason, (Error, Aborted))


def test_the_id_of_a_call_named_late_is_its_own_from_then_on() -> None:
    chunks, _ = REPORTED["responses-named-late"]
    ids = [getattr(chunk, "id", None) for chunk in chunks]
    assert "fc" not in ids
    assert "c" in ids


@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        (chat({"content": "a"}, word="error", error={"code": 502, "message": "upstream"}), "SERVER"),
        (chat({"content": "a"}, word="error", error={"code": 429, "message": "slow down"}), "RATE_LIMIT"),
        (chat({"content": "a"}, word="error"), "ERROR"),
        (
            messages(
                m.text(0, "a"),
                m.frame(
                    {
                        "type": "error",
                        "error": {
                            "type": "invalid_request_error",
                            "message": "Output blocked by content filtering policy",
                        },
                    }
                ),
            ),
            "CONTENT_FILTER",
        ),
        (g.chunks_of(g.event(g.text("a")), g.end(word="SAFETY")), "CONTENT_FILTER"),
        (
            g.chunks_of(g.frame({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]})),
            "MALFORMED_FUNCTION_CALL",
        ),
    ],
)
def test_why_it_failed(chunks: list[StreamChunk], code: str) -> None:
    last = chunks[-1]
    assert isinstance(last, Finish)
    assert isinstance(last.reason, Error)
    assert last.reason.failure.code == code
