"""An event that is known by its bytes, or read as plain text, says what decoding it would say."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from trio_llm.model.chunks import BlockEnd, StreamChunk
from trio_llm.model.codes import STREAM_CLOSED
from trio_llm.model.content import ReasoningBlock, TextBlock
from trio_llm.model.failures import LlmError
from trio_llm.providers.alike import PATIENCE, Alike
from trio_llm.providers.openai_chat.adapter import WIRE
from trio_llm.providers.openai_chat.translate import ChatTranslator
from trio_llm.providers.openai_chat.types import (
    ChatChunk,
    Choice,
    Delta,
    _PlainChoice,
    _PlainChunk,
    _PlainDelta,
    decode_event,
)
from trio_llm.providers.reading import EventReader, Wire

from .streams import cut

KEY = b'"content":"'
DECODING = Wire(decode_event)
"""The same wire, where every event is decoded."""


def event(text: str, **envelope: Any) -> bytes:
    delta = {"content": text}
    return json.dumps(
        {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **envelope},
        separators=(",", ":"),
    ).encode()


def learnt(text: str = "a") -> Alike:
    alike = Alike(KEY)
    alike.learn(event(text), text)
    return alike


def test_another_text_in_the_same_bytes() -> None:
    events = [("", event(text)) for text in ("b", " c", "d" * 50)]
    assert learnt().texts_of(events) == ["b", " c", "d" * 50]


def test_nothing_is_known_before_something_was_learnt() -> None:
    assert Alike(KEY).texts_of([("", event("b"))]) is None


def test_events_that_are_not_alike_are_decoded() -> None:
    for other in (
        event("b", id="2"),
        event("b").replace(b"null", b"true"),
        event('"'),
        event("\n"),
        event("é"),
        event(""),
        event("b")[:-1],
        event("b").replace(b"b", b"\x01"),
        event("b").replace(b"b", b"\xc3\xa9"),
        event("b").replace(b'"b"', b'"b","x":"y"'),
        KEY,
        b"",
    ):
        assert learnt().texts_of([("", event("c")), ("", other)]) is None
        assert learnt().texts_of([("", other), ("", event("c"))]) is None
    assert learnt().texts_of([("error", event("c"))]) is None
    assert learnt().texts_of([]) is None


def test_a_field_that_comes_twice_or_escaped_is_not_learnt() -> None:
    for payload, text in (
        (b'{"content":"a","choices":[{"delta":{"content":"a"}}]}', "a"),
        (event("\t"), "\t"),
        (event("b"), "a"),
        (b'{"choices":[{"delta":{"content": "a"}}]}', "a"),
    ):
        alike = Alike(KEY)
        alike.learn(payload, text)
        assert alike.texts_of([("", payload.replace(b"a", b"b"))]) is None
        assert alike.texts_of([("", payload.replace(b"a", b"b", 1))]) is None


def test_a_server_that_varies_is_given_up() -> None:
    alike = Alike(KEY)
    for number in range(PATIENCE):
        alike.learn(event("a", id=str(number)), "a")
        assert not alike.useless
    assert alike.texts_of([("", event("b", id=str(PATIENCE - 1)))]) == ["b"]
    alike.learn(event("a"), "a")
    assert not alike.useless
    for number in range(PATIENCE):
        alike.learn(event("a", id=str(number)), "a")
    assert alike.useless


def test_a_plain_event_has_a_place_for_all_that_an_event_can_say() -> None:
    """Else a field that is added to the one would be passed over by the other."""
    silent = {"id", "model", "code", "type"}  # the last two only beside a message
    for whole, plain in ((ChatChunk, _PlainChunk), (Choice, _PlainChoice), (Delta, _PlainDelta)):
        assert set(whole.__struct_fields__) - silent == set(plain.__struct_fields__)


def frames(*payloads: bytes) -> bytes:
    return b"".join(b"data: " + payload + b"\n\n" for payload in payloads)


def test_an_id_that_comes_late_is_kept() -> None:
    late = [
        event("a", id=None),
        event("b", id=None),
        event("c", id="x", model="m"),
        event("d", id="x", model="m"),
    ]
    translator, out = ChatTranslator(), list[StreamChunk]()
    reader = EventReader(WIRE, translator)
    for payload in late:
        reader.feed(b"data: " + payload + b"\n\n", out)
    assert (translator.response_id, translator.served_model) == ("x", "m")


TEXTS = st.sampled_from(
    ["a", " b", "", "é", "\\", '"', "\n", "</thought>x", "\ud83d", '"content":"']
) | st.text(max_size=4)
RAW = st.sampled_from([b"a", b"\\u0041", b'x","content":"y', b"\x00", b"\xff", b'"}},{"delta":{"content":"q'])


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """An event of a server that repeats itself, mostly."""
    delta: dict[str, Any] = {"content": draw(TEXTS)}
    choice: dict[str, Any] = {"index": draw(st.sampled_from([0, 0, 0, 0, 1, None])), "delta": delta}
    envelope: dict[str, Any] = {
        "id": draw(st.sampled_from(["1", "1", "1", '"content":"'])),
        "choices": [choice],
    }
    match draw(st.integers(0, 14)):
        case 0:
            choice["finish_reason"] = draw(st.sampled_from(["stop", None]))
        case 1:
            envelope["usage"] = draw(st.sampled_from([None, {"prompt_tokens": 1, "completion_tokens": 2}]))
        case 2:
            delta["reasoning_content"] = draw(TEXTS)
        case 3:
            delta["tool_calls"] = [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]
        case 4:
            delta["extra_content"] = {"google": {"thought": True}}
        case 5:
            choice["message"] = {"content": draw(TEXTS)}
        case 6:
            envelope["error"] = draw(st.sampled_from([None, {"message": "no"}]))
        case 7:
            envelope["choices"] = [choice, choice]
        case 8:
            delta["refusal"] = draw(TEXTS)
        case 9:
            envelope["timings"] = {"prompt_ms": 1}
    data = json.dumps(envelope, separators=(",", ":"), ensure_ascii=draw(st.booleans())).encode(
        "utf-8", "surrogatepass"
    )
    if draw(st.integers(0, 9)) == 0:
        data = data.replace(KEY, KEY + draw(RAW), 1)
    return data


def read(wire: Wire[Any], body: bytes, sizes: list[int]) -> tuple[list[StreamChunk], Any, Any, Any]:
    translator, out = ChatTranslator(), list[StreamChunk]()
    reader = EventReader(wire, translator)
    try:
        for data in [*cut(body, sizes), b""]:
            reader.feed(data, out)
            if translator.terminal:
                break
    except LlmError as error:
        return out, error.code, translator.early_usage, translator.facts
    return out, translator.failure, translator.early_usage, translator.facts


@given(
    events=st.lists(payloads(), max_size=12),
    sizes=st.lists(st.integers(1, 200), max_size=30),
    name=st.sampled_from([b"", b"", b"event: error\n"]),
    end=st.sampled_from([b"data: [DONE]\n\n", b"", b"data: " + event("a")]),
)
@example(events=[event("a"), event("b"), event("\n"), event("c")], sizes=[], name=b"", end=b"")
def test_the_chunks_are_those_of_decoding_every_event(
    events: list[bytes], sizes: list[int], name: bytes, end: bytes
) -> None:
    body = frames(*events[:6]) + name + frames(*events[6:]) + end
    assert read(WIRE, body, sizes) == read(DECODING, body, sizes)


def thought(text: str) -> bytes:
    delta = {"content": text, "extra_content": {"google": {"thought": True}}}
    return json.dumps({"id": "1", "choices": [{"index": 0, "delta": delta}]}).encode()


def one_by_one(wire: Wire[Any], *reads: bytes) -> tuple[list[StreamChunk], Any, Any, Any]:
    sizes = [len(data) for data in reads]
    return read(wire, b"".join(reads), sizes)


def test_the_body_may_end_behind_an_event_that_is_like_the_one_before_but_has_no_end() -> None:
    stream = (frames(event("a"), event("b")), frames(event("c"))[:-2])
    assert one_by_one(WIRE, *stream) == one_by_one(DECODING, *stream)
    assert one_by_one(WIRE, *stream)[1].code == STREAM_CLOSED


def test_texts_behind_the_end_of_a_tag_are_no_part_of_the_thought() -> None:
    stream = (
        frames(event("a"), event("b")),
        frames(thought("<thought>hm")),
        frames(event("</thought>"), event("c")),
        frames(b"[DONE]"),
    )
    chunks = one_by_one(WIRE, *stream)[0]
    assert chunks == one_by_one(DECODING, *stream)[0]
    assert [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)] == [
        TextBlock("ab"),
        ReasoningBlock("hm"),
        TextBlock("c"),
    ]


def test_a_tag_that_comes_alone_is_closed_by_the_text_behind_it() -> None:
    stream = (
        frames(event("a"), event("b")),
        frames(thought("<thought>")),
        frames(event("</thought>c")),
        frames(b"[DONE]"),
    )
    chunks = one_by_one(WIRE, *stream)[0]
    assert chunks == one_by_one(DECODING, *stream)[0]
    assert [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)] == [
        TextBlock("ab"),
        TextBlock("c"),
    ]
