"""Prepared calls, and where defaults materialise."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import pytest
import trio.testing

from trio_llm.model import codes
from trio_llm.model.catalogue import ModelContext, ModelReasoning, ReasoningEffort, ResolvedModelInfo
from trio_llm.model.chunks import Error, StreamChunk
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import ReasoningEffortId
from trio_llm.model.messages import create_user_message
from trio_llm.model.policy import AlwaysRetry
from trio_llm.model.requests import (
    CONFIG_FIELDS,
    GenerateOptions,
    LlmCallConfig,
    call_config,
    mark_agent_loop_request,
    without_adapter_defaults,
)
from trio_llm.runtime.prepared import PreparedLlmCall
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.contract import ChunkSink, Produce
from trio_llm.streaming.lanes import Next
from trio_llm.testing.scripted import ScriptedAdapter, text_script

from .support import Idle, Resolving, answering, model_info, raises_code, request

LIMITED = model_info(
    default_max_tokens=9,
    context=ModelContext(100),
    input_modalities=("text", "image"),
    reasoning=ModelReasoning(
        [ReasoningEffort(ReasoningEffortId(name), name) for name in ("low", "high")], ReasoningEffortId("low")
    ),
)
CONFIG = LlmCallConfig(provider="one", model="m")


def dispatch(prepared: PreparedLlmCall, **changes: object) -> GenerateOptions:
    fields = {name: getattr(prepared.config, name) for name in CONFIG_FIELDS} | changes
    return GenerateOptions(messages=[create_user_message("hello")], **fields)


async def test_L03_a_prepared_call_pins_adapter_and_policy() -> None:
    async with LlmRuntime() as runtime:
        old, new = answering("old", retry_policy=AlwaysRetry()), answering("new")
        registration = runtime.register_adapter(["one"], old)
        prepared = await runtime.prepare_call(CONFIG)
        registration.close()
        runtime.register_adapter(["one"], new)
        await trio.testing.wait_all_tasks_blocked()
        assert old.exited == 0
        async with prepared.stream(dispatch(prepared)) as stream:
            text = "".join([part async for part in stream.text()])
        assert text == "old"
        assert stream.retry_policy is prepared.retry_policy
        assert prepared.retry_policy == AlwaysRetry()
        assert runtime.provider_retry_policy("one") != AlwaysRetry()
        assert new.calls == []
        await trio.testing.wait_all_tasks_blocked()
        assert old.exited == 1


async def test_L03_the_adapters_configuration_is_pinned_too() -> None:
    class Versioned(ScriptedAdapter):
        version = "1"

        def prepare_call(self, provider: str) -> Produce:
            version = self.version

            async def produce(options: GenerateOptions, sink: ChunkSink) -> None:
                await sink.send_batch(text_script(version))

            return produce

    async with LlmRuntime() as runtime:
        adapter = Versioned([])
        runtime.register_adapter(["one"], adapter)
        prepared = await runtime.prepare_call(CONFIG)
        adapter.version = "2"
        async with prepared.stream(dispatch(prepared)) as stream:
            assert [part async for part in stream.text()] == ["1"]
        async with runtime.stream(request()) as stream:
            assert [part async for part in stream.text()] == ["2"]


async def test_L14_adapter_defaults_name_precisely_what_was_supplied() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], Resolving(LIMITED))
        for given, supplied in (
            ({}, {"max_tokens", "reasoning_effort"}),
            ({"max_tokens": 9}, {"reasoning_effort"}),
            ({"reasoning_effort": ReasoningEffortId("low")}, {"max_tokens"}),
            ({"max_tokens": 1, "reasoning_effort": ReasoningEffortId("high")}, set()),
        ):
            config = attrs.evolve(CONFIG, **given)
            with await runtime.prepare_call(config) as prepared:
                assert set(prepared.adapter_defaults) == supplied
                assert without_adapter_defaults(prepared.config, prepared.adapter_defaults) == config
                assert prepared.context == ModelContext(100)
                assert prepared.input_modalities == ("text", "image")


async def test_L14_a_switch_of_model_picks_up_the_new_routes_defaults() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], Resolving(LIMITED))
        runtime.register_adapter(["two"], Resolving(model_info(provider="two", default_max_tokens=77)))
        with await runtime.prepare_call(CONFIG) as first:
            proposed = attrs.evolve(
                without_adapter_defaults(first.config, first.adapter_defaults), provider="two"
            )
        with await runtime.prepare_call(proposed) as second:
            assert (second.config.max_tokens, second.config.reasoning_effort) == (77, None)
            assert second.adapter_defaults == ("max_tokens",)


async def test_L15_defaults_resolve_after_routing_middleware() -> None:
    async with LlmRuntime() as runtime:
        one, two = Resolving(LIMITED), Resolving(model_info(provider="two", default_max_tokens=77))
        runtime.register_adapter(["one"], one)
        runtime.register_adapter(["two"], two)
        seen: list[GenerateOptions] = []

        async def reroute(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
            seen.append(options)
            async for chunk in next(attrs.evolve(options, provider="two")):
                yield chunk

        runtime.use(reroute)
        async with runtime.stream(request()) as stream:
            async for _ in stream:
                pass
        assert seen[0].max_tokens is None
        [call] = two.calls
        assert (call.options.max_tokens, call.options.reasoning_effort) == (77, None)
        assert (one.lookups, two.lookups) == (0, 1)


async def test_L16_one_look_up_for_a_prepared_call_and_one_for_a_direct_one() -> None:
    async with LlmRuntime() as runtime:
        adapter = Resolving(LIMITED)
        runtime.register_adapter(["one"], adapter)
        prepared = await runtime.prepare_call(CONFIG)
        async with prepared.stream(dispatch(prepared)) as stream:
            async for _ in stream:
                pass
        assert adapter.lookups == 1
        async with runtime.stream(request()) as stream:
            async for _ in stream:
                pass
        assert adapter.lookups == 2
        assert [call.options.max_tokens for call in adapter.calls] == [9, 9]


async def test_L16_one_registration_is_pinned_across_look_up_and_dispatch() -> None:
    async with LlmRuntime() as runtime:
        new = answering("new")

        class ReplacedMeanwhile(ScriptedAdapter):
            async def resolve_model(self, provider: str, model: str, signal: object = None) -> None:
                registration.replace(["one"], new)

        old = ReplacedMeanwhile(lambda options: text_script("old"))
        registration = runtime.register_adapter(["one"], old)
        async with runtime.stream(request()) as stream:
            assert [part async for part in stream.text()] == ["old"]
        async with runtime.stream(request()) as stream:
            assert [part async for part in stream.text()] == ["new"]


async def test_L17_a_second_stream_is_INVALID_PREPARED_CALL() -> None:
    async with LlmRuntime() as runtime:
        adapter = answering()
        with runtime.register_adapter(["one"], adapter):
            prepared = await runtime.prepare_call(CONFIG)
        async with prepared.stream(dispatch(prepared)) as stream:
            with raises_code(codes.INVALID_PREPARED_CALL):
                prepared.stream(dispatch(prepared))
            prepared.close()  # does not touch the stream
            await trio.testing.wait_all_tasks_blocked()
            assert adapter.exited == 0
            assert [part async for part in stream.text()] == ["hi"]


async def test_L17_drift_is_raised_and_the_one_shot_is_kept() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], Resolving(LIMITED))
        prepared = await runtime.prepare_call(CONFIG)
        for drift in ({"model": "other"}, {"max_tokens": None}, {"temperature": 0.5}):
            with raises_code(codes.INVALID_PREPARED_CALL):
                prepared.stream(dispatch(prepared, **drift))
        async with prepared.stream(dispatch(prepared)) as stream:
            assert [part async for part in stream.text()] == ["hi"]


async def test_L17_a_layer_that_changes_a_prepared_config_ends_in_a_finish() -> None:
    async with LlmRuntime() as runtime:
        adapter = answering()
        runtime.register_adapter(["one", "two"], adapter)

        async def reroute(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
            async for chunk in next(attrs.evolve(options, provider="two")):
                yield chunk

        prepared = await runtime.prepare_call(CONFIG)
        runtime.use(reroute)
        async with prepared.stream(dispatch(prepared)) as stream:
            chunks = [chunk async for chunk in stream]
        assert len(chunks) == 1
        assert isinstance(stream.finish, Error)
        assert stream.finish.failure.code == codes.INVALID_PREPARED_CALL
        assert adapter.calls == []


async def test_L17_a_closed_prepared_call_is_not_dispatched_and_lets_its_adapter_go() -> None:
    async with LlmRuntime() as runtime:
        adapter = answering()
        with runtime.register_adapter(["one"], adapter), await runtime.prepare_call(CONFIG) as prepared:
            pass
        with raises_code(codes.INVALID_PREPARED_CALL):
            prepared.stream(dispatch(prepared))
        await trio.testing.wait_all_tasks_blocked()
        assert (adapter.entered, adapter.exited) == (1, 1)


@pytest.mark.parametrize("info", [LlmError("down", codes.SERVER), model_info(default_max_tokens=0)])
async def test_L05_a_failed_preparation_raises_and_holds_nothing(
    info: Exception | ResolvedModelInfo,
) -> None:
    async with LlmRuntime() as runtime:
        adapter = Resolving(info)
        with runtime.register_adapter(["one"], adapter), pytest.raises(LlmError):
            await runtime.prepare_call(CONFIG)
        await trio.testing.wait_all_tasks_blocked()
        assert adapter.exited == 1


async def test_prepare_call_takes_the_config_part_of_options() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], Idle())
        options = request(temperature=0.25)
        with await runtime.prepare_call(options) as prepared:
            assert type(prepared.config) is LlmCallConfig
            assert prepared.config == call_config(options)


async def test_L28_ids_that_no_catalogue_lists_are_dispatched() -> None:
    async with LlmRuntime() as runtime:
        adapter = answering(models=[model_info("listed")])
        runtime.register_adapter(["one"], adapter)
        async with runtime.stream(request(model="brand-new")) as stream:
            assert [part async for part in stream.text()] == ["hi"]
        assert adapter.calls[0].options.model == "brand-new"


async def test_L28_a_layer_that_changes_a_marked_request_raises() -> None:
    async with LlmRuntime() as runtime:
        adapter = answering()
        runtime.register_adapter(["one"], adapter)

        async def change(options: GenerateOptions, next: Next) -> AsyncIterator[StreamChunk]:
            async for chunk in next(attrs.evolve(options, temperature=1.0)):
                yield chunk

        with runtime.use(change):
            stream = runtime.stream(mark_agent_loop_request(request()))
            with pytest.raises(LlmError):
                async with stream:
                    async for _ in stream:
                        pass
            async with runtime.stream(request()) as stream:  # one that is not marked may change
                assert [part async for part in stream.text()] == ["hi"]
        async with runtime.stream(mark_agent_loop_request(request())) as stream:
            assert [part async for part in stream.text()] == ["hi"]
        assert len(adapter.calls) == 2
