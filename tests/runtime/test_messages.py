"""What becomes of the history below the middleware: images, budgets, replay state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.model import codes, content
from trio_llm.model.chunks import StreamChunk
from trio_llm.model.content import (
    Attachment,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolResultBlock,
)
from trio_llm.model.failures import LlmFailure
from trio_llm.model.identifiers import CallId, MessageId
from trio_llm.model.messages import (
    Message,
    ModelSource,
    ReplayEnvelope,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.requests import GenerateOptions
from trio_llm.runtime.budgets import OFFLOADED, ImageBudget, within_budget
from trio_llm.runtime.images import images_of
from trio_llm.runtime.projection import placeholder, without_images
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.lanes import Next
from trio_llm.testing.scripted import Script, ScriptedAdapter, text_script

from .support import Resolving, answering, model_info, request

MIB = 2**20
PICTURE = ImageBlock(Attachment.from_bytes(b"picture", "image/png"))
LINKED = ImageBlock(Attachment.from_url("http://127.0.0.1/a.png"))


def image_of_size(size: int, number: int = 0) -> ImageBlock:
    return ImageBlock(Attachment(f"{number:064x}", "image/png", size, data=b""))


# ---- text-only models


def test_L18_placeholders_are_deterministic_and_show_eight_digits() -> None:
    text = placeholder(PICTURE).text
    assert PICTURE.attachment.id[:8] in text
    assert PICTURE.attachment.id[:9] not in text
    assert placeholder(ImageBlock(Attachment.from_bytes(b"picture", "image/png"))).text == text
    assert placeholder(image_of_size(1)).text != text


def test_L18_nested_tool_results_are_projected_and_identity_is_kept() -> None:
    plain = create_user_message("no image here")
    other = ToolResultBlock(CallId("b"), "text only")
    nested = create_user_message(
        [ToolResultBlock(CallId("a"), [TextBlock("see"), ToolResultBlock(CallId("c"), [LINKED])]), other]
    )
    messages = (plain, nested)
    changed = without_images(messages)
    assert changed[0] is plain
    assert (changed[1].id, changed[1].source) == (nested.id, nested.source)
    assert changed[1].content[1] is other
    assert list(images_of(changed)) == []
    result = changed[1].content[0]
    assert isinstance(result, ToolResultBlock)
    assert result.content[0] == TextBlock("see")
    assert list(images_of(messages)) == [LINKED]
    assert without_images(changed) is changed


@pytest.mark.parametrize(
    ("modalities", "shown"), [(("text",), False), (("text", "image"), True), (None, True), ((), False)]
)
async def test_L18_images_are_projected_below_the_middleware_only(
    modalities: tuple[str, ...] | None, shown: bool
) -> None:
    async with LlmRuntime() as runtime:
        adapter = Resolving(model_info(input_modalities=modalities))
        runtime.register_adapter(["one"], adapter)
        seen: list[GenerateOptions] = []

        async def layer(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
            seen.append(options)
            async for chunk in next(options):
                yield chunk

        runtime.use(layer)
        options = request(messages=[create_user_message([PICTURE]), create_user_message("text")])
        async with runtime.stream(options) as stream:
            async for _ in stream:
                pass
        sent = adapter.calls[0].options
        assert seen == [options]
        assert (sent is options) is shown
        assert list(images_of(sent.messages)) == ([PICTURE] if shown else [])
        assert sent.messages[1] is options.messages[1]


# ---- block types of one's own


@attrs.frozen
class ClipBlock:
    type: ClassVar[str] = "clip"
    words: str
    still: ImageBlock | None = None


@pytest.fixture
def clips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "BLOCK_TYPES", dict(content.BLOCK_TYPES))
    content.register_block_type(ClipBlock)
    monkeypatch.setitem(content.SENT_AS, ClipBlock, _clip)


def _clip(clip: ClipBlock) -> Sequence[ContentBlock]:
    return [*([clip.still] if clip.still else []), *([TextBlock(clip.words)] if clip.words else [])]


async def _sent(adapter: ScriptedAdapter, *messages: Message) -> tuple[Message, ...]:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], adapter)
        await runtime.generate(request(messages=messages))
    return adapter.calls[0].options.messages


@pytest.mark.usefixtures("clips")
async def test_blocks_of_ones_own_are_sent_as_what_they_say() -> None:
    plain = create_user_message("text")
    mixed = create_user_message([TextBlock("see"), ClipBlock("two", PICTURE), ClipBlock("")])
    nested = create_tool_result_message(CallId("a"), [ClipBlock("heard")])
    sent = await _sent(ScriptedAdapter([text_script("ok")]), plain, mixed, nested)
    assert sent[0] is plain
    assert (sent[1].id, sent[1].content) == (mixed.id, (TextBlock("see"), PICTURE, TextBlock("two")))
    assert sent[2].content == (ToolResultBlock(CallId("a"), "heard"),)


@pytest.mark.usefixtures("clips")
async def test_the_images_in_blocks_of_ones_own_are_projected_too() -> None:
    adapter = Resolving(model_info(input_modalities=("text",)))
    [sent] = await _sent(adapter, create_user_message([ClipBlock("two", PICTURE)]))
    assert sent.content == (placeholder(PICTURE), TextBlock("two"))


@pytest.mark.usefixtures("clips")
async def test_the_adapter_that_made_a_block_of_ones_own_gets_it_back() -> None:
    own = create_assistant_message([ClipBlock("a")], ModelSource("one", "m", ReplayEnvelope({}, [1])))
    others = create_assistant_message([ClipBlock("a")], ModelSource("two", "m", ReplayEnvelope({}, [1])))
    sent = await _sent(ScriptedAdapter([text_script("ok")]), own, others)
    assert sent[0] is own
    assert sent[1].content == (TextBlock("a"),)


# ---- budgets


def offloaded(messages: Sequence[Message]) -> int:
    return sum(block is OFFLOADED for message in messages for block in message.content)


def test_offload_arithmetic_129_images_of_one_mib() -> None:
    budget = ImageBudget(max_images=1000, max_bytes=128 * MIB, byte_quantum=64 * MIB)
    history = tuple(create_user_message([image_of_size(MIB, number)]) for number in range(194))
    expected = {1: 0, 128: 0, 129: 65, 130: 65, 160: 65, 192: 65, 193: 129, 194: 129}
    for count, gone in expected.items():
        kept = within_budget(history[:count], budget)
        assert offloaded(kept) == gone
        assert kept[gone:] == history[gone:count]  # the oldest went
        assert all(one is other for one, other in zip(kept[gone:], history[gone:count], strict=True))
    assert within_budget(history[:128], budget) == history[:128]


def test_offload_arithmetic_counts_images_in_quanta_too() -> None:
    budget = ImageBudget(max_images=10, max_bytes=MIB, image_quantum=4)
    history = tuple(create_user_message([LINKED]) for _ in range(30))
    gone = [offloaded(within_budget(history[:count], budget)) for count in (10, 11, 14, 15, 18, 19)]
    assert gone == [0, 4, 4, 8, 8, 12]


def test_offload_takes_nested_images_and_all_of_them_if_it_must() -> None:
    budget = ImageBudget(max_images=1, max_bytes=10)
    message = create_tool_result_message(CallId("a"), [image_of_size(20), image_of_size(30, 1)])
    [changed] = within_budget((message,), budget)
    assert list(images_of([changed])) == []
    assert changed.id == message.id
    assert within_budget((changed,), budget) == (changed,)


@pytest.mark.parametrize("field", ["max_images", "max_bytes", "image_quantum", "byte_quantum"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_offload_budgets_are_validated(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        ImageBudget(**{"max_images": 1, "max_bytes": 1, field: value})  # type: ignore[arg-type]


@given(
    sizes=st.lists(st.integers(0, 5000), max_size=30),
    bounds=st.tuples(st.integers(1, 20), st.integers(1, 30_000)),
    quanta=st.tuples(st.integers(1, 8), st.integers(1, 10_000)),
)
def test_offload_holds_both_bounds_and_the_prefix_only_grows(
    sizes: list[int], bounds: tuple[int, int], quanta: tuple[int, int]
) -> None:
    budget = ImageBudget(
        max_images=bounds[0], max_bytes=bounds[1], image_quantum=quanta[0], byte_quantum=quanta[1]
    )
    history = tuple(create_user_message([image_of_size(size)]) for size in sizes)
    before = 0
    for count in range(len(sizes) + 1):
        kept = within_budget(history[:count], budget)
        left = list(images_of(kept))
        gone = offloaded(kept)
        assert len(left) <= bounds[0]
        assert sum(image.attachment.size or 0 for image in left) <= bounds[1]
        assert [block for message in kept[gone:] for block in message.content] == left
        assert gone >= before
        before = gone


async def test_offload_is_applied_to_requests_of_a_runtime_with_a_budget() -> None:
    budget = ImageBudget(max_images=1, max_bytes=MIB)
    async with LlmRuntime(image_budget=budget) as runtime:
        adapter = answering()
        runtime.register_adapter(["one"], adapter)
        async with runtime.stream(request(messages=[create_user_message([PICTURE, LINKED])])) as stream:
            async for _ in stream:
                pass
    assert adapter.calls[0].options.messages[0].content == (OFFLOADED, LINKED)


# ---- replay state

STATE = ReplayEnvelope({"version": 1}, ["signature"])
Degraded = list[tuple[MessageId, LlmFailure]]


def answer(provider: str, state: ReplayEnvelope | None = STATE, *blocks: ContentBlock) -> Message:
    return create_assistant_message(blocks or [TextBlock("earlier")], ModelSource(provider, "m", state))


async def sent_history(
    runtime: LlmRuntime, adapter: ScriptedAdapter, provider: str, *messages: Message
) -> tuple[Message, ...]:
    async with runtime.stream(request(provider, messages=messages)) as stream:
        async for _ in stream:
            pass
    return adapter.calls[-1].options.messages


async def test_L22_state_passes_between_routes_of_one_adapter_instance() -> None:
    async with LlmRuntime() as runtime:
        adapter = answering()
        runtime.register_adapter(["one", "two"], adapter)
        history = (create_user_message("q"), answer("one"), answer("two"))
        sent = await sent_history(runtime, adapter, "two", *history)
        assert all(one is other for one, other in zip(sent, history, strict=True))


async def test_L22_elsewhere_only_provider_and_model_pass() -> None:
    async with LlmRuntime() as runtime:
        adapter, twin = answering(), answering()
        runtime.register_adapter(["one"], adapter)
        runtime.register_adapter(["twin"], twin)
        history = (answer("twin"), answer("gone"), answer("one"), answer("twin", None))
        sent = await sent_history(runtime, adapter, "one", *history)
        assert sent[0].source == ModelSource("twin", "m")
        assert sent[1].source == ModelSource("gone", "m")
        assert (sent[0].id, sent[0].content) == (history[0].id, history[0].content)
        assert sent[2] is history[2]
        assert sent[3] is history[3]


async def test_L22_ownership_is_of_now_and_not_inferred_from_names() -> None:
    async with LlmRuntime() as runtime:
        first, second = answering(), answering()
        registration = runtime.register_adapter(["one"], first)
        history = answer("one")
        assert (await sent_history(runtime, first, "one", history))[0] is history
        registration.replace(["one"], second)
        assert (await sent_history(runtime, second, "one", history))[0] is history


async def test_L22_a_pinned_adapter_that_lost_its_route_gets_no_state() -> None:
    async with LlmRuntime() as runtime:
        old, new = answering(), answering()
        registration = runtime.register_adapter(["one"], old)
        prepared = await runtime.prepare_call(request())
        registration.replace(["one"], new)
        async with prepared.stream(request(messages=[answer("one")])) as stream:
            async for _ in stream:
                pass
        assert old.calls[0].options.messages[0].source == ModelSource("one", "m")


async def test_L22_a_misaligned_state_degrades_that_one_message_and_is_reported() -> None:
    reports: Degraded = []
    async with LlmRuntime(on_degraded=lambda id, failure: reports.append((id, failure))) as runtime:
        adapter = answering()
        runtime.register_adapter(["one"], adapter)
        bad = answer("one", ReplayEnvelope({}, ["a", "b"]))
        fine = answer("one", ReplayEnvelope({}, None), ReasoningBlock("r"), TextBlock("t"))
        sent = await sent_history(runtime, adapter, "one", bad, fine)
        assert sent == (attrs.evolve(bad, source=ModelSource("one", "m")), fine)
        assert [(id, failure.code) for id, failure in reports] == [(bad.id, codes.INVALID_REPLAY_STATE)]


async def test_P07_an_adapter_reports_malformed_state_through_the_same_hook() -> None:
    failure = LlmFailure("not version 1", codes.INVALID_REPLAY_STATE)
    history = answer("one")
    script: Script = [lambda sink: sink.note_degraded(history.id, failure), *text_script("hi")]
    reports: Degraded = []
    async with LlmRuntime(on_degraded=lambda id, failure: reports.append((id, failure))) as runtime:
        adapter = ScriptedAdapter([script])
        runtime.register_adapter(["one"], adapter)
        await sent_history(runtime, adapter, "one", history)
    assert reports == [(history.id, failure)]


async def test_L22_degradation_is_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    async with LlmRuntime() as runtime:
        adapter = answering()
        runtime.register_adapter(["one"], adapter)
        bad = answer("one", ReplayEnvelope({}, []))
        await sent_history(runtime, adapter, "one", bad)
    assert bad.id in caplog.text
