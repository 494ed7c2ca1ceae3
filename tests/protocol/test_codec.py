"""The JSON codec: everything comes back as it was, and nothing is lost without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.strategies import (
    BLOCKS,
    CATALOGUE,
    CHUNKS,
    CONFIGS,
    FAILURES,
    FINISHES,
    HEADERS,
    MESSAGES,
    OPTIONS,
    TIMEOUTS,
    TOOLS,
    USAGES,
    policies,
)
from trio_llm.model.catalogue import ModelDiscoveryRequest
from trio_llm.model.chunks import (
    BlockEnd,
    BlockStart,
    Error,
    Finish,
    ReasoningDelta,
    Stop,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    UnknownFinish,
    Usage,
)
from trio_llm.model.content import (
    BLOCK_TYPES,
    Attachment,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
    register_block_type,
)
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import CallId, MessageId
from trio_llm.model.identity import AppIdentity
from trio_llm.model.json_value import freeze_object
from trio_llm.model.messages import (
    Message,
    ModelSource,
    NoticeForm,
    PluginSource,
    ReplayEnvelope,
    ToolSource,
    UserSource,
)
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.model.requests import GenerateOptions
from trio_llm.model.signal import AbortSignal
from trio_llm.protocol import codec

CALL = CallId("c1")


def there_and_back(value: Any, decoded: Any) -> None:
    """``decoded`` came from the JSON of ``value`` and must be the same, to the last byte of its JSON."""
    assert decoded == value
    assert type(decoded) is type(value)
    assert codec.encode(decoded) == codec.encode(value)


@given(chunk=CHUNKS)
def test_chunks_round_trip(chunk: Any) -> None:
    there_and_back(chunk, codec.decode_chunk(json.loads(codec.encode(chunk))))


@given(block=BLOCKS)
def test_blocks_round_trip(block: Any) -> None:
    there_and_back(block, codec.decode_block(codec.to_json(block)))


@given(message=MESSAGES)
def test_messages_round_trip(message: Message) -> None:
    there_and_back(message, codec.decode_message(json.loads(codec.encode(message))))
    there_and_back(message, codec.decode(Message, codec.encode(message)))


@given(reason=FINISHES)
def test_finish_reasons_round_trip(reason: Any) -> None:
    there_and_back(reason, codec.decode_finish(codec.to_json(reason)))


@settings(max_examples=30)  # they are large
@given(options=OPTIONS)
def test_options_round_trip(options: GenerateOptions) -> None:
    there_and_back(options, codec.decode_options(json.loads(codec.encode(options))))


@settings(max_examples=30)
@given(header=HEADERS)
def test_headers_round_trip(header: Any) -> None:
    there_and_back(header, codec.decode_header(json.loads(codec.encode(header))))


@given(policy=policies())
def test_policies_round_trip(policy: Any) -> None:
    there_and_back(policy, codec.decode_policy(codec.to_json(policy)))


@example(AppIdentity("agent", "1.2", "https://agent.example"))
@given(value=st.one_of(USAGES, FAILURES, TIMEOUTS, TOOLS, CONFIGS, CATALOGUE))
def test_everything_else_round_trips(value: Any) -> None:
    there_and_back(value, codec.decode_value(type(value), json.loads(codec.encode(value))))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (BlockStart(0, "text"), '{"type":"block-start","index":0,"blockType":"text"}'),
        (TextDelta(1, "a"), '{"type":"text-delta","index":1,"text":"a"}'),
        (ReasoningDelta(1, "a"), '{"type":"reasoning-delta","index":1,"text":"a"}'),
        (
            ToolCallDelta(2, CALL, "run", "{}"),
            '{"type":"tool-call-delta","index":2,"id":"c1","name":"run","argumentsDelta":"{}"}',
        ),
        (ToolCallDelta(2), '{"type":"tool-call-delta","index":2,"argumentsDelta":""}'),
        (
            BlockEnd(2, ToolCallBlock(CALL, "run", "{}")),
            '{"type":"block-end","index":2,"block":{"type":"tool-call","id":"c1","name":"run","arguments":"{}"}}',
        ),
        (
            Usage(TokenUsage(1, 2, cache_read_tokens=3)),
            '{"type":"usage","usage":{"inputTokens":1,"outputTokens":2,"cacheReadTokens":3}}',
        ),
        (
            Finish(Stop(raw="end_turn"), ReplayEnvelope(None, [None, {"a": 1}])),
            '{"type":"finish","reason":{"kind":"stop","raw":"end_turn"},'
            '"replayState":{"response":null,"blocks":[null,{"a":1}]}}',
        ),
        (
            Finish(Error(LlmFailure("slow", "RATE_LIMIT", 429, 1500.5))),
            '{"type":"finish","reason":{"kind":"error","failure":{"message":"slow","code":"RATE_LIMIT",'
            '"status":429,"providerRetryAfterMs":1500.5}}}',
        ),
        (
            Message(MessageId("m"), "user", (ToolResultBlock(CALL, "ok"),), ToolSource(CALL)),
            '{"id":"m","role":"user","content":[{"type":"tool-result","toolCallId":"c1",'
            '"content":[{"type":"text","text":"ok"}],"isError":false}],"source":{"kind":"tool","callId":"c1"}}',
        ),
        (
            Message(MessageId("m"), "user", (), PluginSource("clock", NoticeForm("noon"))),
            '{"id":"m","role":"user","content":[],"source":{"kind":"plugin","plugin":"clock",'
            '"form":{"kind":"notice","summary":"noon"}}}',
        ),
        (ModelSource("p", "m"), '{"kind":"model","provider":"p","model":"m"}'),
        (Timeouts(first_event=float("inf"), idle=5), '{"firstEvent":"off","idle":5}'),
        (
            NormalRetry(1, ["B", "A"]),
            '{"mode":"normal","initialDelayMs":500,"maxDelayMs":10000,"jitterRatio":0.1,'
            '"maxRetries":1,"retryableCodes":["A","B"]}',
        ),
        (
            ImageBlock(Attachment("id", "image/png", 2, data=b"\x00\xff")),
            '{"type":"image","attachment":{"id":"id","mediaType":"image/png","size":2,"data":"AP8="}}',
        ),
    ],
)
def test_the_spelling_on_disk(value: Any, text: str) -> None:
    assert codec.encode(value).decode() == text


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (codec.decode_block, {"type": "citation", "url": "u", "spans": [[1, 2], {"a": None}]}),
        (codec.decode_block, {"type": "unknown", "tag": "x", "data": {}}),
        (
            codec.decode_block,
            {"type": "tool-result", "toolCallId": "c", "content": [{"type": "chart"}], "isError": True},
        ),
        (codec.decode_finish, {"kind": "rest", "until": 5, "raw": "resting"}),
        (codec.decode_finish, {"kind": "rest", "raw": {"odd": 1}}),
        (
            codec.decode_message,
            {"id": "m", "role": "user", "content": [], "source": {"kind": "robot", "n": 1}},
        ),
        (
            codec.decode_message,
            {
                "id": "m",
                "role": "user",
                "content": [{"type": "x", "camelCase": {"snake_case": 1.5}}],
                "source": {"kind": "plugin", "plugin": "p", "form": {"kind": "poem", "lines": ["a"]}},
            },
        ),
        (codec.decode_chunk, {"type": "block-end", "index": 0, "block": {"type": "video", "frames": 3}}),
        (codec.decode_chunk, {"type": "finish", "reason": {"kind": "rest"}}),
    ],
)
def test_unknown_kinds_survive(decode: Any, data: dict[str, Any]) -> None:
    assert codec.to_json(decode(data)) == data
    assert json.loads(codec.encode(decode(data))) == data


def test_raw_of_an_unknown_finish_is_found() -> None:
    assert codec.decode_finish({"kind": "rest", "raw": "zzz"}) == UnknownFinish(
        "rest", freeze_object({}), raw="zzz"
    )


def test_lone_surrogates_survive_as_escapes() -> None:
    message = Message(MessageId("m"), "user", "bad \ud83c end", UserSource())
    text = codec.encode(message)
    assert rb"bad \ud83c end" in text
    assert codec.decode(Message, text) == message


def test_what_it_returns_is_plain_json() -> None:
    data = codec.to_json(UnknownBlock("x", freeze_object({"a": [{"b": (1,)}]})))
    assert data == {"type": "x", "a": [{"b": [1]}]}
    assert type(data["a"]) is list
    assert type(data["a"][0]) is dict


def test_signals_and_keys_stay_out() -> None:
    request = ModelDiscoveryRequest("p", api_key="sk-secret", signal=AbortSignal())
    assert codec.to_json(request) == {"provider": "p"}
    options = GenerateOptions(provider="p", model="m", messages=(), signal=AbortSignal())
    assert codec.decode_options(codec.to_json(options)) == attrs.evolve(options, signal=None)
    with pytest.raises(ValueError, match="apiKey"):
        codec.decode_value(ModelDiscoveryRequest, {"apiKey": "sk"})


@attrs.frozen
class VideoBlock:
    """A block of one's own, with a private name, an own default and a part."""

    type: ClassVar[str] = "video"
    attachment: Attachment
    frame_rate: float | None = 25.0
    captions: tuple[TextBlock, ...] = ()
    meta: dict[str, Any] = attrs.field(factory=dict)
    _hint: str = ""


@pytest.fixture
def video() -> Iterator[type[VideoBlock]]:
    register_block_type(VideoBlock)
    yield VideoBlock
    del BLOCK_TYPES["video"]


@pytest.mark.parametrize("rate", [None, 24, 25.0])
def test_a_block_type_of_ones_own(video: type[VideoBlock], rate: float | None) -> None:
    block = video(Attachment.from_bytes(b"x", "video/webm"), rate, (TextBlock("hi"),), {"a_b": [1]}, "h")
    data = codec.to_json(block)
    assert data["type"] == "video"
    assert data["frameRate"] == rate
    assert data["hint"] == "h"
    assert codec.decode_block(json.loads(json.dumps(data))) == block


@pytest.mark.parametrize(
    ("decode", "data", "where"),
    [
        (codec.decode_chunk, [], r"^\$: expected an object, not list"),
        (codec.decode_chunk, {"index": 0}, r"^\$\.type: expected a tag"),
        (codec.decode_chunk, {"type": "nonsense"}, r"^\$\.type: unknown tag 'nonsense'"),
        (codec.decode_chunk, {"type": "text-delta", "index": 0}, r"^\$\.text is missing"),
        (
            codec.decode_chunk,
            {"type": "text-delta", "index": True, "text": ""},
            r"^\$\.index: expected int, not bool",
        ),
        (codec.decode_chunk, {"type": "text-delta", "index": 0, "text": None}, r"^\$\.text: expected str"),
        (codec.decode_chunk, {"type": "text-delta", "index": 0, "text": "", "more": 1}, "no field 'more'"),
        (codec.decode_chunk, {"type": "finish", "reason": "stop"}, r"^\$\.reason: expected an object"),
        (
            codec.decode_message,
            {"id": "m", "role": "user", "content": 5, "source": {}},
            r"^\$\.content: expected an a",
        ),
        (
            codec.decode_message,
            {"id": "m", "role": "user", "content": [{"type": "text"}], "source": {"kind": "user"}},
            r"^\$\.content\[0\]\.text is missing",
        ),
        (
            codec.decode_message,
            {"id": "m", "role": "robot", "content": [], "source": {}},
            r"^\$\.role: expected one of",
        ),
        (
            codec.decode_message,
            {"id": "", "role": "user", "content": [], "source": {"kind": "user"}},
            r"^\$: ",
        ),
        (
            codec.decode_finish,
            {"kind": "error", "failure": {"message": "", "code": "X"}},
            r"^\$\.failure: message",
        ),
        (
            codec.decode_block,
            {"type": "image", "attachment": {"id": "i", "data": "?"}},
            r"\.data: expected base64",
        ),
        (codec.decode_block, {"type": "image", "attachment": {"id": "i"}}, r"^\$\.attachment: .*exactly one"),
        (codec.decode_policy, {"mode": "never"}, r"^\$\.mode: unknown tag"),
        (codec.decode_policy, {"mode": "normal", "maxRetries": -1}, r"^\$: max_retries"),
        (
            codec.decode_options,
            {"provider": "p", "model": "m", "messages": [], "toolChoice": "perhaps"},
            r"^\$\.toolChoice: expected an object",
        ),
        (
            codec.decode_options,
            {"provider": "p", "model": "m", "messages": [], "providerOptions": []},
            "JSON object",
        ),
        (
            codec.decode_options,
            {"provider": "p", "model": "m", "messages": [], "temperature": "off"},
            "temperature",
        ),
        (codec.decode_header, {"config": {"provider": "p"}}, r"^\$\.config\.model is missing"),
    ],
)
def test_bad_input_is_refused_with_its_place(decode: Any, data: Any, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        decode(data)


def test_the_tag_of_a_single_class_is_checked() -> None:
    assert codec.decode_value(TextBlock, {"type": "text", "text": "a"}) == TextBlock("a")
    with pytest.raises(ValueError, match="expected 'text'"):
        codec.decode_value(TextBlock, {"type": "reasoning", "text": "a"})


def test_text_that_is_no_json() -> None:
    with pytest.raises(LlmError):
        codec.decode(Message, b"{")


def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(TypeError, match="AbortSignal"):
        codec.to_json(AbortSignal())
    with pytest.raises(ValueError, match="nan"):
        codec.to_json(GenerateOptions(provider="p", model="m", messages=(), temperature=float("nan")))
    with pytest.raises(TypeError, match="knows no JSON"):
        codec.decode(complex, b"1")
